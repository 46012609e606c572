# SPDX-License-Identifier: Apache-2.0
"""Who comes and goes: joiners of another layout, engines that start and stop during a stream of
versions, trainers that restart, or end right after their last send."""
import json
import os
import re
import signal
import subprocess
import time

from cluster import BUILD, SANITIZED, SLOW, Cluster, run
from test_modes import MODES
from test_transfer import deploy, engine, quit_all, send, sent, updated


# 96 chunks, which take long enough for something to happen meanwhile; and less work for sanitizers.
LARGE = {"rows": 512, "cols": 2048, "tensors": 8 if SANITIZED else 24}
RATE = "10M" if SANITIZED else "32M"


def stream(t, versions, rollouts):
    for v in versions:
        send(t, v)
        sent(t, v, "Committed")
        updated(rollouts, v)


def counter(c, agent, name):
    """A sample of /metrics, 0 when it is not there."""
    m = re.search(re.escape(name) + r" ([\d.]+)", c.get(c.agents[agent], "/metrics")[1])
    return float(m[1]) if m else 0


def engine_at(c, pod):
    return [c.worker(pod, "rollout", engine="e1", cut="cols")]


def rows_engine(c, e, n=2, **kw):
    return [c.worker(f"r{e}", "rollout", i, n, engine=f"e{e}", cut="rows", **kw) for i in range(n)]


def a_joiner_of_another_layout_is_fed_without_trainers():
    """Engine 0 is cut by columns, engine 1 by rows; the trainer processes are stopped."""
    with Cluster() as c:
        t, r = deploy(c)
        stream(t, (1, 2), r["e0"])
        received = counter(c, "t0", 'wb_bytes_total{rail="0",dir="tx"}')
        for w in t:
            os.kill(w.p.pid, signal.SIGSTOP)
        c.agent("r1")
        e1 = rows_engine(c, 1)
        updated(e1, 2)
        for w in e1:
            assert not any("update 1" in x or "none" in x for x in w.seen), w.seen
        assert counter(c, "t0", 'wb_bytes_total{rail="0",dir="tx"}') == received, \
            "a trainer took part"
        for w in t:
            os.kill(w.p.pid, signal.SIGCONT)
        stream(t, (3,), r["e0"] + e1)


def an_engine_one_of_whose_agents_restarts_is_fed():
    """At rest; whichever of its agents: the other worker holds the version, and nobody waits for a transfer."""
    for victim in ("r1a", "r1b"):
        with Cluster() as c:
            c.operator(trainers=1, per_engine=2, engines=2)
            for name in ("t0", "r0", "r1a", "r1b"):
                c.agent(name)
            t = [c.worker("t0", "trainer", 0, 1)]
            e0 = rows_engine(c, 0)
            e1 = [c.worker(f"r1{p}", "rollout", i, 2, engine="e1", cut="cols")
                  for i, p in enumerate("ab")]
            for w in t + e0 + e1:
                w.expect("planned")
            stream(t, (1,), e0 + e1)
            c.agents[victim].kill()
            c.agent(victim)
            c.agents["r0"].expect("feed ended transfer=1 .*result=Succeeded", reject="Aborted")
            updated(e1, 1)
            stream(t, (2, 3), e0 + e1)


def an_engine_joins_the_agent_of_the_trainers(mode):
    """In their pod: slots of its agent were all for sending, and are shared out anew."""
    def test():
        with Cluster() as c:
            t, r = deploy(c, per_engine=1, operator=MODES[mode])
            stream(t, (1,), r["e0"])
            e1 = engine_at(c, "t0")
            updated(e1, 1)
            stream(t, (2, 3), r["e0"] + e1)
            quit_all(e1)
            stream(t, (4,), r["e0"])
    test.__name__ = f"an_engine_joins_the_agent_of_the_trainers: {mode}"
    return test


def a_joiner_serves_only_when_it_is_fed():
    """On a slow rail: its first poll that returns brings the version, after the feed's end."""
    with Cluster() as c:
        t, r = deploy(c, per_engine=1, args=("--rail-rate", "1M"))
        stream(t, (1,), r["e0"])
        c.agent("r1", "--rail-rate", "1M")
        begin = time.monotonic()
        e1 = rows_engine(c, 1, 1)
        c.agents["r0"].expect("feed begins", reject=None)
        updated(e1, 1)
        assert time.monotonic() - begin > 0.4, "786 KB at 1 MB/s"
        assert "update 1 ok" == [x for x in e1[0].seen if "status" not in x][2]
        c.agents["r0"].expect("feed ended .*result=Succeeded", reject=None)


