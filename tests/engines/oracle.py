# SPDX-License-Identifier: Apache-2.0
"""What every parameter of a worker must hold, straight from the checkpoint, byte for byte.

Shares no placing code with the engines (oracle_rules has its own), and imports nothing of the
project, so it can run in a process of its own.
"""
import collections

import numpy as np

from . import versions
from .oracle_rules import rules

Mismatch = collections.namedtuple("Mismatch", "name index count what")
Mismatch.__doc__ = """A parameter that is wrong.

index: of the first wrong element (tuple), None where shape or name is wrong; count: wrong
elements; what: a sentence.
"""

WORDS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}
CHUNK_BYTES = 512 << 10


def segments(a, b):
    """Cut two index vectors together into pieces in which both go by constant steps.

    Yields (first, last) positions.
    """
    n = len(a)
    da, db = np.diff(a), np.diff(b)
    turns = np.flatnonzero((da[1:] != da[:-1]) | (db[1:] != db[:-1])) + 1
    first = 0
    while first < n:
        k = np.searchsorted(turns, first + 1)
        last = int(turns[k]) if k < len(turns) else n - 1
        yield first, last
        first = last + 1


def _slice(first, last, n):
    step = (last - first) // (n - 1) if n > 1 else 1
    assert step > 0
    return slice(int(first), int(last) + 1, int(step))


def pieces(block):
    """Yield (tensor or None for zeros, rows of the block, rows of the tensor) as slices."""
    for t in np.unique(block.tid):
        rows = np.flatnonzero(block.tid == t)
        src = block.src[rows] if t >= 0 else rows
        for i, j in segments(rows, src):
            n = j - i + 1
            yield (block.names[t] if t >= 0 else None, _slice(rows[i], rows[j], n),
                   _slice(src[i], src[j], n))


def _plane(array, block):
    """The block's part of the parameter as rows and columns of the checkpoint."""
    part = array[block.index]
    if part.ndim == 1:
        part = part[:, None]
    return part.T if block.turned else part


def _tensor_plane(ckpt, name, flat):
    """(words of the tensor as rows and columns, dtype); flat: as one column."""
    t = ckpt[name]
    dtype = {2: "F16" if t.dtype == np.float16 else "BF16", 4: "F32"}[t.dtype.itemsize]
    t = t.view(WORDS[dtype])
    return (t.reshape(-1, 1) if t.ndim == 1 or flat else t), dtype


def _convert(words, have, want):
    """Words of one dtype as words of another: the casts that engines make."""
    if have == want:
        return words
    if (have, want) == ("BF16", "F32"):
        return words.astype(np.uint32) << np.uint32(16)
    if (have, want) == ("F32", "BF16"):
        low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
        up = (low > 0x8000) | ((low == 0x8000) & (high & np.uint32(1) == 1))
        return (high + up).astype(np.uint16)
    if (have, want) == ("F16", "F32"):
        return words.view(np.float16).astype(np.float32).view(np.uint32)
    raise ValueError(f"no cast from {have} to {want}")


def build(spec, ckpt, version=1):
    """dict name -> words that the worker's parameter must hold (BF16, F16: uint16; F32: uint32).

    ckpt: anything with [name] -> array.  Plain and slow: for tests.
    """
    out = {}
    for name, rule in rules(spec).items():
        a = np.zeros(rule.shape, WORDS[rule.dtype])
        for b in rule.blocks():
            plane = _plane(a, b)
            for t, tensor in enumerate(b.names):
                words, dtype = _tensor_plane(ckpt, tensor, b.flat)
                mine = np.flatnonzero(b.tid == t)
                flip = words.dtype.type(versions.word(dtype, version))
                plane[mine] = _convert(words[b.src[mine], b.col:b.col + b.width] ^ flip, dtype,
                                       rule.dtype)
        out[name] = a
    return out


def _wide(a):
    """The array as 64-bit words where its rows allow, for speed."""
    size = a.dtype.itemsize
    if a.strides[-1] == size and a.shape[-1] * size % 8 == 0:
        return a.view(np.uint64)
    return a


