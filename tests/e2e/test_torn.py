# SPDX-License-Identifier: Apache-2.0
"""Torn weights: nothing lands late in memory that is used again, everybody can see it, the worker
blocks and then raises, and the next transfer, or the same version sent again, repairs."""
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import threading
import time

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path.insert(0, os.path.join(TOP, "agent", "python"))

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from cluster import BUILD, Cluster, SLOW, run  # noqa: E402
from test_transfer import sent  # noqa: E402

DEADLINE_S = 2 * SLOW
# Half a deadline for the 16 MiB of Big: on a busy machine who is to die half-way dies late.
RATE = f"{max(1, 16 // SLOW)}M"
SIZE = {"rows": 2048, "cols": 1024, "tensors": 2}  # 16 MiB, in long runs: straight into parameters


def memory(worker):
    """The worker's parameters, through its memfd."""
    for fd in os.listdir(f"/proc/{worker.p.pid}/fd"):
        path = f"/proc/{worker.p.pid}/fd/{fd}"
        if "memfd:toy" in os.readlink(path):
            with open(path, "r+b") as f:
                return mmap.mmap(f.fileno(), SIZE["rows"] * SIZE["cols"] * SIZE["tensors"] * 4)
    raise AssertionError("the worker has no memfd")


def phase(c, pod):
    s = json.loads(c.get(c.agents[pod], "/status")[1])
    return s["objects"][0]["engines"][0]["phase"] if s["objects"] else "?"


def start(c, transport="tcp", fault=None):
    small = {"bufferSize": "64Mi"}
    c.operator(trainers=1, per_engine=1, engines=1, transferDeadlineSeconds=DEADLINE_S,
               trainer=small, rollout=small)
    # The whole takes a second: there is time to stop somebody in the middle.
    for pod in ("t0", "r0"):
        c.agent(pod, "--transport", transport, "--rail-rate", "16M",
                env={"WB_FAULT": fault} if fault and pod == "t0" else None)
    t = c.worker("t0", "trainer", **SIZE)
    r = c.worker("r0", "rollout", engine="e0", **SIZE)
    t.expect("planned")
    r.expect("planned")
    t.say("send 1")
    sent([t], 1, "Committed")
    r.expect("update 1 ok")
    return t, r


def is_torn_everywhere(c, r):
    """In the agent's metrics and state, at the operator, in wbctl."""
    c.until("Torn in the state", lambda: phase(c, "r0") == "Torn", 4 * DEADLINE_S + 10)
    assert 'wb_engine_updates_total{state="Torn"} 1' in c.get(c.agents["r0"], "/metrics")[1]
    c.agents["r0"].expect(r"engine ended .*state=Torn .*reason=\S", reject=None)
    page = f"127.0.0.1:{c.agents['r0'].http}"
    p = subprocess.run([f"{BUILD}/bin/weightbridge-agent", "--probe", "ready", "--http", page],
                       capture_output=True, text=True, timeout=30, check=False)
    assert p.returncode == 1 and "engine e0 is Torn" in p.stderr, p

    def shown():
        said = subprocess.run([f"{BUILD}/bin/wbctl", "describe", "--operator",
                               f"127.0.0.1:{c.op.http}"], capture_output=True, text=True,
                              check=True).stdout
        return re.search(r"e0 +Torn ", said)
    c.until("Torn in wbctl describe", shown)


def late_writes_land_nowhere(transport):
    with Cluster() as c:
        t, r = start(c, transport)
        params = memory(r)
        before = params[::4096]  # a look has to be quick
        t.say("send 2")
        c.until("bytes of version 2", lambda: params[::4096] != before)
        c.agents["t0"].p.send_signal(signal.SIGSTOP)
        assert phase(c, "r0") == "Moving", "it was over too soon to be stopped"
        is_torn_everywhere(c, r)
        c.until("the worker has raised", lambda: any(
            re.match("error -4006 poll: .*mix of two versions", line)
            for line in r.drain() + r.seen), 4 * DEADLINE_S + 10)
        reused = os.urandom(1 << 20) * (len(params) >> 20)
        params[:] = reused  # the program does something else with this memory
        c.agents["t0"].p.send_signal(signal.SIGCONT)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert params[:] == reused, "a byte of version 2 landed after the end of its transfer"
            time.sleep(0.02)
        t.expect(r"(sent 2 |error .*transfer|error .*went away).*", reject=None)
        t.say("send 3")
        r.expect("update 3 ok", reject=" bad")
        sent([t], 3, "Committed")


def a_sender_that_wakes_up_after_the_deadline_writes_nothing_tcp():
    late_writes_land_nowhere("tcp")


def a_sender_that_wakes_up_after_the_deadline_writes_nothing_shm():
    late_writes_land_nowhere("shm")


