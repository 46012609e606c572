# SPDX-License-Identifier: Apache-2.0
"""Parameters on GPUs over soft-RoCE, whose devices reach no memory of a GPU: all goes by slots of the host, and crosses a
wire.  The GPUs are those of the driver without devices (tests/cuda/driver)."""
import json
import os

from rdma import Wired
from test_transfer import quit_all, send, sent, updated
from wire import Crossing, run

# Small: an emulated processor plays each thread of a kernel.
SIZE = {"rows": 128, "cols": 256, "tensors": 2}
SLOTS = {"bufferSize": "64Mi"}  # all of each buffer is pinned, and the guest has 3 GiB
BYTES = 2 * 128 * 256 * 2  # of all parameters, two bytes each at least
os.environ["LD_LIBRARY_PATH"] = os.path.join(os.environ["WB_BUILD"], "fakecuda")  # where agents and workers find libcuda.so.1


def lanes(c, pod):
    return {w["lane"] for w in json.loads(c.get(c.agents[pod], "/status")[1])["workers"]}


def moves(trainers, rollouts, lane):
    with Wired() as c:
        c.operator(trainers=2, per_engine=2, engines=1, trainer=SLOTS, rollout=SLOTS)
        for pod in ("t0", "r0"):
            c.agent(pod, "--gpu-lane", lane)
        t = [c.worker("t0", "trainer", i, 2, device=trainers, args=("--scribble",), **SIZE) for i in range(2)]
        r = [c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", device=rollouts, **SIZE) for i in range(2)]
        for w in t + r:
            w.expect("planned")
        assert lanes(c, "t0") == lanes(c, "r0") == {lane}
        for version in (1, 2):
            with Crossing() as x:
                send(t, version)
                sent(t, version, "e0=Committed")
                updated(r, version)
            print(f"  {lane} lanes, version {version}: {x.bytes}", flush=True)
            assert x["va0"] + x["va1"] >= BYTES, x.bytes
        assert c.peers("r0") == {"t0": "verbs+soft"}, c.peers("r0")
        quit_all(t + r)


def versions_arrive_by_the_lanes_of_workers():
    moves("legacy", "vmm", "worker")


def versions_arrive_by_the_lanes_of_agents():
    moves("vmm", "ipc", "agent")


if __name__ == "__main__":
    run([versions_arrive_by_the_lanes_of_workers, versions_arrive_by_the_lanes_of_agents])