def a_feed_goes_on_when_its_source_closes():
    """Of two engines that hold the version the one that feeds a third closes; the bytes that are left
    come from the other, in the same feed."""
    with Cluster() as c:
        args = ("--rail-rate", RATE, "--buffer", "8Mi")
        t, r = deploy(c, engines=2, per_engine=1, args=args, **LARGE)
        stream(t, (1,), r["e0"] + r["e1"])
        c.agent("r2", *args)
        e2 = engine(c, 2, 1, **LARGE)
        c.agents["r0"].expect("feed begins", reject=None)
        c.until("bytes arrive", lambda: counter(c, "r2", 'wb_bytes_total{rail="0",dir="rx"}') > 1e6)
        quit_all(r["e0"])
        c.agents["r0"].expect("feed ended .*result=Succeeded", reject="feed ended")
        updated(e2, 1)
        stream(t, (2,), r["e1"] + e2)


def a_feed_goes_on_from_trainers_that_hold():
    """The only engine that holds the version closes while it feeds another: the bytes that are left come
    from the trainers, who have not let go since the transfer, and may when that is over."""
    with Cluster() as c:
        args = ("--rail-rate", RATE, "--buffer", "8Mi")
        t, r = deploy(c, per_engine=1, args=args, **LARGE)
        for w in t:
            w.say("hold 1")
        updated(r["e0"], 1)
        c.agents["t0"].expect("transfer ended transfer=1 .*Succeeded", reject=None)
        c.agent("r1", *args)
        e1 = engine(c, 1, 1, **LARGE)
        c.agents["r0"].expect("feed begins", reject=None)
        c.until("bytes arrive", lambda: counter(c, "r1", 'wb_bytes_total{rail="0",dir="rx"}') > 1e6)
        quit_all(r["e0"])
        c.agents["r0"].expect("feed ended .*result=Succeeded", reject="feed ended")
        updated(e1, 1)
        for w in t:
            w.say("release")
        for w in t:
            w.expect("let go")
            w.expect("sent 1 .*e0=Committed")
        stream(t, (2,), e1)


def a_newer_transfer_overtakes_a_feed():
    with Cluster() as c:
        t, r = deploy(c, per_engine=1, args=("--rail-rate", "600K"))
        stream(t, (1,), r["e0"])
        c.agent("r1", "--rail-rate", "600K")
        e1 = rows_engine(c, 1, 1)
        c.agents["r0"].expect("feed begins", reject=None)
        time.sleep(0.3)  # 786 KB take 1.3 s: it is under way
        send(t, 2)
        sent(t, 2, "e0=Committed e1=Committed")
        updated(r["e0"] + e1, 2)
        assert not any("update 1" in x for x in e1[0].seen), e1[0].seen
        c.agents["r0"].expect("feed ended .*result=Superseded", reject=None)
        assert counter(c, "r0", 'wb_transfers_total{kind="feed",result="Superseded"}') == 1
        assert counter(c, "r0", 'wb_transfers_total{kind="feed",result="Succeeded"}') == 0
        stream(t, (3,), r["e0"] + e1)


def conditions(c):
    status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
    return {x["type"]: (x["status"], x["message"]) for x in status["conditions"]}, status


