# SPDX-License-Identifier: Apache-2.0
"""The operator killed at every phase, a second one, and deployments that cannot be planned."""
import json
import re

from cluster import BUILD, Cluster, Proc, run
from test_transfer import deploy, send, sent, updated


def numbers(c):
    """Epochs of the plans that each agent has installed, in order."""
    out = {}
    for name, a in c.agents.items():
        a.drain()
        out[name] = [re.search(r"plan installed term=(\d+) number=(\d+)", x).groups()
                     for x in a.seen if "plan installed" in x]
    return out


def installed(c):
    """The same, when each agent has said that it has one."""
    return c.until("each has installed a plan", lambda: all(numbers(c).values()) and numbers(c))


def again(c):
    """The operator died, and another one comes to its place."""
    assert c.op.wait() == -9
    term = int(re.search(r"term=(\d+)", str([
        x for a in c.agents.values() for x in a.drain() + a.seen
        if "operator connected" in x]))[1])
    c.operator(trainers=2, per_engine=1, engines=1, port=c.op.port)
    return term


def two_versions(t, r):
    for v in (1, 2):
        send(t, v)
        sent(t, v, "e0=Committed")
        updated([r], v)


def killed_while_it_plans(place):
    def test():
        with Cluster() as c:
            c.operator(trainers=2, per_engine=1, engines=1, env={"WB_FAULT": f"kill={place}"})
            for name in ("t0", "r0"):
                c.agent(name)
            t = [c.worker("t0", "trainer", i, 2) for i in (0, 1)]
            r = c.worker("r0", "rollout", engine="e0", cut="cols")
            again(c)
            for w in [*t, r]:
                w.expect("planned")
            two_versions(t, r)
            for name, got in numbers(c).items():
                # A plan that no agent had begun to use may be made again, once.
                assert 1 <= len(got) <= 2, (name, got)
    test.__name__ = f"killed_while_it_plans: {place}"
    return test


def killed_while_nothing_happens_it_adopts_the_plan():
    with Cluster() as c:
        t, r = deploy(c, per_engine=1)
        before = installed(c)
        c.op.kill()
        term = again(c)
        for a in c.agents.values():
            m = a.expect(r"operator connected .*term=(\d+)", reject=None)
            assert int(m[1]) > term, "an operator that starts later is above all it hears of"
        two_versions(t, r["e0"][0])
        assert numbers(c) == before, "the plan in force was made again"


def killed_during_a_transfer():
    with Cluster() as c:
        t, r = deploy(c, per_engine=1, args=("--rail-rate", "2M"), rows=512, cols=512)
        before = installed(c)
        send(t, 1)
        c.agents["t0"].expect("transfer begins transfer=1", reject=None)
        c.op.kill()
        again(c)
        sent(t, 1, "e0=Committed")
        updated(r["e0"], 1)
        send(t, 2)
        sent(t, 2, "e0=Committed")
        updated(r["e0"], 2)
        assert numbers(c) == before, "the plan in force was made again"
        c.until("the operator knows of both", lambda: json.loads(
            c.get(c.op, "/objects")[1])["items"][0]["status"].get("transfer") == 2)


def a_second_operator_on_the_port_is_refused():
    with Cluster() as c:
        t, r = deploy(c, per_engine=1)
        second = Proc("second", [
            f"{BUILD}/bin/weightbridge-operator", "--file", c.path("object.yaml"), "--psk-file",
            c.key, "--listen", f"127.0.0.1:{c.op.port}"])
        second.expect("listen on 127.0.0.1:.*another process has the port", reject=None)
        assert second.wait() == 1
        two_versions(t, r["e0"][0])


def an_older_operator_is_fenced():
    """Two operators for one object: agents of the first do not take plans of the second, which
    has to rise above what they heard; nobody is planned by two at once."""
    with Cluster() as c:
        t, r = deploy(c, per_engine=1)
        first = c.op
        other = c.operator(trainers=2, per_engine=1, engines=1)
        lost = c.agent("lost", port=other.port)
        w = c.worker("lost", "trainer", 1, 2)
        w.expect("status .*waiting for 1 of 2 trainer workers", reject=None)
        c.op = first
        two_versions(t, r["e0"][0])
        assert lost.p.poll() is None


def a_bad_fault_is_named():
    p = Proc("operator", [f"{BUILD}/bin/weightbridge-operator", "--help"])
    assert p.wait() == 0
    with Cluster() as c:
        p = Proc("operator", [
            f"{BUILD}/bin/weightbridge-operator", "--file", c.spec(1, 1), "--psk-file", c.key,
            "--listen", "127.0.0.1:0"], env={"WB_FAULT": "kill=nowhere"})
        p.expect("kill=nowhere", reject=None)
        assert p.wait() == 1


# ---- deployments that cannot be planned


def a_model_that_nobody_holds_whole_is_named():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, planDeadlineSeconds=10)
        c.agent("pod")
        t = c.worker("pod", "trainer", index=0, of=2)  # half of each tensor
        r = c.worker("pod", "rollout", engine="e0")
        for w in (t, r):
            w.expect(r"error .*layers\.0\.weight.*", reject=None)


def other_tensors_are_named():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, planDeadlineSeconds=10)
        c.agent("pod")
        t = c.worker("pod", "trainer", tensors=3)
        r = c.worker("pod", "rollout", engine="e0", tensors=4)
        r.expect("(error|status) .*(manifest|layers.3.weight|model)", reject=None)
        del t


def one_rank_in_two_pods_is_claimed_once():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1)
        for name in ("a", "b"):
            c.agent(name)
        c.worker("a", "trainer", 0, 2).expect("attached")
        c.until("the operator knows", lambda: '"connectedWorkers":1' in
                c.get(c.op, "/objects")[1].replace(" ", ""))
        twin = c.worker("b", "trainer", 1, 2, rank=0)
        twin.expect(r"error .*rank 0 .*\ba/", reject=None)


def a_worker_that_never_attaches_is_named_at_the_deadline():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1, planDeadlineSeconds=2)
        c.agent("pod")
        t = c.worker("pod", "trainer", 0, 2)
        r = c.worker("pod", "rollout", engine="e0")
        for w in (t, r):
            w.expect(r"error .*waiting for 1 of 2 trainer workers, missing rank 1; attached: pod/worker \d \(rank 0\)"
                     r".*planDeadlineSeconds are over",
                     reject=None)


if __name__ == "__main__":
    import sys
    tests = [killed_while_it_plans(place) for place in (
        "plan:chunk=1", "plan:chunk=2", "ready:chunk=1", "ready:chunk=2", "activate:chunk=1",
        "activate:chunk=2")]
    tests += [killed_while_nothing_happens_it_adopts_the_plan, killed_during_a_transfer,
              a_second_operator_on_the_port_is_refused, an_older_operator_is_fenced,
              a_bad_fault_is_named, a_model_that_nobody_holds_whole_is_named,
              other_tensors_are_named, one_rank_in_two_pods_is_claimed_once,
              a_worker_that_never_attaches_is_named_at_the_deadline]
    run(*[t for t in tests if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])],
        together=3)
