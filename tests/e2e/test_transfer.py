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


def deploy(c, engines=1, per_engine=2, trainers=2, pods=1, args=(), operator=None, **kw):
    """Trainer pods and one pod an engine; ([trainers], {engine: [rollouts]})."""
    c.operator(trainers=trainers, per_engine=per_engine, engines=engines, **(operator or {}))
    for p in range(pods):
        c.agent(f"t{p}", *args)
    for e in range(engines):
        c.agent(f"r{e}", *args)
    t = [c.worker(f"t{i * pods // trainers}", "trainer", i, trainers, **kw)
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
    versions_arrive(args=("--checksums", "off", "--rails", "2", "--rail-rate", "500M"))


def flipped_bits_are_sent_again():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("t0", env={"WB_FAULT": "flip=wire:chunk=1"})
        c.agent("r0")
        t, r = c.worker("t0", "trainer"), c.worker("r0", "rollout", engine="e0")
        t.expect("planned")
        r.expect("planned")
        send([t], 1)
        sent([t], 1, "Committed")
        updated([r], 1)


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
             the_state_is_shown, a_killed_pod_is_named_and_fed_when_it_is_back,
             transfers_go_on_without_the_operator]
    run(*[t for t in tests if not names or t.__name__ in names])
