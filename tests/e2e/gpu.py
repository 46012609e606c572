# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU for tests in Python, on the driver without devices (tests/cuda/driver): that one's memory ends a process
whose host touches it."""
import ctypes
import os
import sys
import threading

TOP = os.environ.get("WB_TOP", os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.setdefault("WB_BUILD", os.path.join(TOP, "build/release"))
sys.path[:0] = [os.path.join(TOP, "agent/python"), os.path.join(TOP, "tests")]

import numpy as np  # noqa: E402

BLOCK = 2 << 20

# Work of several streams is done in any order, and late.
os.environ.setdefault("FAKECUDA_SCRIPT", "order 7; late cuLaunchKernel 1000000; late cuMemcpyHtoDAsync_v2 1000000")
os.environ["LD_LIBRARY_PATH"] = os.path.join(BUILD, "fakecuda")  # of agents
# Loaded by its path first, it is what the library finds as libcuda.so.1.
cuda = ctypes.CDLL(os.path.join(BUILD, "fakecuda/libcuda.so.1"))


def must(result):
    assert result == 0, result


def allocate(n):
    at = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(n)))
    return at.value


class Arena:
    """An allocation of whole blocks of 2 MiB, as PyTorch's allocator has: it can be shared with other processes."""

    def __init__(self, n):
        self.left = (n + BLOCK - 1) // BLOCK * BLOCK
        self.at = allocate(self.left)

    def take(self, n):
        n, at = (n + 511) // 512 * 512, self.at
        assert n <= self.left
        self.at, self.left = at + n, self.left - n
        return at


class Tensor:
    """What the package asks of torch's tensors, for memory of the stand-in: an allocation of its own, or of `arena`."""

    class device:
        type = "cuda"

    def __init__(self, shape, dtype, arena=None):
        self.shape, self.dtype, self.words = shape, dtype, {"float32": np.uint32, "bfloat16": np.uint16}[dtype]
        self.bytes = int(np.prod(shape)) * self.element_size()
        self.address = arena.take(self.bytes) if arena else allocate(self.bytes)

    def data_ptr(self):
        return self.address

    def element_size(self):
        return np.dtype(self.words).itemsize

    def stride(self):
        steps = [1]
        for n in self.shape[:0:-1]:
            steps.append(steps[-1] * n)
        return tuple(reversed(steps))

    def detach(self):
        return self

    def write(self, words):
        self.source = words.astype(self.words)  # is read later
        must(cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address), self.source.ctypes.data_as(ctypes.c_void_p),
                                       ctypes.c_size_t(self.bytes), None))

    def read(self):
        out = np.empty(self.shape, self.words)
        must(cuda.cuMemcpyDtoHAsync_v2(out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address),
                                       ctypes.c_size_t(self.bytes), None))
        must(cuda.cuStreamSynchronize(None))
        return out

    def free(self):
        must(cuda.cuMemFree_v2(ctypes.c_uint64(self.address)))


def context():
    """Makes the device's context current in this thread."""
    it = ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(it), 0))
    must(cuda.cuCtxPushCurrent_v2(it))


def together(*calls):
    """Each in a thread with the device's context, the last one in this.  Raises what one raised."""
    failed = []

    def other(call):
        try:
            context()
            call()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=other, args=(call,)) for call in calls[:-1]]
    for t in threads:
        t.start()
    calls[-1]()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
