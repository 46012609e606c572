# SPDX-License-Identifier: Apache-2.0
"""The synchronisation modes through whole deployments of processes."""
import sys

from cluster import Cluster, run
from test_transfer import deploy, quit_all, updated


def a_hold_keeps_parameters_until_release():
    with Cluster() as c:
        t, r = deploy(c, engines=2)
        rollouts = sum(r.values(), [])
        for v in (1, 2, 3):
            for w in t:
                w.say(f"hold {v}")
            for w in t:
                w.expect(f"released {v}")
            if v == 2:  # the outcome does not wait for the end of the hold
                updated(rollouts, v)
            for w in t:
                w.say("release")
            for w in t:
                w.expect("let go")
                w.expect(f"sent {v} .*e0=Committed e1=Committed")
            if v != 2:
                updated(rollouts, v)
        quit_all(t + rollouts)


def snapshot_spec(**more):
    return {"staging": {"trainer": "HostMemory"}, **more}


def trainers_go_on_after_their_snapshot(**kw):
    """--scribble: parameters are overwritten as soon as they are released."""
    with Cluster() as c:
        t, r = deploy(c, engines=2, operator=snapshot_spec(), worker={"args": ["--scribble"]}, **kw)
        rollouts = sum(r.values(), [])
        for v in (1, 2, 3):
            for w in t:
                w.say(f"send {v}")
            for w in t:
                w.expect(f"released {v}")
                w.expect(f"sent {v} .*e0=Committed e1=Committed")
            updated(rollouts, v)
        quit_all(t + rollouts)


def snapshots_of_private_heap():
    trainers_go_on_after_their_snapshot(heap=True)


def snapshots_over_shared_memory():
    trainers_go_on_after_their_snapshot(args=["--transport", "shm"])


def snapshots_beyond_the_limit_are_refused_with_figures():
    with Cluster() as c:
        c.operator(**snapshot_spec())
        a = c.agent("pod", "--staging-limit", "256Ki")
        c.worker("pod", "trainer")
        c.worker("pod", "rollout", engine="e0")
        a.expect(r"plan refused.*staging takes 786432 bytes at agent pod .*--staging-limit is 262144",
                 reject=None)


MODES = {
    "none": {},
    "trainer": {"staging": {"trainer": "HostMemory"}},
    "rollout": {"staging": {"rollout": "HostMemory"}},
    "both": {"staging": {"trainer": "HostMemory", "rollout": "HostMemory"}},
    "joint": {"staging": {"rollout": "HostMemory"}, "commitPolicy": "AllEngines"},
}


def staged_versions_arrive(mode, engines=2, **kw):
    with Cluster() as c:
        args = ["--scribble"] if mode in ("trainer", "both") else []
        t, r = deploy(c, engines=engines, operator=MODES[mode], worker={"args": args}, **kw)
        rollouts = sum(r.values(), [])
        for v in (1, 2, 3):
            for w in t:
                w.say(f"send {v}")
            for w in t:
                w.expect(f"sent {v} .*e0=Committed e1=Committed")
            updated(rollouts, v)
        quit_all(t + rollouts)
        for a in c.agents.values():
            assert a.stop() == 0, a.drain()


def engines_install_what_was_staged():
    staged_versions_arrive("rollout")


def both_sides_are_staged():
    staged_versions_arrive("both", pods=2)


def staging_of_private_heap():
    staged_versions_arrive("both", heap=True)


def staging_over_shared_memory():
    staged_versions_arrive("rollout", args=["--transport", "shm"])


def engines_commit_together():
    staged_versions_arrive("joint")


def blocked(w, version):
    m = w.expect(rf"blocked {version} ms=([\d.]+)(?: first=(-?[\d.]+))?")
    return float(m[1]), float(m[2] or 0)


def who_is_blocked_and_when_the_first_byte_changes():
    """786 KB at 1 MB/s: what waits for the wire takes 0.7 s and more, what does not a moment."""
    for mode in ("none", "trainer", "rollout", "both"):
        with Cluster() as c:
            c.operator(**MODES[mode])
            for pod in ("t0", "r0"):
                c.agent(pod, "--rail-rate", "1M")
            t = c.worker("t0", "trainer", args=["--watch"])
            r = c.worker("r0", "rollout", engine="e0", args=["--watch"])
            t.expect("planned")
            r.expect("planned")
            for v in (1, 2):
                t.say(f"send {v}")
                (trainer, _), (rollout, first) = blocked(t, v), blocked(r, v)
                r.expect(f"update {v} ok")
                t.expect(f"sent {v} .*Committed")
                print(f"  {mode}: trainer blocked {trainer:.0f} ms, rollout {rollout:.0f} ms, "
                      f"first byte {first:.0f} ms after before_update_hook")
                assert (trainer > 500) == (mode in ("none", "rollout")), (mode, trainer)
                assert (rollout > 500) == (mode in ("none", "trainer")), (mode, rollout)
                assert first >= 0, (mode, first, rollout)  # who watches may be late on a busy machine
            quit_all([t, r])


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [a_hold_keeps_parameters_until_release, trainers_go_on_after_their_snapshot,
             snapshots_of_private_heap, snapshots_over_shared_memory,
             snapshots_beyond_the_limit_are_refused_with_figures,
             engines_install_what_was_staged, both_sides_are_staged, staging_of_private_heap,
             staging_over_shared_memory, engines_commit_together,
             who_is_blocked_and_when_the_first_byte_changes]
    run(*[t for t in tests if not names or t.__name__ in names])
