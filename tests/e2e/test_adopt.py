# SPDX-License-Identifier: Apache-2.0
"""The operator dies after ACTIVATE has reached some agents: transfers go on, and the next operator
keeps the plan (same epoch, nothing registered again)."""
import collections
import json
import re

from cluster import Cluster, run
from test_modes import MODES
from test_operator_faults import numbers
from test_transfer import engine, send, sent, updated


def count(c, what):
    for a in c.agents.values():
        a.drain()
    return {name: sum(what in x for x in a.seen) for name, a in c.agents.items()}


def active(c):
    """Number of the plan that each agent runs."""
    return {name: json.loads(c.get(a, "/status")[1])["operator"]["number"]
            for name, a in c.agents.items()}


def uploads(c):
    out = collections.Counter()
    for a in c.agents.values():
        a.drain()
        out.update(re.search(r"digest=(\S+)", x)[1] for x in a.seen if " upload " in x)
    return out


def new_operator(c, **kw):
    """It keeps what is there: the plans and workers of agents are as before."""
    plans, attached, ups = numbers(c), count(c, "worker attached"), uploads(c)
    c.operator(trainers=2, per_engine=1, port=c.op.port, **kw)
    c.op.expect("PlanAdopted", reject="PlanActivated", timeout=12)  # the heartbeat's 15 s are not awaited
    c.until("all are told", lambda: set(active(c).values()) == {int(plans["t0"][-1][1])})
    fresh = uploads(c) - ups
    assert all(n == 1 for n in fresh.values()), ("a map goes to the new operator once", fresh)
    return plans, attached


def two_versions(t, rollouts, first):
    for v in (first, first + 1):
        send(t, v)
        sent(t, v, "Committed")
        updated(rollouts, v)


def join(c, *names):
    """Start agents; the operator tells them in the order in which they connected."""
    for name in names:
        c.agent(name).expect("operator connected", reject=None)


def killed_at_the_joiners_activate(n, order, coordinator_has_it, mode="none"):
    """The plan for two engines replaces the one for one; `n` of three agents hear ACTIVATE (where
    r0 does, it begins to feed the joiner, which has heard by that)."""
    def test():
        with Cluster() as c:
            c.operator(trainers=2, per_engine=1, env={"WB_FAULT": f"kill=activate:chunk={3 + n}"},
                       **MODES[mode])
            join(c, *order[:2])
            t = [c.worker("t0", "trainer", i, 2) for i in (0, 1)]
            e0 = engine(c, 0, 1)
            for w in t + e0:
                w.expect("planned")
            two_versions(t, e0, 1)
            c.agent(order[2])
            e1 = engine(c, 1, 1)
            assert c.op.wait() == -9
            c.agents["t0"].expect("operator not reached", reject=None)
            assert active(c)["t0"] == (2 if coordinator_has_it else 1)
            # PREPARE implies ACTIVATE; and who was not told goes by the plan before.
            send(t, 3)
            said = sent(t, 3, "e0=Committed")[0]
            updated(e0, 3)
            assert ("e1=Committed" in said) == coordinator_has_it, said
            if coordinator_has_it:
                updated(e1, 3)
            plans, attached = new_operator(c, **MODES[mode])
            if not coordinator_has_it:
                updated(e1, 3)  # fed
            two_versions(t, e0 + e1, 4)
            assert numbers(c) == plans, "the plan was made again"
            assert count(c, "worker attached") == attached, "workers were registered again"
    test.__name__ = f"killed_at_the_joiners_activate: {n} of 3, coordinator {coordinator_has_it}, {mode}"
    return test


def killed_at_the_first_activate():
    """No plan was active before: one of two agents has heard of the first one."""
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1, env={"WB_FAULT": "kill=activate:chunk=2"})
        join(c, "t0", "r0")
        t = [c.worker("t0", "trainer", i, 2) for i in (0, 1)]
        e0 = engine(c, 0, 1)
        assert c.op.wait() == -9
        for w in t:
            w.expect("planned")
        two_versions(t, e0, 1)
        plans, attached = new_operator(c)
        two_versions(t, e0, 3)
        assert numbers(c) == plans and count(c, "worker attached") == attached


def killed_before_any_activate():
    """All are READY and none has heard: the next operator says it."""
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1, env={"WB_FAULT": "kill=activate:chunk=1"})
        for name in ("t0", "r0"):
            c.agent(name)
        t = [c.worker("t0", "trainer", i, 2) for i in (0, 1)]
        e0 = engine(c, 0, 1)
        assert c.op.wait() == -9
        plans, attached = new_operator(c)
        for w in t + e0:
            w.expect("planned")
        two_versions(t, e0, 1)
        assert numbers(c) == plans and count(c, "worker attached") == attached


def restarted_in_steady_state_three_times():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1)
        for name in ("t0", "r0"):
            c.agent(name)
        t = [c.worker("t0", "trainer", i, 2) for i in (0, 1)]
        e0 = engine(c, 0, 1)
        for w in t + e0:
            w.expect("planned")
        for k in range(3):
            two_versions(t, e0, 1 + 2 * k)
            if k == 1:
                c.op.kill()
            else:
                assert c.op.stop() == 0
            plans, attached = numbers(c), count(c, "worker attached")
            c.operator(trainers=2, per_engine=1, port=c.op.port)
            c.op.expect("PlanAdopted", reject="PlanActivated")
            two_versions(t, e0, 11 + 2 * k)
            assert numbers(c) == plans and count(c, "worker attached") == attached


if __name__ == "__main__":
    import sys
    tests = [killed_at_the_joiners_activate(*x, mode) for mode in ("none", "both", "joint") for x in (
                 (1, ("t0", "r0", "r1"), True), (2, ("t0", "r0", "r1"), True),
                 (1, ("r0", "t0", "r1"), False))]
    tests += [killed_at_the_first_activate, killed_before_any_activate,
              restarted_in_steady_state_three_times]
    run(*[t for t in tests if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])],
        together=3)
