# SPDX-License-Identifier: Apache-2.0
"""wbctl top beside real agents: phases, bytes and rates of a slow transfer, and who waits for whom by
name; colours and redrawing on a terminal alone."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from cluster import BUILD, TIMEOUT, Cluster, run

RATE = 4_000_000  # bytes/s of an agent: far below what a core moves
MIB = 12
SIZE = {"rows": 512 * MIB, "cols": 512, "tensors": 1}
BYTES = MIB << 20


def deploy(c, trainers=1):
    """`trainers` and an engine of one worker, an agent each."""
    c.operator(trainers=trainers, per_engine=1, trainer={"bufferSize": "64Mi"}, rollout={"bufferSize": "64Mi"})
    pods = [f"t{i}" for i in range(trainers)] + ["r0"]
    for name in pods:
        c.agent(name, "--rails", "1", "--rail-rate", str(RATE))
    t = [c.worker(f"t{i}", "trainer", index=i, of=trainers, **SIZE) for i in range(trainers)]
    r = c.worker("r0", "rollout", engine="e0", **SIZE)
    for w in (*t, r):
        w.expect("planned")
    return t, r, ",".join(f"127.0.0.1:{c.agents[name].http}" for name in pods)


def argv(agents, *args):
    return [f"{BUILD}/bin/wbctl", "top", "--agent", agents, *args]


def once(agents, *args, env=None):
    p = subprocess.run(argv(agents, "--once", *args), capture_output=True, text=True, timeout=60, check=False,
                       env={**os.environ, "TERM": "xterm", **(env or {})})
    assert p.returncode == 0, (p.stdout, p.stderr)
    return p.stdout


def by_agent(sample):
    """Each has one worker."""
    return {w["agent"]: w for w in sample["workers"]}


def a_slow_transfer_is_seen_worker_by_agent():
    with Cluster() as c:
        (t,), r, agents = deploy(c)
        before = by_agent(json.loads(once(agents, "--json")))
        assert {w["phase"] for w in before.values()} == {"Idle"} and not any(w["inBytes"] for w in before.values())
        p = subprocess.Popen(argv(agents, "--json", "-n", "0.2"), stdout=subprocess.PIPE, text=True)
        try:
            t.say("send 1")
            seen = []
            while not seen or by_agent(seen[-1])["r0"]["version"] != 1:
                seen.append(json.loads(p.stdout.readline()))
        finally:
            p.terminate()
            p.wait()
        t.expect("sent 1 .*e0=Committed")
        r.expect("update 1 ok")
        moving = [s for s in map(by_agent, seen) if s["r0"]["phase"] == "Moving" and 0 < s["r0"]["inBytes"] < BYTES]
        assert len(moving) >= 3, [by_agent(s)["r0"] for s in seen]
        for s in moving:
            assert s["r0"]["inPlannedBytes"] == s["t0"]["outPlannedBytes"] == BYTES, s
            assert s["r0"]["waitsFor"] == "t0/worker 1 (rank 0)" and "chunks of the receive stage" in s["r0"]["waitsWhy"], s
            assert s["t0"]["phase"] == "Serving" and s["t0"]["waitsFor"] == "engine e0", s
            assert s["t0"]["transfer"] == s["r0"]["transfer"] == 1, s
        # Where the machine stood still for a sample the next one makes up for it; not so their mean.
        rates = [s["r0"]["bytesPerSecond"] for s in moving if s["r0"]["bytesPerSecond"]]
        print("MB/s:", *[round(x / 1e6, 1) for x in rates])
        assert 0.3 * RATE < sum(rates) / len(rates) < 1.7 * RATE, rates
        last = by_agent(json.loads(once(agents, "--json")))
        assert last["r0"]["inBytes"] == last["t0"]["outBytes"] == BYTES, last
        assert last["r0"]["phase"] == "Idle" and last["r0"]["waitsFor"] == "", last


def the_one_that_stands_still_is_named():
    """One of two trainers' agents is stopped: the engine waits for its worker, whoever else was slow."""
    with Cluster() as c:
        (t0, t1), r, agents = deploy(c, trainers=2)
        t0.say("send 1")
        stopped = agents.split(",")[1]

        def culprit():
            w = by_agent(json.loads(once(agents, "--json")))
            return w["t0"]["waitsFor"], w["r0"]

        c.until("t0 waits for t1's call", lambda: culprit()[0] == "agent t1")
        t1.say("send 1")
        c.until("bytes move", lambda: 0 < culprit()[1]["inBytes"] < BYTES / 2)
        os.kill(c.agents["t1"].p.pid, signal.SIGSTOP)
        try:
            others = [a for a in agents.split(",") if a != stopped]
            c.until("r0 waits for t1's worker", lambda: by_agent(json.loads(once(",".join(others), "--json")))["r0"][
                "waitsFor"] == "t1/worker 1 (rank 1)")
            out = once(agents)
            assert re.search(r"^r0/worker 1 .* e0 +Moving +1 .* t1/worker 1 \(rank 1\), \d+ chunks of the receive stage", out, re.MULTILINE), out
            assert out.endswith(f"{stopped} does not answer\n") and "2 agents, 2 workers" in out, out
        finally:
            os.kill(c.agents["t1"].p.pid, signal.SIGCONT)
        r.expect("update 1 ok")


