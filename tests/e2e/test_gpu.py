# SPDX-License-Identifier: Apache-2.0
"""Parameters on GPUs through whole deployments of processes: on a driver without devices (tests/cuda/driver), or with
WB_GPU=device on the driver that is there, where all processes share its first GPU.

What an optimizer computes reaches the GPU late, and on the stand-in streams go in any order, and nothing may touch the
GPU's memory but the GPU: a byte that is read too early, or by the host, fails a test.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

from cluster import BUILD, SANITIZED, Cluster, limited, run
from test_transfer import move_three_versions, quit_all, send, sent, updated

DEVICE = os.environ.get("WB_GPU") == "device"
MANY = {"rows": 512, "cols": 512} if SANITIZED else {"rows": 1024, "cols": 1024}  # chunks
LATE = "order 7; late cuMemcpyDtoDAsync_v2 200000000; late cuLaunchKernel 1000000"


def rollout(c, i, memory, **how):
    return c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", device=memory, **how)


def workers(c, trainers=None, rollouts=None, transport="tcp", floats=(), rounds=(), lane="worker", operator=None,
            env=None, agent=(), **shape):
    """A trainer pod and an engine, of two workers each; the memory of each side; whose lane is asked for."""
    c.operator(trainers=2, per_engine=2, engines=1, **(operator or {}))
    for pod in ("t0", "r0"):
        c.agent(pod, "--transport", transport, "--gpu-lane", lane, *agent, env=env)
    late = ("--late", "100") if trainers else ()
    t = [c.worker("t0", "trainer", i, 2, device=trainers, args=("--scribble", *late, *floats), **shape)
         for i in range(2)]
    r = [rollout(c, i, rollouts, args=(*floats, *rounds), **shape) for i in range(2)]
    for w in t + r:
        w.expect("planned")
    return t, r


def status(c, pod):
    return json.loads(c.get(c.agents[pod], "/status")[1])


def lanes(c, pod):
    """Who packs and assembles for each worker of a pod, and why not the agent, as its agent says."""
    return [(w["lane"], w["laneReason"]) for w in status(c, pod)["workers"]]


def all_are(c, pod, lane, why=""):
    got = lanes(c, pod)
    assert len(got) == 2 and all(is_ == lane and why in reason and bool(why) == bool(reason)
                                 for is_, reason in got), got


def described(c):
    return subprocess.run([f"{BUILD}/bin/wbctl", "describe", "toy", "--operator", f"{c.host}:{c.op.http}"],
                          check=True, capture_output=True, text=True, timeout=60).stdout


def versions_move(trainers, rollouts, lane="worker", **how):
    with Cluster() as c:
        t, r = workers(c, trainers, rollouts, lane=lane, **how)
        for pod, memory in (("t0", trainers), ("r0", rollouts)):
            all_are(c, pod, "worker" if memory and lane == "worker" else "agent")
        move_three_versions(c, t, r)
        for p in (*t, *r, *c.agents.values()):
            p.drain()
        return t, r, c.agents


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
    versions_move("vmm", "legacy", **MANY)


def rounded_where_they_are_assembled():
    versions_move("legacy", "vmm", floats=("--floats",), rounds=("--round",))


def imported(c, pod):
    """Whether the agent of a pod has memory of a GPU mapped; on a device the driver does not tell."""
    with open(f"/proc/{c.agents[pod].p.pid}/maps", encoding="utf-8") as f:
        return "fakecuda-" in f.read()


def memory_goes_and_comes_back(trainers="legacy", rollouts="vmm", lane="worker", **how):
    with Cluster() as c:
        t, r = workers(c, trainers, rollouts, lane=lane, **how)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r, 1)
        assert DEVICE or imported(c, "r0") == (lane == "agent")
        for w in r:
            w.say("sleep")
        for w in r:
            w.expect("asleep")
        all_are(c, "r0", "none")
        assert DEVICE or not imported(c, "r0")
        for w in r:
            w.say("wake")
        for w in r:
            w.expect("awake")
        all_are(c, "r0", lane)
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r, 2)
        quit_all(t + r)


def by_agents(trainers, rollouts, **how):
    return versions_move(trainers, rollouts, lane="agent", **how)


def from_gpu_to_gpu_by_agents():
    by_agents("ipc", "ipc")


def from_expandable_segments_by_agents():
    by_agents("vmm", "vmm")


def from_gpu_to_host_by_agents():
    by_agents("vmm", None)


def from_host_to_gpu_by_agents():
    by_agents(None, "ipc")


def over_shared_memory_by_agents():
    by_agents("ipc", "vmm", transport="shm")


def megabytes_over_many_chunks_by_agents():
    by_agents("vmm", "ipc", **MANY)


def rounded_where_they_are_assembled_by_agents():
    by_agents("ipc", "vmm", floats=("--floats",), rounds=("--round",))


def memory_goes_and_comes_back_by_agents():
    memory_goes_and_comes_back("vmm", "ipc", "agent")
    memory_goes_and_comes_back("ipc", "vmm", "agent")


def trainers_that_are_staged_by_agents():
    by_agents("ipc", "vmm", operator={"staging": {"trainer": "HostMemory"}})


TRAINER, ROLLOUT = {"trainer": "HostMemory"}, {"rollout": "HostMemory"}


def trainers_that_are_staged():
    versions_move("legacy", "vmm", operator={"staging": TRAINER})


def engines_that_install_what_was_staged():
    versions_move("vmm", "legacy", operator={"staging": ROLLOUT}, **MANY)


def both_sides_staged():
    versions_move("legacy", "vmm", operator={"staging": {**TRAINER, **ROLLOUT}}, floats=("--floats",),
                  rounds=("--round",))


def both_sides_staged_by_agents():
    by_agents("vmm", "ipc", operator={"staging": {**TRAINER, **ROLLOUT}})


def engines_that_commit_together():
    versions_move("legacy", "vmm", operator={"staging": ROLLOUT, "commitPolicy": "AllEngines"})


def staged_memory_goes_and_comes_back():
    memory_goes_and_comes_back(operator={"staging": ROLLOUT})


def by_verbs(trainers, rollouts, **how):
    """RDMA whose devices reach no memory of GPUs: all of it goes by slots of the host."""
    with tempfile.TemporaryDirectory() as world:
        versions_move(trainers, rollouts, transport="verbs", operator={"transport": {"protocols": ["Verbs"]}},
                      env={"LD_LIBRARY_PATH": ":".join((f"{BUILD}/fake", os.environ.get("LD_LIBRARY_PATH", ""))),
                           "FAKEVERBS_WORLD": f"{world}/world"}, **MANY, **how)


def over_verbs():
    by_verbs("legacy", "vmm")


def over_verbs_by_agents():
    by_verbs("vmm", "ipc", lane="agent")


def in_one_pod(lane="worker", **operator):
    """Trainers and engine beside each other: one agent, one GPU."""
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2, engines=1, **operator)
        c.agent("pod", "--gpu-lane", lane)
        t = [c.worker("pod", "trainer", i, 2, device="ipc", args=("--scribble", "--late", "100")) for i in range(2)]
        r = [c.worker("pod", "rollout", i, 2, engine="e0", cut="cols", device="vmm") for i in range(2)]
        for w in t + r:
            w.expect("planned")
        assert [is_ for is_, _ in lanes(c, "pod")] == [lane] * 4, lanes(c, "pod")
        move_three_versions(c, t, r)


def colocated():
    in_one_pod()


def colocated_and_staged():
    in_one_pod(staging=ROLLOUT)


def colocated_by_agents():
    in_one_pod("agent")


def what_cannot_travel_stays_with_its_worker():
    with Cluster() as c:
        t, r = workers(c, "legacy", "vmm", lane="agent")
        all_are(c, "t0", "worker", "memory object 0: memory of the GPU that only the worker can use: an allocation "
                "that is no multiple of 2 MiB")
        all_are(c, "r0", "agent")
        said = described(c)
        assert re.search(r"t0 .* worker: t0/worker \d \(rank \d\): memory object 0: .*2 MiB", said), said
        assert re.search(r"r0 .* agent$", said, re.MULTILINE), said
        move_three_versions(c, t, r)


def an_agent_that_sees_no_gpu_leaves_the_lane_to_its_worker():
    with Cluster() as c:
        t, r = workers(c, "ipc", "vmm", lane="agent", env={"CUDA_VISIBLE_DEVICES": ""})
        for pod in ("t0", "r0"):
            all_are(c, pod, "worker", "GPU")
        move_three_versions(c, t, r)


def workers_that_are_killed_and_come_again():
    with Cluster() as c:
        t, r = workers(c, "vmm", "ipc", lane="agent")
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r, 1)
        for w in r:
            w.kill()
        c.until("the agent has let go", lambda: not lanes(c, "r0"))
        assert DEVICE or not imported(c, "r0")
        r = [rollout(c, i, "ipc") for i in range(2)]
        for w in r:
            w.expect("planned")
        all_are(c, "r0", "agent")
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r, 2)
        quit_all(t + r)


def a_worker_that_is_killed_while_its_memory_is_read_or_written():
    for side in ("trainer", "rollout"):
        with Cluster() as c:
            t, r = workers(c, "ipc", "vmm", lane="agent", agent=("--rail-rate", "4M"), rows=1024, cols=1024)
            send(t, 1)
            c.until("chunks come", lambda: any(w["progress"]["inBytes"] for w in status(c, "r0")["workers"]))
            pod, killed = ("t0", t) if side == "trainer" else ("r0", r)
            for w in killed:
                w.kill()
            c.until("the agent has let go", lambda: not lanes(c, pod))
            assert DEVICE or not imported(c, pod)
            if side == "trainer":
                continue
            for w in t:
                w.expect("Torn.* exited", reject=None)
            r = [rollout(c, i, "vmm", rows=1024, cols=1024) for i in range(2)]
            for w in r:
                w.expect("planned")
            send(t, 2)
            sent(t, 2, "Committed", reject=None)
            updated(r, 2)


def an_agent_that_restarts_imports_again():
    with Cluster() as c:
        t, r = workers(c, "vmm", "ipc", lane="agent")
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r, 1)
        c.agents["r0"].kill()
        c.agent("r0", "--gpu-lane", "agent").expect("plan active", reject=None)
        all_are(c, "r0", "agent")
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r, 2)
        quit_all(t + r)


def a_launch_that_fails_once_is_made_up_for():
    os.environ["FAKECUDA_SCRIPT"] = f"{LATE}; fail cuLaunchKernel 719 1"
    try:
        os.environ["FAKECUDA_SAY"] = "1"
        trainers, _, _ = versions_move("legacy", None)
        _, _, agents = by_agents("ipc", None)
    finally:
        os.environ["FAKECUDA_SCRIPT"] = LATE
        del os.environ["FAKECUDA_SAY"]
    for p in trainers + [agents["t0"]]:
        assert [x for x in p.seen if "fakecuda: cuLaunchKernel fails with 719" in x] != [], p.seen


def an_install_that_fails_is_repaired():
    """The first launch of each rollout worker is that of its install."""
    os.environ["FAKECUDA_SCRIPT"] = f"{LATE}; fail cuLaunchKernel 719 1"
    try:
        with Cluster() as c:
            t, r = workers(c, None, "vmm", operator={"staging": ROLLOUT})
            send(t, 1)
            for w in t:
                w.expect("error .* 1 of 1 Torn: .*did not install: Input/output error", reject=None)
            send(t, 2)
            sent(t, 2, "Committed", reject=None)
            updated(r, 2)
            quit_all(t + r)
    finally:
        os.environ["FAKECUDA_SCRIPT"] = LATE


CLAIMS = (from_gpu_to_gpu, from_expandable_segments, from_gpu_to_host, from_host_to_gpu, over_shared_memory,
          megabytes_over_many_chunks, rounded_where_they_are_assembled, memory_goes_and_comes_back,
          from_gpu_to_gpu_by_agents, from_expandable_segments_by_agents, from_gpu_to_host_by_agents,
          from_host_to_gpu_by_agents, over_shared_memory_by_agents, megabytes_over_many_chunks_by_agents,
          rounded_where_they_are_assembled_by_agents, memory_goes_and_comes_back_by_agents,
          trainers_that_are_staged, trainers_that_are_staged_by_agents, engines_that_install_what_was_staged,
          both_sides_staged, both_sides_staged_by_agents, engines_that_commit_together,
          staged_memory_goes_and_comes_back, over_verbs, over_verbs_by_agents, colocated, colocated_and_staged,
          colocated_by_agents, what_cannot_travel_stays_with_its_worker,
          an_agent_that_sees_no_gpu_leaves_the_lane_to_its_worker, workers_that_are_killed_and_come_again,
          a_worker_that_is_killed_while_its_memory_is_read_or_written,
          an_agent_that_restarts_imports_again)
SCRIPTED = (a_launch_that_fails_once_is_made_up_for, an_install_that_fails_is_repaired)


def why_no_device():
    """What keeps this machine's driver from being used, "" when nothing does."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        return str(e)
    n = ctypes.c_int(0)
    rc = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n))
    return f"the driver says {rc}" if rc else "" if n.value else "the driver has no device"


def chosen(claims):
    """Those that the command line names, or all."""
    return [c for c in claims if not sys.argv[1:] or c.__name__ in sys.argv[1:]]


def on_the_stand_in():
    os.environ["LD_LIBRARY_PATH"] = f"{BUILD}/fakecuda"
    os.environ["FAKECUDA_SCRIPT"] = LATE
    return run(*chosen(CLAIMS + SCRIPTED))


def on_the_device():
    why = why_no_device()
    if why:
        print(f"WB_GPU=device, and there is no GPU: {why}")
        return 77
    for claim in SCRIPTED:
        print(f"skip {claim.__name__}: it scripts faults, which a driver has none of", flush=True)
    with limited(280):
        return run(*chosen(CLAIMS))


if __name__ == "__main__":
    sys.exit(on_the_device() if DEVICE else on_the_stand_in())
