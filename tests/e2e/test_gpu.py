# SPDX-License-Identifier: Apache-2.0
"""Parameters on GPUs through whole deployments of processes, on a driver without devices (tests/cuda/driver).

What an optimizer computes reaches the GPU late, streams go in any order, and nothing may touch the GPU's memory but the
GPU: a byte that is read too early, or by the host, fails a test.
"""
import os

from cluster import BUILD, Cluster, run
from test_transfer import move_three_versions, quit_all, send, sent, updated

LATE = "order 7; late cuMemcpyDtoDAsync_v2 200000000; late cuLaunchKernel 1000000"


def workers(c, trainers=None, rollouts=None):
    """A trainer pod and an engine, of two workers each; the memory of each side."""
    c.operator(trainers=2, per_engine=2, engines=1)
    c.agent("t0")
    c.agent("r0")
    t = [c.worker("t0", "trainer", i, 2, device=trainers, args=("--scribble",)) for i in range(2)]
    r = [c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", device=rollouts) for i in range(2)]
    for w in t + r:
        w.expect("planned")
    return t, r


def versions_move(trainers, rollouts):
    with Cluster() as c:
        t, r = workers(c, trainers, rollouts)
        move_three_versions(c, t, r)
        for w in t + r:
            w.drain()
        return t, r


def from_gpu_to_gpu():
    versions_move("legacy", "legacy")


def from_expandable_segments():
    versions_move("vmm", "vmm")


def from_gpu_to_host():
    versions_move("vmm", None)


def from_host_to_gpu():
    versions_move(None, "legacy")


def memory_goes_and_comes_back():
    with Cluster() as c:
        t, r = workers(c, "legacy", "vmm")
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r, 1)
        for w in r:
            w.say("sleep")
        for w in r:
            w.expect("asleep")
        for w in r:
            w.say("wake")
        for w in r:
            w.expect("awake")
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r, 2)
        quit_all(t + r)


def a_launch_that_fails_once_is_made_up_for():
    os.environ["FAKECUDA_SCRIPT"] = f"{LATE}; fail cuLaunchKernel 719 1"
    try:
        os.environ["FAKECUDA_SAY"] = "1"
        trainers, _ = versions_move("legacy", None)
    finally:
        os.environ["FAKECUDA_SCRIPT"] = LATE
        del os.environ["FAKECUDA_SAY"]
    for t in trainers:
        assert [x for x in t.seen if "fakecuda: cuLaunchKernel fails with 719" in x] != [], t.seen


if __name__ == "__main__":
    os.environ["LD_LIBRARY_PATH"] = f"{BUILD}/fakecuda"
    os.environ["FAKECUDA_SCRIPT"] = LATE
    raise SystemExit(run(from_gpu_to_gpu, from_expandable_segments, from_gpu_to_host, from_host_to_gpu,
                         memory_goes_and_comes_back, a_launch_that_fails_once_is_made_up_for))
