# SPDX-License-Identifier: Apache-2.0
"""send_weights while one is in flight: from other threads, from workers that are a version ahead."""
import json
import re
import signal

from cluster import Cluster, Failed, run
from test_membership import counter
from test_transfer import deploy, send, sent, updated

SLOWLY = ("--rail-rate", "2M")  # a megabyte takes half a second


def a_second_send_of_the_same_worker_is_refused_and_the_first_arrives():
    with Cluster() as c:
        t, r = deploy(c, trainers=1, per_engine=1, args=SLOWLY, rows=512, cols=512, tensors=2)
        t[0].say("second 1")
        said = [t[0].expect(r"^refused (-\d+) (.*)", reject="^sent|^error") for _ in range(2)]
        assert any("another thread is inside send_weights of this worker" in m[2]
                   for m in said), [m[0] for m in said]
        assert any("(version 1) is still in flight after 0.3 s" in m[2] for m in said), \
            [m[0] for m in said]
        t[0].expect("^sent 1 .*e0=Committed")
        updated(r["e0"], 1)
        send(t, 2)
        sent(t, 2, "e0=Committed")
        updated(r["e0"], 2)


def workers_that_disagree_about_the_version_are_both_named():
    for pods, names in ((1, r"1 by t0/worker \d \(rank \d\), 2 by t0/worker \d \(rank \d\)"), (2, "1 at t0, 2 at t1")):
        with Cluster() as c:
            t, r = deploy(c, trainers=2, pods=pods)
            t[0].say("send 1")
            t[1].say("send 2")
            for w in t:
                w.expect(f"error .*different versions.*({names}|{swapped(names)})", reject="^sent")
            send(t, 3)
            sent(t, 3, "e0=Committed")
            updated(r["e0"], 3)


def swapped(names):
    """The workers may attach in either order."""
    return ", ".join(reversed(names.split(", ")))


def a_worker_that_is_ahead_waits_for_the_others():
    with Cluster() as c:
        t, r = deploy(c, trainers=2, pods=2, args=SLOWLY, rows=256, cols=256)
        t[0].say("send 1")
        t[0].say("send 2")  # as soon as it has 1
        t[1].say("send 1")
        sent(t, 1, "e0=Committed")
        updated(r["e0"], 1)
        try:
            t[0].expect("(sent|released) 2", timeout=0.5)
            raise AssertionError("version 2 went out without the second trainer")
        except Failed:
            pass
        t[1].say("send 2")
        sent(t, 2, "e0=Committed")
        updated(r["e0"], 2)


BOTH = {"trainer": "HostMemory", "rollout": "HostMemory"}
SUPERSEDE = {
    "both": {"staging": BOTH, "overlap": "Supersede"},
    "rollout": {"staging": {"rollout": "HostMemory"}, "overlap": "Supersede"},
    "joint": {"staging": BOTH, "overlap": "Supersede", "commitPolicy": "AllEngines"},
}


def burst(c, t, first, last, engines):
    """[{engine: state}] of each version, as the trainers heard it."""
    for w in t:
        w.say(f"burst {first} {last}")
    out = []
    for v in range(first, last + 1):
        said = [re.search(r"seconds=\S+ (.*)", x)[1] for x in sent(t, v)]
        assert len(set(said)) == 1, said
        out.append(dict(x.split("=") for x in said[0].split()))
        assert len(out[-1]) == engines, said
    return out


def got(w):
    return [int(m[1]) for x in w.seen if (m := re.match(r"update (\d+) ok", x))]


def a_newer_version_supersedes(mode, args=SLOWLY, **kw):
    """Five versions at once, each 1 MB at 2 MB/s: engines end with the last, and those on the way
    were dropped; who got one got it whole, and in order."""
    def test():
        with Cluster() as c:
            t, r = deploy(c, engines=2, per_engine=1, args=args, rows=512, cols=512, tensors=1,
                          operator=SUPERSEDE[mode], **kw)
            rollouts = sum(r.values(), [])
            states = burst(c, t, 1, 5, engines=2)
            updated(rollouts, 5)
            for e, w in (("e0", r["e0"][0]), ("e1", r["e1"][0])):
                said = [s[e] for s in states]
                # With trainers unstaged, a version is here before the next is sent.
                assert said[-1] == "Committed", said
                assert "Superseded" in said[:-1] or mode == "rollout", said
                assert set(said) <= {"Committed", "Superseded"}, said
                assert got(w) == [v for v, s in enumerate(said, 1) if s == "Committed"], (got(w), said)
            assert any("Superseded" in s.values() for s in states), states
            dropped = [s for s in states if "Committed" not in s.values()]
            n = counter(c, "t0", 'wb_transfers_total{kind="transfer",result="Superseded"}')
            assert n == len(dropped), (n, states)
            for e in ("0", "1"):
                n = counter(c, f"r{e}", 'wb_engine_updates_total{state="Superseded"}')
                assert n == sum(s[f"e{e}"] == "Superseded" for s in states), (n, states)
            if mode == "joint":
                assert all(len(set(s.values())) == 1 for s in states), states
            recent = c.until("the operator knows", lambda: (x := json.loads(
                c.get(c.op, "/objects")[1])["items"][0]["status"].get("recentTransfers", [])) and
                len(x) == 5 and x)
            assert [x["result"] for x in recent].count("Superseded") == len(dropped), recent
            print(f"  {mode}: {states}", flush=True)
            # And quietly on.
            send(t, 6)
            sent(t, 6, "e0=Committed e1=Committed")
            updated(rollouts, 6)
    test.__name__ = f"a_newer_version_supersedes: {mode}"
    return test


def an_object_that_changes_is_planned_again_in_its_new_mode():
    """SIGHUP reads the file again: agents come back for what it says now."""
    with Cluster() as c:
        t, r = deploy(c, per_engine=1, args=SLOWLY, rows=512, cols=512, tensors=1,
                      operator={"staging": BOTH})
        assert all(s == {"e0": "Committed"} for s in burst(c, t, 1, 2, engines=1))
        for k, (mode, first) in enumerate((("both", 3), ("joint", 13), ("none", 23)), 2):
            extra = SUPERSEDE.get(mode, {"staging": {"trainer": "None", "rollout": "None"}})
            c.spec(trainers=2, per_engine=1, engines=1, **extra)
            c.op.p.send_signal(signal.SIGHUP)
            for a in c.agents.values():
                a.expect(f"plan active .*number={k}", reject=None)
            states = burst(c, t, first, first + 3, engines=1)
            assert states[-1] == {"e0": "Committed"}, states
            assert ({"e0": "Superseded"} in states) == (mode != "none"), (mode, states)
            updated(r["e0"], first + 3)


def with_wait_every_version_arrives():
    with Cluster() as c:
        t, r = deploy(c, per_engine=1, operator={"staging": BOTH})
        assert all(s == {"e0": "Committed"} for s in burst(c, t, 1, 5, engines=1))
        updated(r["e0"], 5)
        assert got(r["e0"][0]) == [1, 2, 3, 4, 5]


if __name__ == "__main__":
    import sys
    tests = [a_second_send_of_the_same_worker_is_refused_and_the_first_arrives,
             workers_that_disagree_about_the_version_are_both_named,
             a_worker_that_is_ahead_waits_for_the_others,
             *[a_newer_version_supersedes(mode) for mode in SUPERSEDE],
             an_object_that_changes_is_planned_again_in_its_new_mode,
             with_wait_every_version_arrives]
    run(*[t for t in tests if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])])
