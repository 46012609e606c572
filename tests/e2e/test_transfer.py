# SPDX-License-Identifier: Apache-2.0
"""Versions through whole deployments of processes, and what happens when parts of them go."""
import json

from cluster import Cluster, run


def send(trainers, version):
    for t in trainers:
        t.say(f"send {version}")


def sent(trainers, version, states="", reject=r"^error |bad"):
    return [t.expect(rf"sent {version} .*{states}", reject=reject).string for t in trainers]


def updated(rollouts, version):
    for r in rollouts:
        r.expect(f"update {version} ok")


def quit_all(workers):
    for w in workers:
        w.say("quit")
    for w in workers:
        w.expect("bye")


def move_three_versions(c, trainers, rollouts):
    """To engine e0, Committed each; then all end in order, agents too."""
    for v in (1, 2, 3):
        send(trainers, v)
        sent(trainers, v, "Committed")
        updated(rollouts, v)
    quit_all(trainers + rollouts)
    for a in c.agents.values():
        assert a.stop() == 0, a.drain()


def deploy(c, engines=1, per_engine=2, trainers=2, pods=1, args=(), operator=None, worker=None, **kw):
    """Trainer pods and one pod an engine; ([trainers], {engine: [rollouts]})."""
    c.operator(trainers=trainers, per_engine=per_engine, engines=engines, **(operator or {}))
    for p in range(pods):
        c.agent(f"t{p}", *args)
    for e in range(engines):
        c.agent(f"r{e}", *args)
    t = [c.worker(f"t{i * pods // trainers}", "trainer", i, trainers, **kw, **(worker or {}))
         for i in range(trainers)]
    r = {f"e{e}": engine(c, e, per_engine, **kw) for e in range(engines)}
    for w in t + sum(r.values(), []):
        w.expect("planned")
    return t, r


def engine(c, e, per_engine, **kw):
    return [c.worker(f"r{e}", "rollout", i, per_engine, engine=f"e{e}", cut="cols", **kw)
            for i in range(per_engine)]


def versions_arrive(**kw):
    with Cluster() as c:
        t, r = deploy(c, **kw)
        all_r = sum(r.values(), [])
        for v in (1, 2, 3):
            send(t, v)
            sent(t, v, "Committed")
            updated(all_r, v)
        c.agents["t0"].expect("transfer ended transfer=3 .*Succeeded", reject=None)
        quit_all(t + all_r)
        for a in c.agents.values():
            assert a.stop() == 0, a.drain()
        assert c.op.stop() == 0


def one_engine():
    versions_arrive()


def two_engines_over_two_trainer_pods():
    versions_arrive(engines=2, pods=2, trainers=4, rows=512, cols=512)


def private_heap_is_served_by_the_workers_lane():
    versions_arrive(heap=True)


def megabytes_with_small_buffers():
    versions_arrive(rows=4096, cols=1024, args=("--buffer", "64Mi"))


def over_shared_memory():
    versions_arrive(args=("--transport", "shm"))


def without_checksums_and_with_two_rails():
    versions_arrive(args=("--rails", "2", "--rail-rate", "500M"), operator={"checksums": "None"})