def a_joiner_is_fed_while_all_trainers_are_gone(cut, in_order, mode="none", per_engine=2):
    """Workers have ended and their agents were killed; later others come, with transfers of theirs."""
    def test():
        with Cluster() as c:
            t, r = deploy(c, pods=2, per_engine=per_engine,
                          operator={**MODES[mode], "heartbeatTimeoutSeconds": 5})
            stream(t, (1, 2), r["e0"])
            if in_order:
                quit_all(t)
            for w in t:
                w.kill()
            for name in ("t0", "t1"):
                c.agents[name].kill()
            c.agent("r1")
            e1 = [c.worker("r1", "rollout", i, per_engine, engine="e1", cut=cut)
                  for i in range(per_engine)]
            e1[0].expect("status .*waiting for 2 of 2 trainer workers", reject=None)
            updated(e1, 2)  # byte for byte: the toy compares all of it
            for w in e1:
                assert not any(x.startswith(("update 1", "none")) for x in w.seen), w.seen
            shown, status = c.until("both engines are shown at version 2", lambda: (
                lambda got: got[1].get("updatedEngines") == 2 and got)(conditions(c)))
            assert shown["MembersConnected"][0] == shown["Ready"][0] == "False", shown
            assert "waiting for 2 of 2 trainer workers" in shown["Ready"][1], shown
            assert "2 trainer workers that are absent" in shown["Planned"][1], shown
            assert shown["UpToDate"][0] == "True", shown
            c.agent("r2")  # from one that was fed itself, when the first has gone
            for w in r["e0"]:
                w.kill()
            c.agents["r0"].kill()
            e2 = engine(c, 2, per_engine)
            updated(e2, 2)
            for name in ("t0", "t1"):
                c.agent(name)
            again = [c.worker(f"t{i}", "trainer", i, 2) for i in range(2)]
            for w in again:
                w.expect("planned", timeout=30)
            for v in (1, 3):  # an older checkpoint
                send(again, v)
                for w in again:
                    w.expect(f"sent {v} .*e1=Committed e2=Committed", reject="^error |bad")
                updated(e1 + e2, v)
            held = json.loads(c.get(c.agents["r1"], "/status")[1])["objects"][0]["engines"][0]
            assert held["version"] == 3 and held["transfer"] == 4, held
            shown, status = c.until("Ready again", lambda: (
                lambda got: got[0]["Ready"][0] == "True" and got)(conditions(c)))
            assert status["transfer"] == 4 and "absent" not in shown["Planned"][1], status
    test.__name__ = ("a_joiner_is_fed_while_all_trainers_are_gone: "
                     f"{cut} {'in order' if in_order else 'killed'} {mode} {per_engine}")
    return test


def copies_that_round_are_no_source():
    """Engine 0 holds BF16 of an F32 model: it cannot feed its like, and says so; one that holds the
    values themselves can."""
    number, rounded = {"args": ["--floats"]}, {"args": ["--round"]}
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1, engines=1, transferDeadlineSeconds=30)
        for name in ("t0", "r0"):
            c.agent(name)
        t = [c.worker("t0", "trainer", i, 2, **number) for i in range(2)]
        e0 = [c.worker("r0", "rollout", engine="e0", cut="cols", **rounded)]
        for w in t + e0:
            w.expect("planned")
        stream(t, (1, 2), e0)
        c.agent("r1")
        e1 = [c.worker("r1", "rollout", engine="e1", **rounded)]
        c.agents["r0"].expect("feed ended .*result=(Torn|Aborted).*rounded", reject=None, timeout=10)
        assert not any("update" in x for x in e1[0].drain() + e1[0].seen), "it serves"
        stream(t, (3,), e0 + e1)  # from the trainers
        c.agent("r2")
        e2 = [c.worker("r2", "rollout", engine="e2", cut="cols", **number)]
        c.agents["r2"].expect("plan active", reject=None)
        stream(t, (4,), e0 + e1 + e2)


def engines_come_and_go_during_a_stream():
    """2, then 3, then 1 engines, by starting and stopping pods alone."""
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2, engines=1)
        for name in ("t0", "r0", "r1"):
            c.agent(name)
        t = [c.worker("t0", "trainer", i, 2) for i in range(2)]
        e0, e1 = engine(c, 0, 2), rows_engine(c, 1)
        for w in t + e0 + e1:
            w.expect("planned")
        stream(t, range(1, 6), e0 + e1)
        c.agent("r2")
        e2 = engine(c, 2, 2)
        updated(e2, 5)  # the current version, and nobody sent it
        stream(t, range(6, 11), e0 + e1 + e2)
        quit_all(e1)  # in order
        assert c.agents["r1"].stop() == 0
        stream(t, range(11, 16), e0 + e2)
        for w in e2:  # not in order
            w.kill()
        c.agents["r2"].kill()
        for v in range(16, 21):
            send(t, v)
            for w in t:
                w.expect(f"sent {v} .*e0=Committed", reject=None)
            updated(e0, v)
        for w in e0:
            got = [int(m[1]) for x in w.seen if (m := re.match(r"update (\d+) ok", x))]
            assert got == list(range(1, 21)), got


