# SPDX-License-Identifier: Apache-2.0
"""What all reference engines share: parameters, the way of a tensor into them, versions."""
import re

import numpy as np

from . import models, versions

# dtype names of parameters -> NumPy dtype of their words
WORDS = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}
NEVER_LOADED = re.compile(r"rotary_emb\.inv_freq$")


class LoadError(ValueError):
    """What load_weights raises: names the tensor."""


def cast(src, dtype):
    """src (BF16 as uint16 words) as words of dtype; to nearest even where it narrows."""
    if src.dtype == dtype:
        return src
    if src.dtype == np.uint16:
        wide = (src.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return wide.astype(dtype)
    if dtype == np.uint16:
        bits = src.astype(np.float32).view(np.uint32)
        half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return ((bits + half) >> np.uint32(16)).astype(np.uint16)
    return src.astype(dtype)


def words_of(tensor):
    """A tensor as it came from an iterator, BF16 of ml_dtypes seen as uint16 words."""
    return tensor.view(np.uint16) if tensor.dtype.name == "bfloat16" else tensor


def share(n, parts, what):
    """n / parts; refuses what does not divide."""
    if n % parts:
        raise ValueError(f"{what} {n} does not divide by {parts}")
    return n // parts


class Engine:
    """One worker.

    params: dict name -> (array, safetensors dtype), in the order of registration; arrays never
    move.  load_weights copies the worker's part of each tensor into them.
    """

    DEFAULTS = {}

    def __init__(self, spec, alloc=None):
        self.spec = self._settings(spec)
        self.config = models.config(self.spec["model"])
        self.params = {}
        self.version = 1
        self._alloc = alloc or np.zeros
        self._known = {name: shape for name, shape, _ in models.tensors(self.config)}
        self._routes = {}
        self._copied = []
        self._parked = {}
        self._build()

    def _settings(self, spec):
        unknown = sorted(set(spec) - set(self.DEFAULTS) - {"framework", "model"})
        if unknown:
            raise ValueError(f"{spec.get('framework')}: unknown settings {', '.join(unknown)}")
        return {**self.DEFAULTS, **spec}

    def _build(self):
        raise NotImplementedError

    # Construction: parameters, and routes from tensors into them.

    def _add(self, name, shape, dtype=None, src_dtype=None):
        """A parameter; returns its array.  src_dtype: dtype of the tensors it is made of."""
        dtype = dtype or self.config.dtype
        array = self._alloc(tuple(shape), np.dtype(WORDS[dtype]))
        if array.shape != tuple(shape):
            raise ValueError(f"alloc made {array.shape} for {name} {tuple(shape)}")
        assert name not in self.params
        self.params[name] = (array, dtype)
        self._copied.append((array, dtype))
        return array

    def _pad(self, tensor, name, rows):
        """Rows of a parameter beyond its tensor are zero, and stay so in every version."""
        array, dtype = self.params[name]
        if rows == array.shape[0]:
            return
        self._copied[-1] = (array[:rows], dtype)
        tail = array[rows:]
        self._on(tensor, lambda _: tail.fill(0))

    def _on(self, tensor, action):
        assert tensor in self._known, tensor
        self._routes.setdefault(tensor, []).append(action)

    def _copy(self, tensor, dst, index=(), shape=None, transpose=False):
        """Route: dst = tensor, reshaped, cut by index, transposed."""
        def action(t):
            if shape is not None:
                t = t.reshape(shape)
            t = t[index]
            if transpose:
                t = t.T
            if t.shape != dst.shape:
                raise LoadError(f"{tensor}: {t.shape} for {dst.shape}")
            np.copyto(dst, cast(t, dst.dtype))
        self._on(tensor, action)

    def _together(self, tensors, action):
        """Route: keep the tensors until all have come, then action(list of them)."""
        def keep(name):
            def one(t):
                held = self._parked.setdefault(tensors, {})
                held[name] = t
                if len(held) == len(tensors):
                    del self._parked[tensors]
                    action([held[n] for n in tensors])
            return one
        for name in tensors:
            self._on(name, keep(name))

    # Use.

    def load_weights(self, weights):
        """Load (name, tensor) pairs, in any order; tensors of other ranks are skipped.

        Raises LoadError for a name that the model does not have, or a wrong shape.
        """
        for name, tensor in weights:
            shape = self._known.get(name)
            if shape is None:
                if NEVER_LOADED.search(name):
                    continue
                raise LoadError(f"{name}: the model has no such tensor")
            if tuple(tensor.shape) != shape:
                raise LoadError(f"{name}: shape {tuple(tensor.shape)}, expected {shape}")
            for action in self._routes.get(name, ()):
                action(words_of(tensor))
        self._after_load()

    def _after_load(self):
        pass

    def set_version(self, version):
        """Change every parameter element from the current version to this one, in place."""
        for array, dtype in self._copied:
            versions.mutate(array, dtype, version, self.version)
        self.version = version

    def nbytes(self):
        """Bytes of the parameters."""
        return sum(a.nbytes for a, _ in self.params.values())
