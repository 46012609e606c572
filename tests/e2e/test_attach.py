# SPDX-License-Identifier: Apache-2.0
"""Agents, operator and workers as processes: attach, plan, leave, and what is refused."""
import json
import os
import re
import signal
import subprocess

from cluster import BUILD, SLOW, Cluster, Proc, run


def all_members_are_planned():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2)
        c.agent("train")
        c.agent("roll")
        w = [c.worker("train", "trainer", 0, 2), c.worker("train", "trainer", 1, 2)]
        w[0].expect("attached train/worker")
        w[0].expect("status ", reject=None)
        w += [c.worker("roll", "rollout", i, 2, engine="e0", cut="cols") for i in (0, 1)]
        for x in w:
            x.expect("planned")
        status, body = c.get(c.agents["roll"], "/status")
        status = json.loads(body)
        assert [x["planned"] for x in status["workers"]] == [True, True], status
        assert status["operator"]["number"] >= 1, status
        assert c.get(c.agents["train"], "/readyz")[0] == 200
        assert c.get(c.agents["train"], "/healthz")[0] == 200
        assert "wb_workers{role=\"trainer\"} 2" in c.get(c.agents["train"], "/metrics")[1]
        json.loads(c.get(c.agents["roll"], "/trace")[1])
        assert c.get(c.agents["roll"], "/nothing")[0] == 404
        for x in w:
            x.say("quit")
        for x in w:
            x.expect("bye")
        c.agents["train"].expect("worker detached")
        for a in c.agents.values():
            assert a.stop() == 0, a.drain()


def who_is_missing_is_said():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1)
        c.agent("train")
        w = c.worker("train", "trainer", 0, 2)
        w.expect("status .*trainer", reject=None)


def a_killed_worker_is_named_and_may_come_back():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        t = c.worker("pod", "trainer")
        r = c.worker("pod", "rollout", engine="e0")
        t.expect("planned")
        r.expect("planned")
        pid = r.p.pid
        r.kill()
        c.agents["pod"].expect(rf"worker lost .*pid={pid} .*exited", reject=None)
        r = c.worker("pod", "rollout", engine="e0")
        r.expect("planned")


def one_rank_is_claimed_once():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=1)
        c.agent("pod")
        c.worker("pod", "trainer", 0, 2).expect("attached")
        twin = c.worker("pod", "trainer", 1, 2, rank=0)
        twin.expect(r"error .*rank 0 of the trainer is claimed already by pod/worker 1",
                    reject=None)


def bad_starts_end_with_a_sentence():
    exe = f"{BUILD}/bin/weightbridge-agent"
    with Cluster() as c:
        for argv, words in (
                (["--nonsense"], "unknown option --nonsense"),
                (["--operator", "h"], "--operator h: expected HOST:PORT"),
                (["--rails", "17"], "--rails 17: expected 1 to 16"),
                (["--buffer", "3"], "--buffer 3: expected a size"),
                (["--staging-limit", "0"], "--staging-limit 0: expected a size above 0"),
                (["--name", "a b"], "--name a b: expected a name"),
                (["stray"], "unexpected argument 'stray'"),
                ([], "--operator HOST:PORT is missing"),
                (["--operator", "127.0.0.1:1"], "--psk-file FILE is missing")):
            p = Proc("agent", [exe, *argv])
            p.expect(words.replace("(", r"\("), reject=None)
            assert p.wait() == 2, argv
        c.operator()
        bad = c.path("open-key")
        c.write_key(bad, "a7" * 32)
        os.chmod(bad, 0o644)
        a = c.agent("a", wait=False, key=bad)
        a.expect("open-key.*chmod", reject=None)
        assert a.wait() == 1


def a_wrong_key_ends_the_agent():
    with Cluster() as c:
        c.operator()
        c.write_key(c.path("other"), "b8" * 32)
        a = c.agent("a", wait=False, key=c.path("other"))
        a.expect("refused by the operator.*key", reject=None)
        assert a.wait() == 1


def a_busy_socket_is_refused_and_a_stale_one_replaced():
    with Cluster() as c:
        c.operator()
        c.agent("a")
        twin = c.agent("a", wait=False)
        twin.expect(r"a\.sock.*(in use|answers)", reject=None)
        assert twin.wait() == 1
    with Cluster() as c:
        c.operator()
        c.agent("a").kill()
        c.agent("a")


