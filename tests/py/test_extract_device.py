# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract with parameters on a GPU: on a driver without devices (tests/cuda/driver), which ends a program
that touches a device's memory from the host."""
import ctypes
import os
import subprocess
import sys
import unittest

TOP = os.environ.get("WB_TOP", os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.setdefault("WB_BUILD", os.path.join(TOP, "build/release"))
sys.path.insert(0, os.path.join(TOP, "agent/python"))

import numpy as np  # noqa: E402
import weightbridge as wb  # noqa: E402
from weightbridge.errors import WeightBridgeError  # noqa: E402

# Loaded by its path first, it is what the library finds as libcuda.so.1.
cuda = ctypes.CDLL(os.path.join(BUILD, "fakecuda/libcuda.so.1"))


def must(result):
    assert result == 0, result


class Array:
    """What CuPy, Numba and torch show of an array on a GPU; `host` is what was last copied to it."""

    def __init__(self, host):
        self.host, at = host, ctypes.c_uint64()
        must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(host.nbytes)))
        self.address = at.value
        self.__cuda_array_interface__ = {"data": (self.address, False), "shape": host.shape, "version": 3,
                                         "typestr": host.dtype.str, "strides": host.strides}
        self.push()

    def _copy(self, function, *args):
        must(function(*args, ctypes.c_size_t(self.host.nbytes), None))
        must(cuda.cuStreamSynchronize(None))

    def push(self):
        self._copy(cuda.cuMemcpyHtoDAsync_v2, ctypes.c_uint64(self.address), self.host.ctypes.data_as(ctypes.c_void_p))

    def pull(self):
        now = np.empty_like(self.host)
        self._copy(cuda.cuMemcpyDtoHAsync_v2, now.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address))
        return now


class Worker:
    """Fused qkv, a column slice cast to fp32, a padded embedding, one bias nobody writes; those of `on_gpu` there."""

    manifest = [("q", (32, 24), "BF16"), ("k", (8, 24), "BF16"), ("v", (8, 24), "BF16"), ("o", (24, 32), "BF16"),
                ("embed", (50, 24), "BF16"), ("norm", (24,), "F32")]

    def __init__(self, on_gpu=()):
        r = np.random.default_rng(3)

        def make(*shape, dtype=np.uint16):
            return r.integers(0, 1 << 15, shape).astype(dtype)
        self.host = {"qkv": make(48, 24), "o": make(24, 16, dtype=np.float32), "embed": make(64, 24),
                     "norm": make(24, dtype=np.float32), "bias": make(24)}
        self.before = {n: a.tobytes() for n, a in self.host.items()}
        self.gpu = {n: Array(a) for n, a in self.host.items() if n in on_gpu}
        # What is not declared is BF16 where NumPy says uint16, on a GPU as well.
        self.params = {n: self.gpu.get(n, a) for n, a in self.host.items()}
        self.odd = False

    def load_weights(self, weights):
        # As an engine does: on the device, what it does not write stays as it is.
        h = {n: self.gpu[n].pull() if n in self.gpu else a for n, a in self.host.items()}
        for name, t in weights:
            if name in "qkv":
                at = {"q": 0, "k": 32, "v": 40}[name]
                h["qkv"][at:at + len(t)] = t
            elif name == "o":
                h["o"][:] = (t[:, 16:].astype(np.uint32) << 16).view(np.float32)
            elif name == "embed":
                h["embed"][:50] = t
                h["embed"][50:] = 0
            elif name == "norm":
                h["norm"][:] = t + 1 if self.odd else t
        for name, array in self.gpu.items():
            array.host = h[name]
            array.push()

    def now(self):
        return {n: (self.gpu[n].pull() if n in self.gpu else a).tobytes() for n, a in self.host.items()}


