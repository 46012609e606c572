# SPDX-License-Identifier: Apache-2.0
"""The adapters of the Python package with parameters on a GPU: a trainer and an engine in this process, each with an agent
of its own, on the driver without devices (gpu.py)."""
import gpu

import numpy as np
import weightbridge
from cluster import Cluster, run
from gpu import Tensor

WAIT = 60.0
ROWS, COLUMNS = 96, 40
MANIFEST = [("q", (ROWS, COLUMNS), "BF16"), ("k", (ROWS, COLUMNS), "BF16")]


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
        gpu.together(lambda: self.sender.connect(WAIT, False), lambda: self.receiver.connect(WAIT, False))

    def move(self, version):
        def send():
            for name, param in self.apart.items():
                param.write(words(version, name))
            self.sender.send_weights(version).wait(WAIT)

        def take():
            update = self.receiver.update(WAIT)
            assert update and update.version == version, (update, self.receiver.last_abort)

        gpu.together(send, take)
        want = np.concatenate([words(version, n) >> 16 for n in ("k", "q")])
        assert (self.one["kq"].read() == want).all()

    def close(self):
        self.sender.close()
        self.receiver.close()


def versions_move_by_the_adapters():
    gpu.context()
    with Cluster() as c:
        p = Pair(c)
        for version in (1, 2, 3):
            p.move(version)
        p.close()


def versions_move_after_loaders_were_probed_on_the_gpu():
    gpu.context()
    with Cluster() as c:
        p = Pair(c, is_probed=True)
        for version in (1, 2):
            p.move(version)
        assert [m.digest for m in maps()] == [p.sender.source_map.digest, p.receiver.source_map.digest]
        p.close()


def versions_are_installed_that_were_staged():
    gpu.context()
    with Cluster() as c:
        p = Pair(c, staging={"trainer": "HostMemory", "rollout": "HostMemory"})
        for version in (1, 2):
            p.move(version)
        p.close()


def memory_goes_and_comes_back_by_the_adapters():
    gpu.context()
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
    gpu.context()
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
