# SPDX-License-Identifier: Apache-2.0
"""verl updates its rollouts by the backend that weightbridge.adapters.verl registers: verl's manager, workers, exporter and
worker groups over Ray, on a CPU."""
import os
import subprocess
import sys

from fx import VERSIONS, WAIT, Cluster, Deployment, base_env, make_model, python, run


def job(model, engines, per_engine, trainers=2):
    """verl_job.py compares what each replica is given with the checkpoint that the trainer's own exporter wrote."""
    python("verl")
    with Cluster() as c:
        folder = c.path("model")
        make_model(model, folder)
        os.mkdir(c.path("exports"))
        d = Deployment(c, trainers, per_engine)
        j = d.worker("verl", "verl", "train", script="verl_job.py", role="trainer", group="t", n=trainers, dtype="float32",
                     model=folder, exports=c.path("exports"), versions=VERSIONS, engines=engines, per_engine=per_engine,
                     rollout_socket=c.agents["serve"].socket, wait=WAIT)
        for version in range(1, VERSIONS + 1):
            j.expect(r"metrics \{'weightbridge/transfer_s': [\d.]+\}", 2 * WAIT)
            for _ in range(engines * per_engine):
                m = j.expect(rf"equal {version}: (\d+) tensors, (\d+) bytes, (\d+) as before, .*", WAIT)
                assert int(m[1]) > 10 and int(m[3]) == 0, m[0]
                print(f"{model}, {m[0]}", flush=True)
        shares = [int(n) for n in j.expect(r"shares \[(.*)\]", WAIT)[1].split(",")]
        whole = int(m[2])
        assert sum(shares) == whole and max(shares) < 0.7 * whole, (shares, whole)
        assert j.wait(WAIT) == 0


def a_replica_of_two_workers_is_given_each_version():
    job("qwen3-moe", 1, 2)


def two_replicas_are_given_each_version():
    job("llama-tied", 2, 1)


def what_does_not_fit_the_checkpoint_is_refused_by_name():
    env = {**base_env(), "WB_INSIDE": "1"}
    assert subprocess.run([python("verl"), os.path.abspath(__file__)], env=env, check=False).returncode == 0


def inside():
    """In the environment of verl, one process without agents."""
    import asyncio
    import json
    import struct
    import tempfile

    import verl_cpu  # noqa: F401  (first)
    import torch
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.utils.import_utils import import_external_libs
    from weightbridge.errors import WeightBridgeError

    def refused(part, call):
        try:
            call()
        except WeightBridgeError as e:
            assert part in str(e), e
            return
        raise AssertionError(f"not refused: {part}")

    import_external_libs("weightbridge.adapters.verl")
    shapes = {"a": (4, 6), "b": (2, 3), "c": (5,), "d": (40,)}
    head, at = {}, 0
    for name, shape in shapes.items():
        n = 2 * torch.Size(shape).numel()
        head[name], at = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}, at + n
    text = json.dumps(head).encode()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + bytes(at))

        def new(rank, n):
            e = CheckpointEngineRegistry.new("weightbridge", is_master=rank == 0, bucket_size=1, manifest=folder)
            cls = CheckpointEngineRegistry.get("weightbridge")
            told, rollout = cls.build_topology(n, 2, [*((r, "trainer") for r in range(n)), (0, "r_0"), (0, "r_1")])
            assert rollout == {"rank": [0, 0], "n": [2, 2], "engine": ["r-0", "r-1"]}, rollout
            e.init_process_group(**{k: v[rank] for k, v in told.items()})
            return e

        refused("is no folder", lambda: CheckpointEngineRegistry.new("weightbridge", bucket_size=1, manifest="no/such"))
        whole = {n: torch.randn(s) for n, s in shapes.items()}
        for n in (1, 2, 3):
            ranks, kept = [new(r, n) for r in range(n)], {}
            for e in ranks:
                e._keep(iter({**whole, "of nobody": torch.zeros(1)}.items()))
                assert not kept.keys() & e._kept.tensors.keys()
                kept.update(e._kept.tensors)
            assert kept.keys() == whole.keys(), (n, kept.keys())
            for name, t in whole.items():
                assert torch.equal(kept[name], t.to(torch.bfloat16)), name
            for bad, part in (({k: v for k, v in whole.items() if k != "b"}, "the trainer does not export b"),
                              ({**whole, "b": torch.zeros(3, 2)}, "tensor b is [3, 2], the checkpoint has [2, 3]")):
                for e in ranks:  # whoever keeps it: all ranks say the same, after the last tensor
                    left = iter(bad.items())
                    refused(part, lambda e=e, left=left: asyncio.run(e.send_weights(left, 1)))
                    assert next(left, None) is None, "a rank left the others in a collective call"
        late_send(new(0, 1), whole, refused)
        e = CheckpointEngineRegistry.new("weightbridge", bucket_size=1, manifest=folder, inside_vllm=True)
        for step, told in ((7, 7), (None, -1)):
            assert asyncio.run(listed(e.receive_weights(step))) == [("weightbridge.step", [told])]
    for step, come, at in ((6, (5, 6, 7), 6), (-1, (5, 6), 5)):  # who joins late is brought an older one first
        e = late(come)
        e._weightbridge_update(step)
        assert e.at == at and all(0 < t <= 600 for t in e.waits), (e.at, e.waits)
    print("ok inside")


def late_send(e, whole, refused):
    """A version that was given up at its timeout is read yet: nothing of the next gets into it."""
    import asyncio
    from types import SimpleNamespace

    import torch
    from weightbridge.errors import WeightBridgeTimeout

    def reads(_timeout):
        raise WeightBridgeTimeout("not released after 600 s")

    e._keep(iter(whole.items()))
    before = {n: t.clone() for n, t in e._kept.tensors.items()}
    e._adapter = SimpleNamespace(wait_released=reads)
    left = iter({n: t + 1 for n, t in whole.items()}.items())
    refused("still being sent", lambda: asyncio.run(e.send_weights(left, 2)))
    assert next(left, None) is None, "a rank left the others in a collective call"
    assert all(torch.equal(t, before[n]) for n, t in e._kept.tensors.items()), "a version that is being sent was changed"


async def listed(stream):
    return [(name, t.tolist()) async for name, t in stream]


def late(versions):
    """A worker of vLLM to which these versions come."""
    from types import SimpleNamespace

    from weightbridge.adapters import verl_vllm

    class Late(verl_vllm.Extension):
        def __init__(self):
            self.left, self.waits, self.at = iter(versions), [], None
            self.weight_transfer_engine = SimpleNamespace(receiver=True)
            self.model_runner = SimpleNamespace(vllm_config=SimpleNamespace(additional_config=None))

        def start_weight_update(self):
            pass

        finish_weight_update = start_weight_update

        def update_weights(self, said):
            self.waits.append(said["timeout"])
            self.at = next(self.left)

        def weightbridge_version(self):
            return self.at

    return Late()


if __name__ == "__main__":
    if os.environ.get("WB_INSIDE"):
        inside()
        sys.exit(0)
    tests = [what_does_not_fit_the_checkpoint_is_refused_by_name, a_replica_of_two_workers_is_given_each_version,
             two_replicas_are_given_each_version]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
