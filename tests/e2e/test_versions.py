# SPDX-License-Identifier: Apache-2.0
"""Programs of other protocol versions meet: neighbours work together, others are refused with a
sentence that says which side to upgrade, and nothing hangs."""
import re
import time

from cluster import SLOW, Cluster, run

NEXT, AFTER = "tools/agent-v2-3", "tools/agent-v3-4"  # this build speaks 1 to 2
BEFORE = {"operator": "tools/operator-v1-1", "agent": "tools/agent-v1-1", "worker": "tools/toy_worker-v1-1"}
OPERATOR_NEXT, WORKER_AFTER = "tools/operator-v2-3", "tools/toy_worker-v3-4"


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


if __name__ == "__main__":
    run(neighbours_work_together, the_version_before_works_in_each_place,
        agents_without_a_common_version_refuse_each_other,
        an_old_library_is_refused_by_a_new_agent,
        an_agent_that_the_operator_does_not_understand_ends)