def an_unknown_object_is_refused():
    with Cluster() as c:
        c.operator()
        a = c.agent("a", "--object", "default/nope", wait=False)
        a.expect("refused by the operator.*no object default/nope", reject=None)
        assert a.wait() == 1


def help_and_version_are_printed():
    exe = f"{BUILD}/bin/weightbridge-agent"
    p = Proc("agent", [exe, "--help"])
    p.expect("--psk-file FILE")
    assert p.wait() == 0
    p = Proc("agent", [exe, "--version"])
    p.expect(r"weightbridge-agent \d+\.\d+")
    assert p.wait() == 0


def sending(c, *args):
    """(trainer's agent, trainer, rollout) in the middle of a transfer that takes three seconds."""
    c.operator()
    a = c.agent("t", "--rail-rate", "8M", *args)
    c.agent("r")
    size = {"rows": 2048, "cols": 1024}
    t, r = c.worker("t", "trainer", **size), c.worker("r", "rollout", engine="e0", **size)
    t.expect("planned")
    r.expect("planned")
    t.say("send 1")
    c.until("bytes are on their way", lambda: re.search(
        r'wb_bytes_total{[^}]*} [1-9]', c.get(c.agents["r"], "/metrics")[1]))
    a.p.send_signal(signal.SIGTERM)
    a.expect("stopping transfer=running")
    return a, t, r


def the_first_signal_lets_a_transfer_end():
    with Cluster() as c:
        a, t, r = sending(c)
        t.expect("sent 1 .*e0=Committed")
        r.expect("update 1 ok")
        assert a.wait() == 0


def the_grace_period_ends_it():
    with Cluster() as c:
        a, _, _ = sending(c, "--grace", "0")
        a.expect("the grace period is over", reject=None)
        assert a.wait() == 1


def the_second_signal_ends_at_once():
    with Cluster() as c:
        a, _, _ = sending(c)
        a.p.send_signal(signal.SIGINT)
        assert a.wait(1.5 * SLOW) == 1  # the transfer needs twice that
        assert not os.path.exists(a.socket)


def probe(what, *args):
    """(exit status, what it says) of the agent binary as a pod's probe."""
    p = subprocess.run([f"{BUILD}/bin/weightbridge-agent", "--probe", what, *args],
                       capture_output=True, text=True, timeout=30, check=False)
    return p.returncode, p.stderr.strip()


def probes_ask_a_running_agent():
    with Cluster() as c:
        c.operator()
        a = c.agent("a")
        ports = c.path("ports")
        with open(ports, "w", encoding="ascii") as f:
            f.write(f"listen 1\nhttp {a.http}\n")
        socket, page = ("--socket", a.socket), ("--http", f"127.0.0.1:{a.http}")
        by_file = ("--http", "127.0.0.1:0", "--port-file", ports)
        assert probe("startup", *socket) == (0, "")
        for args in (page, by_file):
            assert probe("live", *args) == (0, "")
            assert probe("ready", *args) == (0, "")
        a.p.send_signal(signal.SIGSTOP)
        assert probe("live", *page) == (1, "the agent does not answer")
        a.p.send_signal(signal.SIGCONT)
        assert probe("live", *page) == (0, "")
        a.kill()
        assert probe("startup", *socket) == (1, "workers cannot attach yet: Connection refused")
        assert probe("live", *page) == (1, "the agent is not reached: Connection refused")
        os.unlink(a.socket)
        assert probe("startup", *socket)[1].endswith("No such file or directory")


def the_agent_waits_for_its_operator():
    with Cluster() as c:
        op = c.operator()
        op.kill()
        a = c.agent("pod")
        w = c.worker("pod", "trainer")
        w.expect("status .*waits for the operator", reject=None)
        c.operator(port=op.port)
        c.worker("pod", "rollout", engine="e0")
        a.expect("operator connected", reject=None)
        w.expect("planned")


if __name__ == "__main__":
    run(help_and_version_are_printed, bad_starts_end_with_a_sentence, a_wrong_key_ends_the_agent,
        a_busy_socket_is_refused_and_a_stale_one_replaced, an_unknown_object_is_refused,
        all_members_are_planned, who_is_missing_is_said,
        a_killed_worker_is_named_and_may_come_back, one_rank_is_claimed_once,
        probes_ask_a_running_agent, the_agent_waits_for_its_operator,
        the_first_signal_lets_a_transfer_end, the_grace_period_ends_it, the_second_signal_ends_at_once,
        together=2)
