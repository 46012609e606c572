# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU: where they lie, what they can travel as; on a driver without devices (tests/cuda/driver)."""
import ctypes
import os
import sys
import unittest

TOP = os.environ.get("WB_TOP", os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.setdefault("WB_BUILD", os.path.join(TOP, "build/release"))
sys.path.insert(0, os.path.join(TOP, "agent/python"))

import numpy as np  # noqa: E402
from weightbridge import _lib, extract, memory  # noqa: E402
from weightbridge.arrays import describe  # noqa: E402
from weightbridge.errors import WeightBridgeError  # noqa: E402

# Loaded by its path first, it is what the library finds as libcuda.so.1.
cuda = ctypes.CDLL(os.path.join(BUILD, "fakecuda/libcuda.so.1"))
BLOCK = 2 << 20


def must(result):
    assert result == 0, result


class Allocation(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int * 2),
                ("unused", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


class Access(ctypes.Structure):
    _fields_ = [("where", ctypes.c_int * 2), ("flags", ctypes.c_int)]


def malloc(size):
    at = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)))
    return at.value


def segment(size, handles):
    what = Allocation(1, handles, (1, 0))
    handle, at, size, none = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(size), ctypes.c_uint64(0)
    must(cuda.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(what), none))
    must(cuda.cuMemAddressReserve(ctypes.byref(at), size, ctypes.c_size_t(0), none, none))
    must(cuda.cuMemMap(at, size, ctypes.c_size_t(0), handle, none))
    must(cuda.cuMemSetAccess(at, size, ctypes.byref(Access((1, 0), 3)), ctypes.c_size_t(1)))
    return at.value


class Array:
    """What CuPy, Numba and torch show of an array on a GPU."""

    def __init__(self, address, shape, typestr="<f4", strides=None):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": typestr,
                                         "strides": strides, "version": 3}


class Tensor:
    """A parameter of torch's that is trained, on a GPU."""

    class device:
        type = "cuda"

    shape = (4, 2)
    data_ptr = staticmethod(lambda: 4096)
    stride = staticmethod(lambda: (2, 1))
    element_size = staticmethod(lambda: 2)

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("it requires grad")


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = ctypes.c_void_p()
        must(cuda.cuInit(0))
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        must(cuda.cuCtxPushCurrent_v2(context))

    def test_a_span_is_from_the_lowest_byte_to_the_highest(self):
        for array, span in ((Array(4096, (3, 5)), (4096, 60)), (Array(4096, (3, 5), "<u2", (100, 2)), (4096, 210)),
                            (Array(4096, (3, 5), "<u2", (-100, 2)), (3896, 210)), (Array(4096, (0, 5)), (4096, 0)),
                            (Array(4096, ()), (4096, 4)), (Tensor(), (4096, 16))):
            self.assertEqual(memory.span(array), span)
            self.assertTrue(memory.is_device(array))

    def test_the_driver_says_how_memory_was_allocated(self):
        for address, size, kind, word in ((malloc(BLOCK), BLOCK, "cuda-ipc", ""), (segment(BLOCK, 1), BLOCK, "cuda-vmm", ""),
                                          (segment(BLOCK, 0), BLOCK, "worker", "expandable_segments:True"),
                                          (malloc(64), 64, "worker", "expandable_segments:True")):
            is_ = memory.device_memory(Array(address, (size // 4,)))
            self.assertEqual((is_.kind, is_.device), (kind, "GPU-66616b65-6375-6461-0000-000000000000"))
            self.assertIn(word, is_.why)
            self.assertEqual(bool(is_.why), kind == "worker")

    def test_what_lies_elsewhere_is_told(self):
        for array, word in ((np.zeros(4), "not on a GPU"), (Array(4096, (4,)), "no memory of a GPU"),
                            (Array(malloc(BLOCK), (BLOCK,)), "beyond")):
            with self.assertRaisesRegex(WeightBridgeError, word):
                memory.device_memory(array)

    def test_objects_on_a_gpu_are_what_touches(self):
        host = np.zeros(4096, np.uint8)
        spans = [("a", 8192, 100, True), ("b", 8292, 50, True), ("h", *memory.span(host)), ("c", 9000, 8, True),
                 ("d", 8200, 10, True)]
        mems, places, _ = memory.register(spans)
        self.assertEqual([m for m in mems if m[0] == _lib.MEM_DEVICE],
                         [(_lib.MEM_DEVICE, -1, 8192, 150), (_lib.MEM_DEVICE, -1, 9000, 8)])
        for (_, address, size, *_), (mem, offset) in zip(spans, places):
            self.assertEqual(mems[mem][2] + offset, address)
            self.assertLessEqual(offset + size, mems[mem][3])

    def test_one_is_described_as_the_driver_s_memory(self):
        p = describe("w", Array(4096, (3, 5), "<u2", (100, 2)))
        self.assertEqual((p.data, p.dtype, tuple(p.shape[:2]), tuple(p.stride[:2])), (4096, b"BF16", (3, 5), (50, 1)))

    def test_one_on_another_kind_of_device_is_refused_with_a_sentence(self):
        class Elsewhere(Tensor):
            class device:
                type = "xpu"
                __str__ = staticmethod(lambda: "xpu:0")
        with self.assertRaisesRegex(WeightBridgeError, "parameter w: it is on .*CUDA devices can be probed"):
            describe("w", Elsewhere())

    def test_a_map_made_on_the_host_fits_an_array_on_a_gpu_that_is_laid_out_alike(self):
        def load_weights(weights):
            for name, tensor in weights:
                host[name][:, :2] = tensor
                host[name][:, 2:] = 1  # a constant

        host = {"w": np.zeros((3, 5), np.float32)}
        m = extract(load_weights, [("w", (3, 2), "F32")], host, progress=False)
        m.check("w", Array(4096, (3, 5)))
        for array, word in ((Array(4096, (5, 3)), "shape"), (Array(4096, (3, 5), "<i4"), "F32"),
                            (Array(4096, (3, 5), "<f4", (4, 12)), "strides")):
            with self.assertRaisesRegex(WeightBridgeError, word):
                m.check("w", array)


if __name__ == "__main__":
    unittest.main()