def survive(fault, pod):
    """A version arrives whole although something goes wrong on the way."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, engines=2)
        for name in ("t0", "r0", "r1"):
            c.agent(name, env={"WB_FAULT": fault} if name == pod else None)
        w = [c.worker("t0", "trainer")]
        w += [c.worker(f"r{e}", "rollout", engine=f"e{e}") for e in (0, 1)]
        for x in w:
            x.expect("planned")
        for v in (1, 2):
            send(w[:1], v)
            sent(w[:1], v, "Committed")
            updated(w[1:], v)


def flipped_bits_are_sent_again():
    survive("flip=wire:chunk=1", "t0")
    survive("flip=slot:chunk=1", "r0")


def lost_connections_are_made_again():
    survive("drop=send:chunk=1", "t0")
    survive("drop=wire:chunk=1", "t0")
    survive("drop=rail0:chunk=2", "t0")
    survive("drop=ctrl:chunk=2", "t0")


def an_agent_killed_while_it_receives_costs_its_engine_alone():
    with Cluster() as c:
        small = {"bufferSize": "64Mi"}  # many chunks, so that each engine receives some itself
        c.operator(trainers=1, per_engine=1, engines=2, trainer=small, rollout=small)
        c.agent("t0")
        c.agent("r0")
        c.agent("r1", env={"WB_FAULT": "kill=recv:version=2:chunk=3"})
        size = {"rows": 2048, "cols": 1024}
        w = [c.worker("t0", "trainer", **size)]
        w += [c.worker(f"r{e}", "rollout", engine=f"e{e}", **size) for e in (0, 1)]
        for x in w:
            x.expect("planned")
        send(w[:1], 1)
        sent(w[:1], 1)
        updated(w[1:], 1)
        send(w[:1], 2)
        said = sent(w[:1], 2, "e0=Committed", reject=None)[0]
        assert "e1=Committed" not in said, said
        updated(w[1:2], 2)
        assert c.agents["r1"].wait() == -9


def the_state_is_shown():
    with Cluster() as c:
        t, r = deploy(c)
        send(t, 7)
        sent(t, 7)
        updated(r["e0"], 7)
        status = json.loads(c.get(c.agents["r0"], "/status")[1])
        assert [w["version"] for w in status["workers"]] == [7, 7], status
        assert 'wb_engine_updates_total{state="Committed"} 1' in \
            c.get(c.agents["r0"], "/metrics")[1]
        events = json.loads(c.get(c.agents["r0"], "/trace?transfer=1")[1])["traceEvents"]
        assert any(e["name"] == "update" and e["ph"] == "X" for e in events), events
        c.until("the operator knows", lambda: '"version": 7' in c.get(c.op, "/objects")[1]
                or '"version":7' in c.get(c.op, "/objects")[1])


def a_killed_pod_is_named_and_fed_when_it_is_back():
    with Cluster() as c:
        t, r = deploy(c, engines=2)
        send(t, 1)
        sent(t, 1)
        updated(r["e0"] + r["e1"], 1)
        for w in r["e1"]:
            w.kill()
        c.agents["r1"].kill()
        send(t, 2)
        said = sent(t, 2, "e0=Committed", reject=None)
        updated(r["e0"], 2)
        assert "e1=Committed" not in said[0], said
        c.agent("r1")
        again = engine(c, 1, 2)
        for w in again:
            w.expect("planned")
        updated(again, 2)  # from e0: no trainer takes part
        send(t, 3)
        sent(t, 3, "e0=Committed")
        updated(r["e0"] + again, 3)


def a_trainer_that_does_not_call_is_named_and_not_waited_for_for_ever():
    for pods in (1, 2):  # beside the one that waits, or in another pod
        with Cluster() as c:
            t, r = deploy(c, pods=pods, operator={"engineStepDeadlineSeconds": 1})
            t[0].say("send 1")
            said = t[0].expect("error .*", reject=None).string
            assert "send_weights was called by" in said, said
            assert ("t0/worker 2" if pods == 1 else "agent t1") in said or "t0/worker 1" in said, said
            send(t, 2)
            sent(t, 2, "Committed")
            updated(r["e0"], 2)


def transfers_go_on_without_the_operator():
    with Cluster() as c:
        t, r = deploy(c)
        c.op.kill()
        c.agents["t0"].expect("operator not reached", reject=None)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"], 1)
        c.operator(trainers=2, per_engine=2, engines=1, port=c.op.port)
        c.agents["t0"].expect("operator connected", reject=None)
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r["e0"], 2)


if __name__ == "__main__":
    import sys
    names = sys.argv[1:]
    tests = [one_engine, two_engines_over_two_trainer_pods,
             private_heap_is_served_by_the_workers_lane, megabytes_with_small_buffers,
             without_checksums_and_with_two_rails, flipped_bits_are_sent_again,
             lost_connections_are_made_again,
             an_agent_killed_while_it_receives_costs_its_engine_alone,
             the_state_is_shown, a_killed_pod_is_named_and_fed_when_it_is_back,
             a_trainer_that_does_not_call_is_named_and_not_waited_for_for_ever,
             transfers_go_on_without_the_operator]
    run(*[t for t in tests if not names or t.__name__ in names])