def wbctl_get(c):
    out = subprocess.run([f"{BUILD}/bin/wbctl", "get", "-o", "json", "--operator",
                          f"127.0.0.1:{c.op.http}"], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def restarted_trainers_go_on_with_higher_transfers():
    with Cluster() as c:
        t, r = deploy(c)
        stream(t, range(1, 21), r["e0"])
        quit_all(t)
        again = [c.worker("t0", "trainer", i, 2) for i in range(2)]
        for w in again:
            w.expect("planned")
        stream(again, (5,), r["e0"])  # an older checkpoint
        for w in again:
            w.kill()
        third = [c.worker("t0", "trainer", i, 2) for i in range(2)]
        for w in third:
            w.expect("planned")
        stream(third, (5,), r["e0"])  # and once more

        def shown():
            status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
            return status.get("version") == 5 and status.get("transfer", 0) >= 22 and status
        status = c.until("version 5 is shown", shown)
        assert status["transfer"] == 22, status["transfer"]
        assert '"version": 5' in json.dumps(wbctl_get(c)), wbctl_get(c)


def a_trainer_that_waits_for_a_dead_one_says_for_whom():
    with Cluster() as c:
        t, r = deploy(c)
        stream(t, (1,), r["e0"])
        t[1].kill()
        t[0].say("send 2")
        t[0].expect(r"awaits .*\(version 2\) is asked for.*: waiting for 1 of 2 trainer workers, missing rank 1;")
        again = c.worker("t0", "trainer", 1, 2)
        again.expect("planned")
        send([again], 2)
        sent([t[0], again], 2, "Committed")
        updated(r["e0"], 2)


def restarted_trainer_pods_go_on_with_higher_transfers(mode, operator_too):
    """The agent that numbered the transfers is gone, and then the operator with it: engines know.
    (An operator that finds a running plan waits 15 s for all of its members.)"""
    def test():
        with Cluster() as c:
            t, r = deploy(c, operator=MODES[mode])
            stream(t, range(1, 4), r["e0"])
            for k, with_operator in enumerate((False, True)[:1 + operator_too]):
                for w in t:
                    w.kill()
                c.agents["t0"].kill()
                if with_operator:
                    c.op.kill()
                    c.operator(2, 2, 1, port=c.op.port, **MODES[mode])
                c.agent("t0")
                t = [c.worker("t0", "trainer", i, 2) for i in range(2)]
                for w in t:
                    w.expect("planned", timeout=30)
                stream(t, (1, 2), r["e0"])  # versions begin again
                held = json.loads(c.get(c.agents["r0"], "/status")[1])["objects"][0]["engines"][0]
                assert held["version"] == 2 and held["transfer"] == 5 + 2 * k, held
    test.__name__ = f"restarted_trainer_pods_go_on_with_higher_transfers: {mode}"
    return test


def ends_right_after_its_last_send(mode, verb, pods=1):
    def test():
        with Cluster() as c:
            t, r = deploy(c, engines=2, pods=pods, operator=MODES[mode])
            rollouts = sum(r.values(), [])
            for v in (1, 2):
                send(t, v)
                sent(t, v, "e0=Committed e1=Committed")
                updated(rollouts, v)
            begin = time.monotonic()
            for w in t:
                w.say(f"{verb} 3")
            for w in t:
                assert w.wait() == 0, w.drain()
            gone = time.monotonic() - begin
            updated(rollouts, 3)
            c.agents["t0"].expect("transfer ended transfer=3 .*result=Succeeded engines=2",
                                  reject=None)
            print(f"  {mode} {verb}: trainers gone after {gone * 1e3:.0f} ms", flush=True)
            assert verb == "leave" or gone < 2 * SLOW
    test.__name__ = f"ends_right_after_its_last_send: {mode} {verb} {pods}"
    return test


TESTS = [a_joiner_of_another_layout_is_fed_without_trainers,
         an_engine_one_of_whose_agents_restarts_is_fed, a_joiner_serves_only_when_it_is_fed,
         a_joiner_is_fed_while_all_trainers_are_gone("rows", True),
         a_joiner_is_fed_while_all_trainers_are_gone("rows", False, "both"),
         a_joiner_is_fed_while_all_trainers_are_gone("cols", True, "both"),
         a_joiner_is_fed_while_all_trainers_are_gone("rows", True, per_engine=1),
         an_engine_joins_the_agent_of_the_trainers("none"),
         an_engine_joins_the_agent_of_the_trainers("both"),
         a_feed_goes_on_when_its_source_closes, a_feed_goes_on_from_trainers_that_hold,
         a_newer_transfer_overtakes_a_feed,
         copies_that_round_are_no_source, engines_come_and_go_during_a_stream,
         restarted_trainers_go_on_with_higher_transfers, a_trainer_that_waits_for_a_dead_one_says_for_whom,
         restarted_trainer_pods_go_on_with_higher_transfers("none", True),
         restarted_trainer_pods_go_on_with_higher_transfers("both", False)]
TESTS += [ends_right_after_its_last_send(mode, verb, pods) for mode in MODES
          for verb, pods in (("vanish", 1), ("leave", 2))]

if __name__ == "__main__":
    import sys
    run(*[t for t in TESTS if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])],
        together=2)
