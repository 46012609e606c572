# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that comes whole, for a worker whose load_weights calculates.

What is no copy cannot be written by a transfer.  Such a worker receives the tensors of the checkpoint as they are, in memory
of the host beside its parameters, and gives them to its own load_weights when a version is complete.  That costs the memory
of a checkpoint, and the time of a load at each update, in which the engine stands still.

It needs a load_weights that makes the same of a checkpoint whatever it loaded before, and that is tried out: not all do.
"""

import contextlib
import ctypes
import hashlib

from . import arrays, modules, outside, places
from .errors import WeightBridgeError

_TILE = 65521  # made-up values are repeated after so many


class Whole:
    """The tensors of a manifest in memory of the host: `params` and `keep` are what an adapter takes in place of the
    engine's own."""

    def __init__(self, load_weights, source, manifest, make):
        self._load_weights, self._source, self._kinds = load_weights, source, {n: kind for n, _, kind in manifest}
        self._tensors = {n: make.empty(shape, kind)[0] for n, shape, kind in manifest}
        self.params = {n: (t, self._kinds[n]) for n, t in self._tensors.items() if arrays.span(t)[1]}
        self.n_bytes = sum(arrays.span(t)[1] for t in self._tensors.values())

    def keep(self, weights):
        """A load_weights that only copies."""
        for name, tensor in weights:
            self._tensors[name][...] = tensor

    def load(self):
        """Gives what has come to load_weights.  Raises ParametersMoved when that put a parameter elsewhere."""
        before = places.Places(self._source.now(), modules.behind(self._load_weights))
        self._load_weights((n, _copy(t)) for n, t in self._tensors.items())  # a copy: it may change what it is given
        before.check(self._source)

    def acquired(self, source):
        """The engine's parameters are these from now on."""
        self._source = source

    def try_out(self):
        """Names of parameters that load_weights does not make of the checkpoint alone: those it does not write, or makes
        something else of each time.  Raises what load_weights raises, and ParametersMoved.  All is as before afterwards."""
        with self._put_back() as params:
            self._make_up()
            found = [self._loaded_over(params, fill) for fill in (0, 1)]
        return [n for n in params if found[0][n] != found[1][n]]

    def _loaded_over(self, params, fill):
        for array in params.values():
            _fill(array, fill)
        self.load()
        return {n: _digest(array) for n, array in params.items()}

    @contextlib.contextmanager
    def _put_back(self):
        """Name -> array of the parameters; they and what else the loader may write are as before at the end."""
        params = {n: _plain(n, value) for n, value in self._source.now().items()}
        beside = outside.Outside(self._source, self._load_weights)
        beside.find([arrays.describe(n, value) for n, value in self._source.now().items()])
        saved = [(array, _copy(array)) for array in (*params.values(), *beside.held())]
        try:
            yield params
        finally:
            beside.put_back()
            for array, copy in saved:
                _write(array, copy)

    def _make_up(self):
        """Values that a loader can calculate with, in every tensor: other ones in each."""
        import numpy as np

        for i, (name, tensor) in enumerate(self._tensors.items()):
            address, size = arrays.span(tensor)
            values = _values(np.random.default_rng(i), self._kinds[name])
            tiled = np.resize(values, size // values.itemsize)
            ctypes.memmove(address, tiled.ctypes.data, size)


def _values(made, kind):
    import numpy as np

    normal = made.standard_normal(_TILE, np.float32)
    if kind in ("F32", "F64", "F16"):
        return normal.astype({"F32": np.float32, "F64": np.float64, "F16": np.float16}[kind])
    if kind == "BF16":
        return (normal.view(np.uint32) >> 16).astype(np.uint16)
    low, high = {"F8_E4M3": (0x20, 0x40), "F8_E5M2": (0x20, 0x40), "F8_E8M0": (0x7e, 0x81)}.get(kind, (0, 2))  # near 1
    return made.integers(low, high, _TILE).astype(f"u{arrays.item_bytes(kind)}")


def _plain(name, value):
    """A parameter as something that can be written here."""
    array = value[0] if isinstance(value, (tuple, list)) else value
    if not arrays.is_torch(array) and (arrays.is_device(array) or not hasattr(array, "__array_interface__")):
        raise WeightBridgeError(f"parameter {name} is neither an array of NumPy's nor a tensor of torch's")
    return array.detach() if arrays.is_torch(array) else array


def _fill(array, value):
    if arrays.is_torch(array):
        array.fill_(value)
    else:
        array[...] = value


def _copy(array):
    """In the memory of the host: a GPU has no room for a second model."""
    return array.detach().to("cpu", copy=True) if arrays.is_torch(array) else array.copy()


def _write(array, copy):
    if arrays.is_torch(array):
        array.copy_(copy)
    else:
        array[...] = copy


def _digest(array):
    if not arrays.is_torch(array):
        return hashlib.blake2b(array.tobytes()).digest()
    # Not by numpy(): a storage that NumPy has seen cannot be resized any more, and FSDP frees its own so.
    array = array.detach().cpu().contiguous()
    size = array.numel() * array.element_size()
    return hashlib.blake2b((ctypes.c_ubyte * size).from_address(array.data_ptr()) if size else b"").digest()