def _differs(have, want, flip):
    """Boolean array: where have != want ^ flip; None when nowhere."""
    h, w = _wide(have), _wide(want)
    if h.dtype != w.dtype:
        h, w = have, want
    size = have.dtype.itemsize
    wide = sum(flip << (8 * size * i) for i in range(h.dtype.itemsize // size))
    if not (np.bitwise_xor(h, w) != h.dtype.type(wide)).any():
        return None
    return (have ^ want) != have.dtype.type(flip)


class _Wrong:
    """Collects the wrong elements of one parameter."""

    def __init__(self, array):
        self.marks = np.empty(array.shape, np.bool_)
        self.clean = True

    def mark(self, block, rows, bad):
        if self.clean:
            self.marks[...] = False
            self.clean = False
        plane = _plane(self.marks, block)
        plane[rows] |= bad

    def result(self, name):
        if self.clean:
            return []
        where = np.flatnonzero(self.marks)
        index = tuple(int(i) for i in np.unravel_index(where[0], self.marks.shape))
        return [Mismatch(name, index, len(where), f"{name}{list(index)} is the first of "
                         f"{len(where)} wrong elements")]


def _check_piece(wrong, block, plane, ckpt, piece, spec):
    tensor, rows, src_rows = piece
    want_dtype, version = spec
    n = (rows.stop - rows.start + rows.step - 1) // rows.step
    step = max(1, CHUNK_BYTES // max(1, block.width * plane.dtype.itemsize))
    words = dtype = None
    if tensor is not None:
        words, dtype = _tensor_plane(ckpt, tensor, block.flat)
        words = words[src_rows, block.col:block.col + block.width]
    mine = plane[rows]
    for i in range(0, n, step):
        have = mine[i:i + step]
        if tensor is None:
            bad = have != 0
            bad = bad if bad.any() else None
        elif dtype == want_dtype:
            bad = _differs(have, words[i:i + step], versions.word(dtype, version))
        else:
            flip = words.dtype.type(versions.word(dtype, version))
            bad = _differs(have, _convert(words[i:i + step] ^ flip, dtype, want_dtype), 0)
        if bad is not None:
            at = rows.start + i * rows.step
            wrong.mark(block, slice(at, at + (len(have) - 1) * rows.step + 1, rows.step), bad)


def verify_params(params, ckpt, spec, version):
    """Compare a worker's parameters with the checkpoint at a version: list of Mismatch.

    params: dict name -> array, or (array, dtype).  ckpt: safetensors_io.Checkpoint, or a dict.
    """
    want, out = rules(spec), []
    for name in want.keys() - params.keys():
        out.append(Mismatch(name, None, 0, f"{name} is not registered"))
    for name, p in params.items():
        array, dtype = p if isinstance(p, tuple) else (p, None)
        rule = want.get(name)
        if rule is None:
            out.append(Mismatch(name, None, 0, f"{name} should not be there"))
        elif array.shape != rule.shape or dtype not in (None, rule.dtype):
            out.append(Mismatch(name, None, array.size, f"{name} is {dtype} {list(array.shape)},"
                                f" expected {rule.dtype} {list(rule.shape)}"))
        else:
            words = array.view(WORDS[rule.dtype])
            wrong = _Wrong(words)
            for block in rule.blocks():
                plane = _plane(words, block)
                for piece in pieces(block):
                    _check_piece(wrong, block, plane, ckpt, piece, (rule.dtype, version))
            out += wrong.result(name)
    return out


def count(spec):
    """(parameters, (tensor, rectangle) pairs, bytes) of a worker."""
    want = rules(spec)
    n = total = 0
    for rule in want.values():
        n += sum(1 for b in rule.blocks() for tensor, _, _ in pieces(b) if tensor)
        total += int(np.prod(rule.shape)) * np.dtype(WORDS[rule.dtype]).itemsize
    return len(want), n, total
