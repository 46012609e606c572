# SPDX-License-Identifier: Apache-2.0
"""The adapters of the Python package with parameters on a GPU: a trainer and an engine in this process, each with an agent
of its own, on the driver without devices (tests/cuda/driver).  That one's memory ends a process whose host touches it."""
import ctypes
import os
import sys
import threading

TOP = os.environ.get("WB_TOP", os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.setdefault("WB_BUILD", os.path.join(TOP, "build/release"))
sys.path.insert(0, os.path.join(TOP, "agent/python"))

import numpy as np  # noqa: E402
import weightbridge  # noqa: E402
from cluster import Cluster, run  # noqa: E402

WAIT = 60.0
ROWS, COLUMNS = 96, 40
MANIFEST = [("q", (ROWS, COLUMNS), "BF16"), ("k", (ROWS, COLUMNS), "BF16")]

# Loaded by its path first, it is what the library finds as libcuda.so.1.
cuda = ctypes.CDLL(os.path.join(BUILD, "fakecuda/libcuda.so.1"))


def must(result):
    assert result == 0, result


class Tensor:
    """What the package asks of torch's tensors, for memory of the stand-in."""

    class device:
        type = "cuda"

    def __init__(self, shape, dtype):
        self.shape, self.dtype, self._words = shape, dtype, {"float32": np.uint32, "bfloat16": np.uint16}[dtype]
        self.bytes = int(np.prod(shape)) * self.element_size()
        at = ctypes.c_uint64()
        must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(self.bytes)))
        self.address = at.value

    def data_ptr(self):
        return self.address

    def element_size(self):
        return np.dtype(self._words).itemsize

    def stride(self):
        return self.shape[1], 1

    def detach(self):
        return self

    def write(self, words):
        must(cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address), words.astype(self._words).ctypes.data_as(
            ctypes.c_void_p), ctypes.c_size_t(self.bytes), None))

    def read(self):
        out = np.empty(self.shape, self._words)
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


def maps():
    """The trainer has the two apart and in FP32, the engine both in one, in the other order."""
    apart = {n: np.zeros((ROWS, COLUMNS), np.float32) for n in ("q", "k")}
    one = {"kq": np.zeros((2 * ROWS, COLUMNS), np.uint16)}

    def load_apart(weights):
        for name, tensor in weights:
            apart[name][...] = (tensor.astype(np.uint32) << 16).view(np.float32)

    def load_one(weights):
        for name, tensor in weights:
            at = {"k": 0, "q": ROWS}[name]
            one["kq"][at:at + ROWS] = tensor

    return (weightbridge.extract(load_apart, MANIFEST, apart, progress=False),
            weightbridge.extract(load_one, MANIFEST, one, progress=False))


def words(version, name):
    """FP32 that BF16 holds exactly."""
    x = np.arange(ROWS * COLUMNS, dtype=np.uint32).reshape(ROWS, COLUMNS)
    return (0x3f80 + (x * 7 + version * 31 + len(name) * ord(name[0])) % 0x80) << 16


def loaders(apart, one):
    """The same, for tensors on the GPU."""
    def load_apart(weights):
        for name, tensor in weights:
            apart[name].write(tensor.astype(np.uint32) << 16)

    def load_one(weights):
        host = one["kq"].read()
        for name, tensor in weights:
            at = {"k": 0, "q": ROWS}[name]
            host[at:at + ROWS] = tensor
        one["kq"].write(host)

    return ({"load_weights": load_apart, "manifest": MANIFEST}, {"load_weights": load_one, "manifest": MANIFEST})


class Pair:
    """A trainer's and an engine's worker; `is_probed`: where their parameters lie, else by maps from the host."""

    def __init__(self, c, is_probed=False, **operator):
        c.operator(trainers=1, per_engine=1, **operator)
        for pod in ("train", "serve"):
            c.agent(pod)
        self.apart = {n: Tensor((ROWS, COLUMNS), "float32") for n in ("q", "k")}
        self.one = {"kq": Tensor((2 * ROWS, COLUMNS), "bfloat16")}
        of_trainer, of_engine = (loaders(self.apart, self.one) if is_probed else
                                 ({"load_weights": None, "source_map": m} for m in maps()))
        self.sender = weightbridge.SenderAdapter(**of_trainer, params=self.apart, socket=c.agents["train"].socket)
        self.receiver = weightbridge.ReceiverAdapter(**of_engine, params=lambda: self.one, engine="e0",
                                                     socket=c.agents["serve"].socket)
        self.together(lambda: self.sender.connect(WAIT, False), lambda: self.receiver.connect(WAIT, False))

    @staticmethod
    def together(trainer, engine):
        failed = []

        def other():
            try:
                context()
                trainer()
            except BaseException as e:
                failed.append(e)

        thread = threading.Thread(target=other)
        thread.start()
        engine()
        thread.join()
        if failed:
            raise failed[0]

    def move(self, version):
        def send():
            for name, param in self.apart.items():
                param.write(words(version, name))
            self.sender.send_weights(version).wait(WAIT)

        def take():
            update = self.receiver.update(WAIT)
            assert update and update.version == version, (update, self.receiver.last_abort)

        self.together(send, take)
        want = np.concatenate([words(version, n) >> 16 for n in ("k", "q")])
        assert (self.one["kq"].read() == want).all()

    def close(self):
        self.sender.close()
        self.receiver.close()


def versions_move_by_the_adapters():
    context()
    with Cluster() as c:
        p = Pair(c)
        for version in (1, 2, 3):
            p.move(version)
        p.close()


def versions_move_after_loaders_were_probed_on_the_gpu():
    context()
    with Cluster() as c:
        p = Pair(c, is_probed=True)
        for version in (1, 2):
            p.move(version)
        assert [m.digest for m in maps()] == [p.sender.source_map.digest, p.receiver.source_map.digest]
        p.close()


def versions_are_installed_that_were_staged():
    context()
    with Cluster() as c:
        p = Pair(c, staging={"trainer": "HostMemory", "rollout": "HostMemory"})
        for version in (1, 2):
            p.move(version)
        p.close()


def memory_goes_and_comes_back_by_the_adapters():
    context()
    with Cluster() as c:
        p = Pair(c)
        p.move(1)
        plan, old = p.receiver.plan, p.one["kq"]
        p.receiver.release_memory(WAIT)
        p.one = {"kq": Tensor(old.shape, old.dtype)}
        old.free()
        p.receiver.acquire_memory(timeout=WAIT)
        p.move(2)
        assert p.receiver.plan == plan
        p.close()


def a_parameter_that_has_moved_is_noticed():
    context()
    with Cluster() as c:
        p = Pair(c)
        p.move(1)
        p.apart["q"] = Tensor((ROWS, COLUMNS), "float32")
        try:
            p.sender.send_weights(2)
        except weightbridge.ParametersMoved as e:
            assert "q" in e.names, e
        else:
            raise AssertionError("sent")
        p.sender.rebind()
        p.move(2)
        p.close()


if __name__ == "__main__":
    run(versions_move_by_the_adapters, versions_move_after_loaders_were_probed_on_the_gpu,
        versions_are_installed_that_were_staged, memory_goes_and_comes_back_by_the_adapters, a_parameter_that_has_moved_is_noticed)
