# SPDX-License-Identifier: Apache-2.0
"""Memory for a worker's parameters, with canaries round each and pads in pitched rows.

One arena is one memory object: a sealed memfd, or private heap.  describe() says where everything
lies, so that another process can look at it (Image), through /proc/PID/fd or a dump.
"""
import fcntl
import json
import mmap
import os

import numpy as np

ALIGN = 256
GUARD = 64          # bytes before and after each parameter, at least
PAGE = 4096


def pattern(offsets):
    """The canary byte of each offset in an arena."""
    x = np.asarray(offsets, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (x >> np.uint64(56)).astype(np.uint8) | np.uint8(1)


def layout(shape, dtype, at, pitch):
    """Place a parameter after `at`: (offset, strides, end, guards).

    guards: list of (offset, rows, step, bytes) that hold canaries.  pitch: bytes that each row
    of a parameter of two or more dimensions is longer than its elements.
    """
    row = shape[-1] * dtype.itemsize
    step = row + (pitch if len(shape) > 1 else 0)
    n_rows = 1
    for d in shape[:-1]:
        n_rows *= d
    strides = [dtype.itemsize, step]
    for d in reversed(shape[1:-1]):
        strides.append(strides[-1] * d)
    begin = -(-(at + GUARD) // ALIGN) * ALIGN
    end = begin + n_rows * step
    guards = [(at, 1, 0, begin - at), (end, 1, 0, GUARD)]
    if step != row and n_rows:
        guards.append((begin + row, n_rows, step, step - row))
    return begin, tuple(reversed(strides[:len(shape)])), end + GUARD, guards


class Plan:
    """An alloc that only adds up how many bytes an arena needs."""

    def __init__(self, pitch=0):
        self.pitch, self.end = pitch, 0

    def __call__(self, shape, dtype):
        self.end = layout(shape, dtype, self.end, self.pitch)[2]
        return np.empty(shape, dtype)


class Arena:
    """An alloc for engines: callable (shape, NumPy dtype) -> zeroed array.

    kind: "memfd" (fd is open, sealed against shrinking) or "heap".  buffer: the whole arena as
    bytes.
    """

    def __init__(self, nbytes, kind="memfd", pitch=0):
        self.nbytes = max(PAGE, -(-nbytes // PAGE) * PAGE)
        self.kind, self.pitch, self.end, self.guards, self.fd = kind, pitch, 0, [], -1
        if kind == "memfd":
            self.fd = os.memfd_create("wb-params", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, self.nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            self._map = mmap.mmap(self.fd, self.nbytes)
        elif kind == "heap":
            self._map = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            raise ValueError(f"an arena is memfd or heap, not {kind}")
        self.buffer = np.frombuffer(self._map, np.uint8)

    def __call__(self, shape, dtype):
        begin, strides, end, guards = layout(shape, dtype, self.end, self.pitch)
        if end > self.nbytes:
            raise MemoryError(f"an arena of {self.nbytes} bytes is full")
        for offset, rows, step, n in guards:
            where = _places(offset, rows, step, n)
            self.buffer[where] = pattern(where)
        self.end = end
        self.guards += guards
        return np.ndarray(shape, dtype, self._map, begin, strides)

    def check(self):
        """Byte offsets of canaries that were overwritten."""
        return check_guards(self.buffer, self.guards)

    def describe(self, params, path=None):
        """Where the parameters lie: a dict that Image takes, in JSON.

        path: a file with the arena's bytes; the memfd of this process when absent.
        """
        if path is None:
            if self.fd < 0:
                raise ValueError("heap memory needs a dump: see dump()")
            path = f"/proc/{os.getpid()}/fd/{self.fd}"
        base = self.buffer.__array_interface__["data"][0]
        return {"path": path, "guards": self.guards, "params": {
            name: {"dtype": dtype, "words": a.dtype.str, "shape": a.shape, "strides": a.strides,
                   "offset": a.__array_interface__["data"][0] - base if a.size else 0}
            for name, (a, dtype) in params.items()}}

    def dump(self, path):
        """Write the arena's bytes to a file."""
        self.buffer.tofile(path)


def for_spec(spec, kind="memfd", pitch=0):
    """(engine, arena): a worker whose parameters fill an arena of just their size."""
    from . import make
    plan = Plan(pitch)
    make(spec, plan)
    arena = Arena(plan.end, kind, pitch)
    return make(spec, arena), arena


def _places(offset, rows, step, n):
    return (offset + np.arange(rows)[:, None] * step + np.arange(n)).reshape(-1)


def check_guards(buffer, guards):
    """Byte offsets whose canary is gone."""
    bad = []
    for offset, rows, step, n in guards:
        where = _places(offset, rows, step, n)
        bad.append(where[buffer[where] != pattern(where)])
    return [int(x) for x in np.concatenate(bad)] if bad else []


class Image:
    """Another process's arena, read only.  params: dict name -> (array, dtype), as engines'."""

    def __init__(self, description):
        if isinstance(description, str):
            with open(description, encoding="utf-8") as f:
                description = json.load(f)
        with open(description["path"], "rb") as f:
            self._map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.guards = description["guards"]
        self.params = {
            name: (np.ndarray(tuple(p["shape"]), np.dtype(p["words"]), self._map, p["offset"],
                              tuple(p["strides"])), p["dtype"])
            for name, p in description["params"].items()}

    def check(self):
        """Byte offsets of canaries that were overwritten."""
        return check_guards(np.frombuffer(self._map, np.uint8), self.guards)
