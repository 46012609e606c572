# SPDX-License-Identifier: Apache-2.0
"""Parameters on GPUs through whole deployments of processes: on a driver without devices (tests/cuda/driver), or with
WB_GPU=device on the driver that is there, where all processes share its first GPU.

What an optimizer computes reaches the GPU late, and on the stand-in streams go in any order, and nothing may touch the
GPU's memory but the GPU: a byte that is read too early, or by the host, fails a test.
"""
import ctypes
import os
import sys

from cluster import BUILD, Cluster, limited, run
from test_transfer import move_three_versions, quit_all, send, sent, updated

DEVICE = os.environ.get("WB_GPU") == "device"
LATE = "order 7; late cuMemcpyDtoDAsync_v2 200000000; late cuLaunchKernel 1000000"


def workers(c, trainers=None, rollouts=None, transport="tcp", floats=(), rounds=(), **shape):
    """A trainer pod and an engine, of two workers each; the memory of each side."""
    c.operator(trainers=2, per_engine=2, engines=1)
    for pod in ("t0", "r0"):
        c.agent(pod, "--transport", transport)
    late = ("--late", "100") if trainers else ()
    t = [c.worker("t0", "trainer", i, 2, device=trainers, args=("--scribble", *late, *floats), **shape)
         for i in range(2)]
    r = [c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", device=rollouts, args=(*floats, *rounds), **shape)
         for i in range(2)]
    for w in t + r:
        w.expect("planned")
    return t, r


def versions_move(trainers, rollouts, **how):
    with Cluster() as c:
        t, r = workers(c, trainers, rollouts, **how)
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


def over_shared_memory():
    versions_move("legacy", "vmm", transport="shm")


def megabytes_over_many_chunks():
    versions_move("vmm", "legacy", rows=1024, cols=1024)


def rounded_where_they_are_assembled():
    versions_move("legacy", "vmm", floats=("--floats",), rounds=("--round",))


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


CLAIMS = (from_gpu_to_gpu, from_expandable_segments, from_gpu_to_host, from_host_to_gpu, over_shared_memory,
          megabytes_over_many_chunks, rounded_where_they_are_assembled, memory_goes_and_comes_back)
SCRIPTED = (a_launch_that_fails_once_is_made_up_for,)


def why_no_device():
    """What keeps this machine's driver from being used, "" when nothing does."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        return str(e)
    n = ctypes.c_int(0)
    rc = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n))
    return f"the driver says {rc}" if rc else "" if n.value else "the driver has no device"


def on_the_stand_in():
    os.environ["LD_LIBRARY_PATH"] = f"{BUILD}/fakecuda"
    os.environ["FAKECUDA_SCRIPT"] = LATE
    return run(*CLAIMS, *SCRIPTED)


def on_the_device():
    why = why_no_device()
    if why:
        print(f"WB_GPU=device, and there is no GPU: {why}")
        return 77
    for claim in SCRIPTED:
        print(f"skip {claim.__name__}: it scripts faults, which a driver has none of", flush=True)
    with limited(110):
        return run(*CLAIMS)


if __name__ == "__main__":
    sys.exit(on_the_device() if DEVICE else on_the_stand_in())
