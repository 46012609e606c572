# SPDX-License-Identifier: Apache-2.0
"""Names.  Of agents: two that live never have one, and who comes after the dead gets it at once.  Of
workers: the same in all tools, with the rank, and again when a worker comes again."""
import glob
import json
import re
import signal
import subprocess
import time

from cluster import BUILD, Cluster, run

TAKEN = (r"agent pod is connected already, from 127\.0\.0\.1:\d+, and that one lives: give each agent "
         r"a name of its own \(--name\), or end the other")


def condition(c, kind):
    conditions = json.loads(c.get(c.op, "/status")[1])["status"]["conditions"]
    return next(x for x in conditions if x["type"] == kind)


def pair(c):
    """An agent that has a trainer and an engine, with a plan."""
    c.operator(trainers=1, per_engine=1)
    c.agent("pod")
    workers = [c.worker("pod", "trainer"), c.worker("pod", "rollout", engine="e0")]
    for w in workers:
        w.expect("planned")
    return workers


def the_second_is_refused_and_the_first_never_notices():
    with Cluster() as c:
        t, r = pair(c)
        twin = c.agent("twin", "--name", "pod", wait=False)
        twin.expect("operator not reached.*" + TAKEN, reject=None)
        # Its workers hear why they wait.
        c.worker("twin", "trainer").expect("status .*" + TAKEN, reject=None)
        taken = c.until("a condition", lambda: (x := condition(c, "Degraded"))["reason"] == "AgentNameTaken" and x)
        assert taken["status"] == "True" and "is connected already" in taken["message"], taken
        for version in (1, 2):
            t.say(f"send {version}")
            r.expect(f"update {version} ok")
            t.expect(f"sent {version}")
        c.op.drain()
        log = "\n".join(c.op.seen)
        assert log.count("agent refused") == 1 and "connection lost" not in log, log
        assert "operator not reached" not in "\n".join(c.agents["pod"].seen)
        # The first ends: its name is the second's.
        c.agents["pod"].kill()
        twin.expect("operator connected", reject=None)
        c.until("it is over", lambda: condition(c, "Degraded")["reason"] != "AgentNameTaken")


def one_that_was_killed_and_started_again_is_in_at_once():
    with Cluster() as c:
        pair(c)
        for _ in range(5):
            c.agents["pod"].kill()
            a = c.agent("pod")
            a.expect("operator (connected|not reached)", reject=None)
            assert "operator not reached" not in "\n".join(a.seen)


def one_that_hangs_loses_its_name_to_another():
    with Cluster() as c:
        pair(c)
        c.agents["pod"].p.send_signal(signal.SIGSTOP)
        t0 = time.monotonic()
        twin = c.agent("twin", "--name", "pod")
        twin.expect("operator connected", reject=None)
        print(f"let in after {time.monotonic() - t0:.1f} s")
        # It wakes up: now it is the second.
        c.agents["pod"].p.send_signal(signal.SIGCONT)
        c.agents["pod"].expect("operator not reached.*" + TAKEN, reject=None)


def wbctl(*args):
    return subprocess.run([f"{BUILD}/bin/wbctl", *args], capture_output=True, text=True, timeout=30,
                          check=True).stdout


def a_worker_has_one_name_everywhere_and_keeps_it():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        t = c.worker("pod", "trainer")
        t.expect(r"attached pod/worker 1 \(rank 0\)$")
        for again in range(3):
            r = c.worker("pod", "rollout", engine="e0")
            r.expect(r"attached pod/worker 2 \(rank 0\)$", reject=None)
            r.expect("planned")
            t.say(f"send {again + 1}")
            r.expect(f"update {again + 1} ok")
            t.expect(f"sent {again + 1}")
            if again < 2:
                r.kill()
                c.agents["pod"].expect(r'worker lost .*worker="pod/worker 2 \(rank 0\)"', reject=None)
        # The file that outlives the agent is where its first line says.
        state = re.search(r" state=(\S+)", next(x for x in c.agents["pod"].seen if "started" in x))[1]
        assert state.startswith(c.agents["pod"].socket) and len(glob.glob(state)) == 1, state
        op, agent = f"127.0.0.1:{c.op.http}", f"127.0.0.1:{c.agents['pod'].http}"
        shown = {"plan explain": wbctl("plan", "explain", "--operator", op),
                 "describe": wbctl("describe", "--json", "--operator", op),
                 "status": wbctl("status", "--agent", agent),
                 "verify": wbctl("verify", "--json", "--agent", agent)}
        c.until("times", lambda: "pod/worker 2" in wbctl("trace", "--operator", op))
        shown["trace"] = wbctl("trace", "--operator", op)
        for what, text in shown.items():
            if what != "verify":  # it names workers that differ
                assert "pod/worker 1 (rank 0)" in text and "pod/worker 2 (rank 0)" in text, (what, text)
            assert "worker 3" not in text and "worker 4" not in text, (what, text)


def what_is_not_there_yet_is_said_with_what_is():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        op = f"127.0.0.1:{c.op.http}"
        waits = "default/toy has no plan yet: waiting for 1 of 1 trainer workers"
        for words, code, sentence in (
                ("plan", 2, "'plan' is not all: plan explain"), ("plan explain", 1, waits),
                ("describe X", 1, "there is no object X; this operator has default/toy"),
                ("get X", 1, "there is no object X; this operator has default/toy"),
                ("trace X", 1, "there is no object X; this operator has default/toy"),
                ("trace", 0, "the trace is empty: there was no transfer yet")):
            p = subprocess.run([f"{BUILD}/bin/wbctl", *words.split(), "--operator", op],
                               capture_output=True, text=True, timeout=30, check=False)
            assert p.returncode == code and sentence in p.stderr, (words, p)
            assert len(p.stderr.splitlines()) == 1, (words, p)


if __name__ == "__main__":
    run(the_second_is_refused_and_the_first_never_notices,
        one_that_was_killed_and_started_again_is_in_at_once,
        one_that_hangs_loses_its_name_to_another, a_worker_has_one_name_everywhere_and_keeps_it,
        what_is_not_there_yet_is_said_with_what_is, together=2)
