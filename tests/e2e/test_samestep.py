# SPDX-License-Identifier: Apache-2.0
"""All workers of an engine change version at the same poll, with real processes."""
from cluster import Cluster, run

VERSIONS = 50


def same_step(args, versions=VERSIONS):
    """One engine of 4 workers in 2 pods; where each of them stopped for each version."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=4, engines=1)
        for pod in ("t0", "r0", "r1"):
            c.agent(pod)
        size = {"rows": 64, "cols": 64, "tensors": 2}
        t = c.worker("t0", "trainer", **size)
        r = [c.worker(f"r{i // 2}", "rollout", i, 4, engine="e0", cut="cols", **size,
                      args=args(c, i)) for i in range(4)]
        for w in [t] + r:
            w.expect("planned")
        at = []
        for v in range(1, versions + 1):
            t.say(f"send {v}")
            t.expect(f"sent {v} .*e0=Committed")
            at.append([w.expect(rf"stopped {v} at (\d+)")[1] for w in r])
            for w in r:
                w.expect(f"update {v} ok")
        for v, polls in enumerate(at, 1):
            assert len(set(polls)) == 1, (v, polls)
        print(f"{versions} versions at polls {at[0][0]} .. {at[-1][0]}")


def without_a_barrier_and_with_delays():
    same_step(lambda c, i: ["--step-ms", "20"])


def in_a_collective_of_their_own():
    same_step(lambda c, i: ["--step-ms", "5", "--collective", c.path("steps")], 20)


def blocked_engines_are_woken():
    """update(timeout) instead of a loop that polls: nobody polls until fileno() says so."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=2, engines=1)
        c.agent("t0")
        c.agent("r0")
        t = c.worker("t0", "trainer")
        r = [c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", args=["--wait"])
             for i in (0, 1)]
        for w in [t] + r:
            w.expect("planned")
        for v in range(1, 11):
            t.say(f"send {v}")
            took = float(t.expect(rf"sent {v} seconds=(\S+) .*e0=Committed")[1])
            assert took < 0.9, took  # the calls time out after 1 s: that is not what woke them
            for w in r:
                w.expect(f"update {v} ok")


if __name__ == "__main__":
    run(without_a_barrier_and_with_delays, in_a_collective_of_their_own, blocked_engines_are_woken)