def torn_blocks_then_raises_and_is_repaired(version):
    with Cluster() as c:
        t, r = start(c, fault="kill=send:version=2:chunk=3")
        t.say("send 2")
        assert c.agents["t0"].wait() == -9
        began = time.monotonic()
        is_torn_everywhere(c, r)
        assert not any("update 2" in line or "error" in line for line in r.drain()), r.seen
        r.expect("error -4006 poll: .*mix of two versions", reject="update 2", timeout=4 * DEADLINE_S + 60)
        print(f"  blocked {time.monotonic() - began:.1f} s, then raised")
        assert time.monotonic() - began > 0.9 * DEADLINE_S
        t.expect("error .*", reject=None)
        c.agent("t0", "--rail-rate", "16M")
        t.say(f"send {version}")  # attaches again
        r.expect(f"update {version} ok", reject=" bad")
        sent([t], version, "Committed")
        assert phase(c, "r0") != "Torn"


def the_next_transfer_repairs():
    torn_blocks_then_raises_and_is_repaired(3)


def the_same_version_sent_again_repairs():
    torn_blocks_then_raises_and_is_repaired(2)


class Big:
    """16 MiB of parameters and a loader that copies them."""

    def __init__(self):
        self.params = {"w": np.zeros((2048, 2048), np.float32)}

    def load(self, weights):
        for _, t in weights:
            self.params["w"][...] = t

    def adapter(self, c, kind, pod, **kw):
        a = kind(self.load, params=self.params, manifest=[("w", (2048, 2048), "F32")],
                 socket=c.agents[pod].socket, connect_timeout=30 * SLOW, **kw)
        a.thread = threading.Thread(target=a.connect, daemon=True)
        a.thread.start()
        return a

    def fill(self, version):
        self.params["w"][...] = np.random.default_rng(version).standard_normal((2048, 2048),
                                                                               np.float32)


def hooks_see_a_mix_only_before_its_repair():
    """The Python adapters: what hooks are called with while an update becomes Torn, a repair is
    refused by a hook, and another one is not."""
    with Cluster() as c:
        small = {"bufferSize": "64Mi"}
        # At RATE a transfer takes half of DEADLINE_S, and more where the rails wake up late.
        c.operator(trainers=1, per_engine=1, engines=1, transferDeadlineSeconds=5 * DEADLINE_S,
                   trainer=small, rollout=small)
        for pod in ("t0", "r0"):
            c.agent(pod, "--rail-rate", RATE)
        seen, refuse, s, r = [], [3], Big(), Big()

        def before(version):
            seen.append(("before", version, receiver.torn))
            if version in refuse:
                refuse.remove(version)
                raise KeyError("not now")

        sender = s.adapter(c, wb.SenderAdapter, "t0", reconnect_timeout=30 * SLOW)
        receiver = r.adapter(c, wb.ReceiverAdapter, "r0", engine="e0", repair_timeout=2 * DEADLINE_S,
                             before_update_hook=before, after_update_hook=lambda v: seen.append(
                                 ("after", v, receiver.torn, r.params["w"].tobytes() == want(v))))
        for a in (sender, receiver):
            a.thread.join(30 * SLOW)
            assert not a.thread.is_alive()

        def want(version):
            m = Big()
            m.fill(version)
            return m.params["w"].tobytes()

        def kill_half_way():
            one = np.frombuffer(want(1), np.float32).reshape(2048, 2048)
            c.until("a byte of version 2", lambda: (r.params["w"] != one).any())
            c.agents["t0"].kill()

        def send(version):
            """In a thread; what became of it."""
            said = []

            def one():
                try:
                    said.append(sender.send_weights(version).wait(30 * SLOW))
                except wb.WeightBridgeError as e:
                    said.append(e)
            s.fill(version)
            t = threading.Thread(target=one, daemon=True)
            t.start()
            return t, said

        def poll():
            end = time.monotonic() + 30 * SLOW
            while time.monotonic() < end:
                update = receiver.poll_requests()
                if update:
                    return update
            raise AssertionError(f"no update: {seen}")

        send(1)
        assert poll().version == 1
        assert seen == [("before", 1, False), ("after", 1, False, True)], seen
        del seen[:]
        send(2)
        killer = threading.Thread(target=kill_half_way, daemon=True)
        killer.start()
        try:
            poll()
            raise AssertionError("it serves a mix")
        except wb.WeightsTorn as e:
            print(f"  {e}")
        killer.join(30 * SLOW)
        assert seen == [("before", 2, False)] and receiver.torn, seen
        assert r.params["w"].tobytes() not in (want(1), want(2)), "no mix: the test is too slow"
        c.agent("t0", "--rail-rate", RATE)
        t, said = send(3)
        try:
            poll()
            raise AssertionError("it serves a mix")
        except wb.WeightsTorn as e:
            assert isinstance(e.__cause__, KeyError), repr(e.__cause__)
        t.join(30 * SLOW)
        assert seen[1:] == [("before", 3, True)] and receiver.torn, seen
        send(4)
        assert poll().version == 4 and not receiver.torn
        assert seen[2:] == [("before", 4, True), ("after", 4, False, True)], seen
        assert phase(c, "r0") != "Torn"
        receiver.close()


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [hooks_see_a_mix_only_before_its_repair,  # it takes as long as all others
             a_sender_that_wakes_up_after_the_deadline_writes_nothing_tcp,
             a_sender_that_wakes_up_after_the_deadline_writes_nothing_shm,
             the_next_transfer_repairs, the_same_version_sent_again_repairs]
    run(*[t for t in tests if not names or t.__name__ in names], together=2)
