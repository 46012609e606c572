# SPDX-License-Identifier: Apache-2.0
"""Programs of other protocol versions meet: neighbours work together, others are refused with a
sentence that says which side to upgrade, and nothing hangs."""
import json
import re
import time

from cluster import SLOW, Cluster, run

NEXT, AFTER = "tools/agent-v2-3", "tools/agent-v3-4"  # this build speaks 1 to 2
BEFORE = {"operator": "tools/operator-v1-1", "agent": "tools/agent-v1-1", "worker": "tools/toy_worker-v1-1"}
OPERATOR_NEXT, WORKER_AFTER = "tools/operator-v2-3", "tools/toy_worker-v3-4"
WORKER_OTHER = "tools/toy_worker-abi0"  # the same versions, and another layout of what is shared


def neighbours_work_together():
    """An upgrade under way: the operator and one pod are a version ahead."""
    with Cluster() as c:
        c.operator(program=OPERATOR_NEXT)
        c.agent("t")
        c.agent("r", program=NEXT)
        t, r = c.worker("t", "trainer"), c.worker("r", "rollout", engine="e0")
        for w in (t, r):
            w.expect("planned")
        for v in (1, 2):
            t.say(f"send {v}")
            t.expect(f"sent {v} .*e0=Committed")
            r.expect(f"update {v} ok")


def the_version_before_works_in_each_place():
    """Operator, the trainer's pod, an engine's pod or only its library are one version behind; versions move, and
    what was said while the other side was away is said again in its words."""
    for old in ("operator", "trainer", "engine", "library"):
        with Cluster() as c:
            c.operator(engines=2, **({"program": BEFORE["operator"]} if old == "operator" else {}))
            agent = lambda name, is_old: c.agent(name, **({"program": BEFORE["agent"]} if is_old else {}))
            worker = lambda *a, is_old=False, **kw: c.worker(
                *a, **kw, **({"program": BEFORE["worker"]} if is_old else {}))
            agent("t", old == "trainer")
            agent("r0", old == "engine")
            agent("r1", False)
            t = worker("t", "trainer", is_old=old == "trainer")
            rs = [worker("r0", "rollout", engine="e0", is_old=old in ("engine", "library")),
                  worker("r1", "rollout", engine="e1")]
            for w in (t, *rs):
                w.expect("planned")
            for v in (1, 2, 3):
                t.say(f"send {v}")
                t.expect(f"sent {v} .*e0=Committed.*e1=Committed")
                for r in rs:
                    r.expect(f"update {v} ok")


def agents_without_a_common_version_refuse_each_other():
    with Cluster() as c:
        c.operator(program=OPERATOR_NEXT, transferDeadlineSeconds=3)  # understands them both
        old, new = c.agent("t"), c.agent("r", program=AFTER)
        t = c.worker("t", "trainer")
        r = c.worker("r", "rollout", engine="e0", program=WORKER_AFTER)
        for w in (t, r):
            w.expect("planned")
        t0 = time.monotonic()
        t.say("send 1")
        print(t.expect("error .*|sent 1 .*", reject=None).string, f"{time.monotonic() - t0:.1f} s")
        assert time.monotonic() - t0 < 15 * SLOW
        # Whoever dials is told; both log it, and that a few times, not for ever.
        sentence = ("agent (r speaks protocol versions 3 to 4, this program 1 to 2: upgrade this "
                    "program|t speaks protocol versions 1 to 2, this program 3 to 4: upgrade agent t)")
        for a in (old, new):
            c.until(f"{a.name} says so", lambda a=a: a.drain() and False or
                    any(re.search(sentence, x) for x in a.seen))
        time.sleep(1)  # nobody announces that nothing more comes
        for a in (old, new):
            a.drain()
            assert sum("speaks protocol" in x for x in a.seen) < 20, len(a.seen)
        for p in (old, new, c.op, r):
            assert p.p.poll() is None, p.name


def an_old_library_is_refused_by_a_new_agent():
    with Cluster() as c:
        c.operator(program=OPERATOR_NEXT)
        new = c.agent("r", program=AFTER)
        r = c.worker("r", "rollout", engine="e0")
        r.expect("error .*protocol.*upgrade", reject=None)
        new.expect("refused.*client library speaks protocol versions 1 to 2, this program 3 to 4: "
                   "upgrade the client library", reject=None)


def an_agent_that_the_operator_does_not_understand_ends():
    with Cluster() as c:
        c.operator()
        a = c.agent("a", wait=False, program=AFTER)
        t0 = time.monotonic()
        a.expect("refused by the operator.*agent a speaks protocol versions 3 to 4.*1 to 2: upgrade",
                 reject=None)
        assert a.wait() == 1 and time.monotonic() - t0 < 10 * SLOW
        c.op.expect("agent refused agent=a .*protocol versions 3 to 4.*upgrade", reject=None)


def members(c):
    """The condition MembersConnected."""
    o = json.loads(c.get(c.op, "/objects")[1])["items"][0]
    return next((x for x in o["status"].get("conditions", []) if x["type"] == "MembersConnected"), {})


def a_library_of_another_build_is_refused_and_is_the_reason():
    """It says itself why, once; the operator says so too, and plans nothing for it."""
    with Cluster() as c:
        c.operator()
        c.agent("t"), c.agent("r")
        t = c.worker("t", "trainer")
        for _ in range(3):  # as a container that is started again
            old = c.worker("r", "rollout", engine="e0", program=WORKER_OTHER)
            old.expect(r"error .*libweightbridge is build 0[\d.]+\+[\w.]+, agent r is 0[\d.]+\+\w{8}.*take both from one "
                       "release", reject=None)
            assert old.wait() == 1
        c.until("the reason is told", lambda: members(c).get("reason") == "LibraryVersionMismatch")
        assert "a worker of agent r was refused: the worker's libweightbridge is build" in members(c)["message"]
        c.op.drain()
        assert not any("PlanActivated" in x for x in c.op.seen)
        r = c.worker("r", "rollout", engine="e0")  # of the right release
        for w in (t, r):
            w.expect("planned")
        assert members(c)["reason"] == "AllAgentsConnected", members(c)
        t.say("send 1")
        t.expect("sent 1 .*e0=Committed")
        old = c.worker("r", "rollout", engine="e0", program=WORKER_OTHER)  # and again an old one, beside it
        old.expect("error .*take both from one release", reject=None)
        t.say("send 2")
        t.expect("sent 2 .*e0=Committed")
        c.op.drain()
        assert sum("PlanActivated" in x for x in c.op.seen) == 1, "it was planned again"


if __name__ == "__main__":
    run(neighbours_work_together, the_version_before_works_in_each_place,
        agents_without_a_common_version_refuse_each_other,
        an_old_library_is_refused_by_a_new_agent,
        a_library_of_another_build_is_refused_and_is_the_reason,
        an_agent_that_the_operator_does_not_understand_ends)