ALL = ("qkv", "o", "embed", "norm", "bias")


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = ctypes.c_void_p()
        must(cuda.cuInit(0))
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        must(cuda.cuCtxPushCurrent_v2(context))

    def test_a_worker_comes_out_and_is_as_before_wherever_it_lies(self):
        w = Worker()
        want = wb.extract(w.load_weights, w.manifest, w.params)
        for on_gpu in (ALL, ALL[:2], ("embed",), ("bias",)):
            w = Worker(on_gpu)
            m = wb.extract(w.load_weights, w.manifest, w.params)
            self.assertEqual(m.digest, want.digest, on_gpu)
            self.assertEqual(w.now(), w.before, on_gpu)

    def test_without_a_snapshot_the_loader_s_own_is_there_again(self):
        w, again = Worker(ALL), []
        m = wb.extract(w.load_weights, w.manifest, w.params, reload=lambda: again.append(1))
        self.assertEqual((again, w.now()["bias"]), ([1], w.before["bias"]))
        self.assertEqual(m.param("embed")["constants"], 1)

    def test_what_is_no_copy_is_named(self):
        w = Worker(ALL)
        w.odd = True
        with self.assertRaisesRegex(wb.NotCopyError, "parameter norm: elements 0..23 .24 elements.: arithmetic"):
            wb.extract(w.load_weights, w.manifest, w.params)
        self.assertEqual(w.now(), w.before)

    def test_a_map_of_the_cache_is_checked_on_the_gpu(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            digests = set()
            for _ in range(2):
                w, calls = Worker(ALL), []
                m = wb.extract(lambda t: (calls.append(1), w.load_weights(t)), w.manifest, w.params, cache_dir=folder)  # noqa: B023
                digests.add(m.digest)
                self.assertEqual(w.now(), w.before)
            self.assertEqual((len(calls), len(digests)), (1, 1))

    def test_constants_are_written_where_parameters_lie(self):
        w = Worker()
        m = wb.extract(w.load_weights, w.manifest, w.params)
        for on_gpu in ((), ALL, ("embed",), ("o",)):
            w = Worker(on_gpu)
            m.write_constants(w.params)
            now, embed = w.now(), np.frombuffer(w.before["embed"], np.uint16).reshape(64, 24).copy()
            embed[50:] = 0
            self.assertEqual(now.pop("embed"), embed.tobytes(), on_gpu)
            self.assertEqual(now, {n: b for n, b in w.before.items() if n != "embed"})

    def test_apply_writes_the_host_alone(self):
        w = Worker()
        m = wb.extract(w.load_weights, w.manifest, w.params)
        values = {n: np.zeros(s, np.uint16 if d == "BF16" else np.float32) for n, s, d in w.manifest}
        with self.assertRaisesRegex(WeightBridgeError, "parameter embed lies on a GPU"):
            m.apply(values, into=Worker(("embed",)).params)

    def test_a_loader_that_moves_a_parameter_is_refused_and_all_is_put_back(self):
        for there, to in ((True, True), (True, False), (False, True)):
            w = Worker(ALL if there else ALL[1:])

            def load(tensors, w=w, to=to):
                w.load_weights(tensors)
                if isinstance(w.params["qkv"], np.ndarray) == to:
                    now = w.gpu["qkv"].pull() if "qkv" in w.gpu else w.host["qkv"]
                    w.params["qkv"] = Array(now.copy()) if to else now.copy()
                elif not hasattr(load, "moved"):
                    load.moved = w.params["qkv"] = Array(w.host["qkv"].copy()) if to else w.host["qkv"].copy()
            with self.assertRaisesRegex(wb.NotCopyError, "qkv: all elements: its storage was moved"):
                wb.extract(load, w.manifest, w.params)
            self.assertEqual(w.now(), w.before)
            is_ = w.params["qkv"]
            self.assertEqual((is_.pull() if to else is_).tobytes(), w.before["qkv"])

    def test_a_loader_that_first_puts_something_on_a_gpu_is_refused(self):
        w = Worker()

        def load(tensors):
            w.load_weights(tensors)
            w.params["norm"] = Array(w.host["norm"])
        with self.assertRaisesRegex(WeightBridgeError, "parameter norm: load_weights puts it on a GPU"):
            wb.extract(load, w.manifest, w.params)
        self.assertEqual(w.now(), w.before)

    def test_a_mask_and_what_is_read_only_are_refused(self):
        w = Worker(ALL)
        w.params["norm"].__cuda_array_interface__["data"] = (w.params["norm"].address, True)
        with self.assertRaisesRegex(WeightBridgeError, "parameter norm is read-only"):
            wb.extract(w.load_weights, w.manifest, w.params)
        w.params["norm"].__cuda_array_interface__["mask"] = w.params["norm"]
        with self.assertRaisesRegex(WeightBridgeError, "norm: it has a mask"):
            wb.extract(w.load_weights, w.manifest, w.params)

    def test_no_memory_of_a_gpu_is_said(self):
        w = Worker(ALL)
        face = dict(w.params["norm"].__cuda_array_interface__, shape=(1 << 30,), strides=None)
        w.params["norm"].__cuda_array_interface__ = face
        with self.assertRaisesRegex(WeightBridgeError, "parameter norm: .*beyond what was allocated"):
            wb.extract(w.load_weights, w.manifest, w.params)
        w.params["qkv"].__cuda_array_interface__["data"] = (4096, False)
        with self.assertRaisesRegex(WeightBridgeError, "parameter qkv: .*no memory of a GPU"):
            wb.extract(w.load_weights, w.manifest, w.params)

    def test_without_a_driver_it_is_said_and_nothing_is_touched(self):
        code = ("import numpy as np, weightbridge as wb\n"
                "class A:\n __cuda_array_interface__ = {'data': (4096, False), 'shape': (4,), 'typestr': '<f4'}\n"
                "try:\n wb.extract(lambda t: list(t), [('w', (4,), 'F32')], {'w': A()})\n"
                "except wb.WeightBridgeError as e:\n print(e)\n")
        env = dict(os.environ, PYTHONPATH=os.path.join(TOP, "agent/python"), LD_LIBRARY_PATH="")
        r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        if "no memory of a GPU" in r.stdout:
            self.skipTest("this machine has a driver")
        self.assertIn("parameter w: no GPU: libcuda.so.1", r.stdout)


class Lost(unittest.TestCase):
    """In processes of their own: a device that is lost stays so."""

    def test_a_device_that_is_lost_is_named_with_what_became_of_the_parameters(self):
        for times, part in ((3, "could not be put back"), (40, "could not be put back")):
            code = (f"import sys\nsys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
                    "from test_extract_device import *\nDevice.setUpClass()\n"
                    "w = Worker(ALL[1:])\ncalls = []\n"
                    "def load(t):\n    w.load_weights(t)\n    calls.append(1)\n"
                    f"    if len(calls) == 2: must(cuda.fakecuda_script(b'lose 719 {times}'))\n"
                    "try:\n    wb.extract(load, w.manifest, w.params)\n"
                    "except wb.WeightBridgeError as e:\n    print(e, e.code)\n"
                    "print(w.host['qkv'].tobytes() == w.before['qkv'])\n")
            r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            self.assertIn(part, r.stdout, r)
            self.assertIn("Stand-in 0: ", r.stdout)
            self.assertTrue(r.stdout.endswith("True\n"), r)


if __name__ == "__main__":
    unittest.main()
