# SPDX-License-Identifier: Apache-2.0
"""A plan that cannot work between these agents is refused when it is made, by a sentence in the
status that names who and how much; nobody is Torn for it."""
import contextlib
import errno
import json
import os
import resource
import signal
import subprocess

from cluster import Cluster, run
from test_transfer import quit_all, send, sent, updated

OPEN_FILES = 270  # 256 are kept for what is no connection
WAITING = ("WaitingForSourceMaps", "WaitingForAgents", "TransferInProgress", "AgentLost", "PlanOutdated")


def planned(c):
    """The condition, once a plan was tried."""
    status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
    for cond in status["conditions"]:
        if (cond["type"], cond["status"]) == ("Planned", "False") and cond["reason"] not in WAITING:
            return cond
    return None


def pods(c, **args):
    """A trainer and two engines, each at an agent of its own.  `args`: by pod, how its agent is started."""
    for name in ("t0", "r0", "r1"):
        given = args.get(name, {})
        c.agent(name, *given.get("args", ()), prefix=given.get("prefix", ()))


def workers(c):
    return [c.worker("t0", "trainer")] + [c.worker(f"r{i}", "rollout", engine=f"e{i}") for i in range(2)]


def refused(c, reason, *sentences):
    """Until the plan is refused for a reason, with a sentence of one of the agents."""
    cond = c.until("the plan is refused", lambda: planned(c))
    assert (cond["status"], cond["reason"]) == ("False", reason), cond
    assert any(s in cond["message"] for s in sentences), cond
    print(cond["message"])


def soft_limits_of_open_files_are_raised():
    with Cluster() as c:
        was = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, was[1]))
        try:
            c.operator(engines=2)
            pods(c)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, was)
        for daemon in (c.op, *c.agents.values()):
            assert resource.prlimit(daemon.p.pid, resource.RLIMIT_NOFILE) == (was[1], was[1]), daemon.name
        for w in workers(c):
            w.expect("planned")


def too_few_open_files_refuse_the_plan():
    with Cluster() as c:
        c.operator(engines=2)
        pods(c, r0={"prefix": ("prlimit", f"--nofile={OPEN_FILES}")})
        workers(c)
        refused(c, "OpenFilesLimitTooSmall",
                "agent r0 cannot take the plan: the 3 agents of this plan, with the plan that will follow it "
                "and other objects here, take up to 276 open files, and the hard limit is 270: raise it")


def two_transports_refuse_the_plan():
    with Cluster() as c:
        c.operator(engines=2)
        pods(c, r1={"args": ("--transport", "shm")})
        workers(c)
        refused(c, "NoCommonTransport",
                "agent t0 moves weights over tcp and agent r1 over shm: start all agents of an object with "
                "the same --transport",
                "agent r0 moves weights over tcp and agent r1 over shm",
                "agent r1 moves weights over shm and agent t0 over tcp")


def with_buffers(mib):
    return {"trainer": {"bufferSize": f"{mib}Mi"}, "rollout": {"bufferSize": f"{mib}Mi"}}


def restart_workers(c, old, mib):
    """The object is changed, and workers end and come again: the agents are the same."""
    if all(w.p.poll() is None for w in old):
        quit_all(old)
    c.spec(2, 1, 1, **with_buffers(mib))
    c.op.p.send_signal(signal.SIGHUP)
    return all_at(c)


def all_at(c):
    return [c.worker("t0", "trainer", i, 2) for i in range(2)] + [c.worker("r0", "rollout", engine="e0")]


def slots_of(agent):
    """Its memfd of slots, opened here."""
    folder = f"/proc/{agent.p.pid}/fd"
    for fd in os.listdir(folder):
        if "memfd:weightbridge slots" in os.readlink(f"{folder}/{fd}"):
            return os.open(f"{folder}/{fd}", os.O_RDWR)
    raise AssertionError(f"{agent.name} has no slots")


def use_last_page(agent, mib):
    """As a transfer that fills all of its slots does."""
    fd = slots_of(agent)
    os.pwrite(fd, b"x", (mib << 20) - 1)
    os.close(fd)


