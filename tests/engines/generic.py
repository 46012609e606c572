# SPDX-License-Identifier: Apache-2.0
"""Workers for any checkpoint, whatever its architecture: trainers share the rows of every tensor,
the workers of an engine its columns.

Elements are moved as words: a tensor whose type has no counterpart is seen as one of another type
with the same bytes (BOOL as U8, I64 and F64 as twice as many I32).  Tensors without elements are
left out.
"""
import math

import numpy as np

from . import base, safetensors_io, versions

# safetensors dtype -> how it is seen: dtype, words, words an element
SEEN = {"BF16": ("BF16", np.uint16, 1), "F16": ("F16", np.float16, 1), "F32": ("F32", np.float32, 1),
        "I32": ("I32", np.int32, 1), "U32": ("I32", np.int32, 1), "I16": ("BF16", np.uint16, 1),
        "U16": ("BF16", np.uint16, 1), "I64": ("I32", np.int32, 2), "U64": ("I32", np.int32, 2),
        "F64": ("I32", np.int32, 2), "U8": ("U8", np.uint8, 1), "I8": ("U8", np.uint8, 1),
        "BOOL": ("U8", np.uint8, 1), "F8_E4M3": ("U8", np.uint8, 1),
        "F8_E5M2": ("U8", np.uint8, 1)}
WORDS = {dtype: words for dtype, words, _ in SEEN.values()}
BYTES = {dtype: np.dtype(words).itemsize for dtype, words in WORDS.items()}


class Model:
    """The tensors of a checkpoint as they are seen.  left_out: those without elements."""

    def __init__(self, info):
        self.tensors, self.left_out = [], []
        for name, (shape, dtype) in info.items():
            seen, _, times = SEEN[dtype]
            if math.prod(shape) == 0:
                self.left_out.append(name)
            elif times == 1:
                self.tensors.append((name, tuple(shape), seen))
            else:
                self.tensors.append((name, (*shape[:-1], (shape or (1,))[-1] * times), seen))
        self.nbytes = sum(math.prod(s) * BYTES[d] for _, s, d in self.tensors)


class Words:
    """A checkpoint, each tensor as it is seen."""

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint
        info = checkpoint.info()
        self._shape = {n: (s, d) for n, s, d in Model(info).tensors}

    def items(self):
        for name, tensor in self._checkpoint.items():
            if name in self._shape:
                shape, dtype = self._shape[name]
                yield name, np.ascontiguousarray(tensor).reshape(-1).view(
                    WORDS[dtype]).reshape(shape)


def share(n, parts, part):
    """This part of n things; the first ones get one more."""
    return slice(n * part // parts, n * (part + 1) // parts)


def cut(shape, spec, number):
    """Index of a worker's part of tensor @number; None: it has nothing of it."""
    parts, part = spec["parts"], spec["part"]
    if spec["role"] == "trainer":
        if not shape:
            return () if number % parts == part else None
        # Tensors of few rows begin at another worker each, so that all have some.
        mine = share(shape[0], parts, (part + number) % parts)
        return (mine,) if mine.start < mine.stop else None
    if len(shape) < 2 or shape[-1] < parts:
        return ()
    return (..., share(shape[-1], parts, part))


def holds(spec):
    """Does the worker hold anything?"""
    return any(cut(tuple(t[1]), spec, i) is not None for i, t in enumerate(spec["tensors"]))


class Engine:
    """One worker; as base.Engine.  spec: role "trainer" or "rollout", parts, part, tensors."""

    def __init__(self, spec, alloc=None):
        self.spec, self.params, self.version = spec, {}, 1
        self._cut, self._shape = {}, {}
        alloc = alloc or np.zeros
        for i, (name, shape, dtype) in enumerate(spec["tensors"]):
            self._shape[name] = tuple(shape)
            index = cut(tuple(shape), spec, i)
            if index is None:
                continue
            mine = np.broadcast_to(np.uint8(0), tuple(shape))[index].shape
            array = alloc(mine or (1,), np.dtype(WORDS[dtype])).reshape(mine)
            self.params[name], self._cut[name] = (array, dtype), index

    def load_weights(self, weights):
        for name, tensor in weights:
            if tuple(tensor.shape) != self._shape.get(name):
                raise base.LoadError(f"{name}: shape {tuple(tensor.shape)}, expected "
                                     f"{self._shape.get(name)}")
            if name in self.params:
                self.params[name][0][...] = base.words_of(tensor)[self._cut[name]]

    def set_version(self, version):
        for array, dtype in self.params.values():
            versions.mutate(array.reshape(-1), dtype, version, self.version)
        self.version = version

    def nbytes(self):
        return sum(a.nbytes for a, _ in self.params.values())


def manifest(spec):
    """What weightbridge takes as manifest."""
    return [(name, tuple(shape), dtype) for name, shape, dtype in spec["tensors"]]


def open_checkpoint(path, spec):
    """The checkpoint of a worker of any framework, for its load_weights."""
    checkpoint = safetensors_io.Checkpoint(path)
    return Words(checkpoint) if spec["framework"] == "generic" else checkpoint