def on_a_terminal(args, env, tables=2):
    """What it writes there, up to as many tables."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(env)
        os.execv(args[0], args)
    out, end = b"", time.monotonic() + TIMEOUT
    while out.count(b"WORKER") < tables and time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            out += os.read(fd, 65536)
    os.kill(pid, signal.SIGTERM)
    os.close(fd)
    os.waitpid(pid, 0)
    return out.decode()


def only_a_terminal_is_painted():
    with Cluster() as c:
        _, _, agents = deploy(c)
        first = once(agents)
        assert "\033" not in first and first.splitlines()[1].split()[:3] == ["WORKER", "ENGINE", "PHASE"], first
        with subprocess.Popen(argv(agents, "-n", "0.1"), stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "TERM": "xterm"}) as p:
            lines = [p.stdout.readline() for _ in range(9)]
            p.terminate()
        assert sum("WORKER" in x for x in lines) == 2 and not any("\033" in x for x in lines), lines
        out = on_a_terminal(argv(agents, "-n", "0.1"), {"TERM": "xterm"})
        assert out.count("\033[H") >= 2 and "\033[1mWORKER" in out, out
        out = on_a_terminal(argv(agents, "-n", "0.1"), {"TERM": "xterm", "NO_COLOR": "1"})
        assert out.count("\033[H") >= 2 and "\033[1m" not in out, out
        out = on_a_terminal(argv(agents, "-n", "0.1"), {"TERM": "dumb"})
        assert out.count("WORKER") >= 2 and "\033" not in out, out


def what_cannot_be_is_a_sentence():
    def fails(*args):
        p = subprocess.run([f"{BUILD}/bin/wbctl", *args], capture_output=True, text=True, timeout=60, check=False,
                           env={k: v for k, v in os.environ.items() if not k.startswith("WEIGHTBRIDGE_AGENT")})
        assert p.returncode != 0 and not p.stdout, p
        return p.stderr

    assert "top reads agents: --agent HOST:PORT" in fails("top")
    assert "-n 0: expected 0.1 to 3600 seconds" in fails("top", "--agent", "127.0.0.1:1", "-n", "0")
    assert "nobody answers at 127.0.0.1:1" in fails("top", "--agent", "127.0.0.1:1")
    assert "--once is of top, not of get" in fails("get", "--once")
    with Cluster() as c:
        c.operator()
        assert f"127.0.0.1:{c.op.http} is not an agent's page" in fails("top", "--agent", f"127.0.0.1:{c.op.http}")


if __name__ == "__main__":
    run(a_slow_transfer_is_seen_worker_by_agent, the_one_that_stands_still_is_named, only_a_terminal_is_painted,
        what_cannot_be_is_a_sentence, together=2)