def has_pages_beyond(agent, mib):
    fd = slots_of(agent)
    try:
        os.lseek(fd, mib << 20, os.SEEK_DATA)
        return True
    except OSError as e:
        assert e.errno == errno.ENXIO, e
        return False
    finally:
        os.close(fd)


def a_buffer_size_that_is_changed_is_followed():
    """Up and down; and the pages of slots that there are no more are given back."""
    def buffers():
        return {n: json.loads(c.get(a, "/status")[1])["bufferBytes"] >> 20 for n, a in c.agents.items()}

    with Cluster() as c:
        c.operator(2, 1, 1, **with_buffers(64))
        for name in ("t0", "r0"):
            c.agent(name)
        w, version = all_at(c), 0
        for mib in (64, 96, 64):
            w = restart_workers(c, w, mib) if version else w
            for x in w:
                x.expect("planned")
            assert buffers() == {"t0": 2 * mib, "r0": mib}, (mib, buffers())
            for name, slots in buffers().items():
                assert not has_pages_beyond(c.agents[name], slots), (name, slots)
                use_last_page(c.agents[name], slots)
            version += 1
            send(w[:2], version)
            sent(w[:2], version, "Committed")
            updated(w[2:], version)


def more_workers_have_more_buffers():
    with Cluster() as c:
        c.operator(2, 1, **with_buffers(64))
        for name in ("t0", "r0"):
            c.agent(name)
        w = all_at(c)
        for x in w:
            x.expect("planned")
        w.append(c.worker("r0", "rollout", engine="e1"))
        w[3].expect("planned")
        c.agents["r0"].expect(r"buffer set bytes=134217728", reject=None)
        send(w[:2], 1)
        sent(w[:2], 1, "Committed")
        updated(w[2:], 1)


@contextlib.contextmanager
def memory_limit(c, mib):
    """A command that runs an agent where a control group of version 2 sets a limit; None: it cannot be made
    to look so here."""
    root, path = c.path("cgroup"), None
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        path = next((line[4:].strip() for line in f if line.startswith("0::/")), None)
    if path is None or ".." in path:
        path = ""
    os.makedirs(os.path.join(root, path))
    with open(os.path.join(root, "memory.max"), "w", encoding="utf-8") as f:
        f.write(f"{mib << 20}\n")
    prefix = ("unshare", *(() if os.geteuid() == 0 else ("-r",)), "-m", "sh", "-c",
              f'mount --bind {root} /sys/fs/cgroup && exec "$@"', "sh")
    can = subprocess.run([*prefix, "cat", "/sys/fs/cgroup/memory.max"], capture_output=True, text=True, check=False)
    yield prefix if can.stdout.strip() == str(mib << 20) else None


def a_buffer_size_that_was_too_much_can_be_lowered():
    with Cluster() as c, memory_limit(c, 256) as prefix:
        if not prefix:
            print("skip a_buffer_size_that_was_too_much_can_be_lowered: no mount namespace of its own")
            return
        c.operator(2, 1, 1, **with_buffers(160))
        c.agent("t0", prefix=prefix)
        c.agent("r0")
        w = all_at(c)
        refused(c, "MemoryLimitTooSmall",
                "buffers take 335544320 bytes at agent t0, the memory limit is 268435456: raise it, or lower "
                "bufferSize of spec.trainer or spec.rollout")
        for x in w:
            assert x.wait() == 1, x.drain()
        w = restart_workers(c, w, 64)
        for x in w:
            x.expect("planned")
        send(w[:2], 1)
        sent(w[:2], 1, "Committed")
        updated(w[2:], 1)


if __name__ == "__main__":
    run(soft_limits_of_open_files_are_raised, too_few_open_files_refuse_the_plan, two_transports_refuse_the_plan,
        a_buffer_size_that_is_changed_is_followed, more_workers_have_more_buffers,
        a_buffer_size_that_was_too_much_can_be_lowered)
