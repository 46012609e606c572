# SPDX-License-Identifier: Apache-2.0
"""release_memory and acquire_memory: nothing of a worker's memory is left at its agent, and when it
is back, elsewhere, the next version arrives under the same plan."""
import glob
import json
import os
import signal
import sys
import threading

from cluster import SANITIZED, Cluster, run
from test_loaders import Model, adapter, connected, wb
from test_modes import MODES
from test_transfer import deploy, quit_all, send, sent, updated

MEMORY = ("memfd:toy", "memfd:weightbridge staging", "memfd:weightbridge (")  # toys', areas, Python's


def memory_of(proc):
    """Mappings and descriptors of parameters and staging areas in a process."""
    pid, found = proc.p.pid, []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        found += [line.split(None, 5)[5].strip() for line in f if "memfd:" in line]
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            found.append(os.readlink(fd))
        except OSError:
            pass
    return [x for x in found if any(m in x for m in MEMORY)]


def shared_kb(proc):
    with open(f"/proc/{proc.p.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssShmem"))


def epoch(c):
    """What must not change: the plan, who is in it, and what was sent to the operator for it."""
    out = {}
    for name, a in c.agents.items():
        s = json.loads(c.get(a, "/status")[1])
        for o in s["objects"]:
            out[name] = (s["operator"]["term"], s["operator"]["number"],
                         [(w["id"], w["map"]) for w in s["workers"]])
    return out


def do(workers, what, answer):
    for w in workers:
        w.say(what)
    for w in workers:
        w.expect(answer)


def nothing_is_left(c, rss, shm):
    """At once in the workers' own agents; over shared memory the others' hear of it a moment later."""
    for name, a in c.agents.items():
        if shm:
            c.until(f"no memory of workers in {name}", lambda a=a: not memory_of(a))
        assert memory_of(a) == [], (name, memory_of(a))
        assert shared_kb(a) < 1024 or shared_kb(a) < rss[name] / 4, (rss, shared_kb(a))


def memory_goes_and_comes(mode="none", rows=2048, **kw):
    with Cluster() as c:
        t, r = deploy(c, operator=MODES[mode], rows=rows, cols=512, **kw)
        rollouts = r["e0"]
        send(t, 1)
        sent(t, 1, "Committed")
        updated(rollouts, 1)
        before, rss = epoch(c), {n: shared_kb(a) for n, a in c.agents.items()}
        for v in (2, 4):
            do(t + rollouts, "sleep", "^asleep")
            nothing_is_left(c, rss, "shm" in kw.get("args", ()))
            for w in rollouts:
                assert memory_of(w) == [], memory_of(w)
            do(t[:1], "sleep", "^asleep")  # again is nothing
            do(t, "wake", "^awake")
            # A transfer that comes while the engine sleeps: refused at once, by name.
            for w in t:
                w.say(f"send {v}")
            for w in t:
                said = w.expect(r"error .*|sent .*", reject=None).string
                assert "has released its memory" in said and "r0/worker" in said, said
            do(rollouts, "wake", "^awake")
            send(t, v + 1)
            sent(t, v + 1, "Committed")
            updated(rollouts, v + 1)
            assert epoch(c) == before, (before, epoch(c))
        print(f"  {mode} {kw}: RssShmem of agents, kB: {rss} awake")
        quit_all(t + rollouts)


def pages_of_a_transfer_that_is_not_over_go_with_it():
    """Trainers sleep as soon as what they send is in their snapshots; those are read still, and go with the slots when
    that is over."""
    with Cluster() as c:
        t, r = deploy(c, operator=MODES["trainer"], rows=2048, cols=512)
        agent = c.agents["t0"]
        stopped = r["e0"][0].p  # nothing is read of the snapshots before it goes on
        stopped.send_signal(signal.SIGSTOP)
        try:
            do(t, "doze 1", "^asleep")
            before, status = shared_kb(agent), json.loads(c.get(agent, "/status")[1])
        finally:
            stopped.send_signal(signal.SIGCONT)
        assert status["busy"], status
        assert before >= 2048 * 512 * 4 >> 10, before  # all that both send
        for w in t:
            w.expect("sent 1 .*Committed")
        updated(r["e0"], 1)
        print(f"  at sleep: RssShmem {before} kB", flush=True)
        c.until("pages are given back", lambda: shared_kb(agent) < 1024)
        do(t, "wake", "^awake")
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r["e0"], 2)


def of_parameters():
    memory_goes_and_comes()


def of_private_heap():
    memory_goes_and_comes(heap=True)


def of_snapshots_and_staging_areas():
    memory_goes_and_comes("both")
    memory_goes_and_comes("both", rows=4096 if SANITIZED else 16384)  # the loop does not wait for so many pages
    memory_goes_and_comes("both", heap=True)


def over_shared_memory():
    memory_goes_and_comes(args=["--transport", "shm"])


def an_agent_that_restarts_meanwhile_gets_the_new_memory():
    with Cluster() as c:
        t, r = deploy(c)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"], 1)
        do(r["e0"], "sleep", "^asleep")
        c.agents["r0"].kill()
        c.agent("r0")
        do(r["e0"], "wake", "^awake")
        c.until("planned again", lambda: c.get(c.agents["r0"], "/readyz")[0] == 200)
        send(t, 2)
        sent(t, 2, "Committed")
        updated(r["e0"], 2)


def an_engine_that_slept_through_a_version_is_fed_when_it_wakes():
    with Cluster() as c:
        t, r = deploy(c, engines=2)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"] + r["e1"], 1)
        do(r["e1"], "sleep", "^asleep")
        send(t, 2)
        sent(t, 2, "e0=Committed e1=Aborted", reject=None)
        updated(r["e0"], 2)
        do(r["e1"], "wake", "^awake")
        updated(r["e1"], 2)  # from e0: no trainer takes part
        send(t, 3)
        sent(t, 3, "e0=Committed e1=Committed")
        updated(r["e0"] + r["e1"], 3)


def sending_while_asleep_is_refused_here():
    with Cluster() as c:
        t, r = deploy(c)
        do(t[:1], "sleep", "^asleep")
        t[0].say("sendonly 1")
        t[0].expect(r"error -22 .*released its memory: acquire_memory", reject=None)
        do(t[:1], "wake", "^awake")
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"], 1)


def adapters(shared):
    """The Python adapters, colocated in one pod; parameters come back as other arrays."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, engines=1)
        c.agent("pod")
        make = (lambda m: {k: wb.SharedMemoryPool().copy(a) for k, a in m.params.items()}) if shared \
            else (lambda m: {k: a.copy() for k, a in m.params.items()})
        a, b = Model(1.0), Model(0.0)
        a.params, b.params = make(a), make(b)
        s, r = adapter(c, wb.SenderAdapter, a), adapter(c, wb.ReceiverAdapter, b)
        connected(s, r)

        def move(version):
            got = []
            th = threading.Thread(target=lambda: got.append(r.update()), daemon=True)
            th.start()
            s.send_weights(version).wait(30)
            th.join(30)
            assert got and got[0].version == version
            assert all((b.params[k] == a.params[k]).all() for k in a.params)
        move(1)
        for x in (s, r):
            x.release_memory(10)
            x.release_memory(10)
        a.params, b.params = make(a), make(b)
        for x, m in ((s, a), (r, b)):
            x.acquire_memory(params=m.params)
        for p in a.params.values():
            p *= 3
        move(2)
        r.release_memory(10)
        assert r.poll_requests() is None
        try:
            s.send_weights(3).wait(30)
            raise AssertionError("a sleeping engine took a transfer")
        except wb.WeightBridgeError as e:
            assert "released its memory" in str(e), e
        r.acquire_memory(kept=True)  # the same arrays, the same content
        move(4)
        s.close(10)
        r.close(10)


def of_the_python_adapters():
    adapters(False)
    adapters(True)


def move(s, a, r, b, version):
    got = []
    th = threading.Thread(target=lambda: got.append(r.update()), daemon=True)
    th.start()
    s.send_weights(version).wait(30)
    th.join(30)
    assert got and got[0].version == version
    assert all((b.params[k] == a.params[k]).all() for k in a.params)


def parameters_that_move_are_rebound(heap=True):
    """Other arrays under the same names, without a word: refused on either side, and taken where
    they are now after rebind()."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, engines=1)
        c.agent("pod")
        a, b = Model(1.0), Model(0.0)
        s, r = adapter(c, wb.SenderAdapter, a), adapter(c, wb.ReceiverAdapter, b)
        connected(s, r)
        move(s, a, r, b, 1)
        for m, one in ((a, s), (b, r)):
            first = dict(m.params)
            for k, array in first.items():
                m.params[k] = array * 3
                array[...] = -1
            if one is s:
                try:
                    s.send_weights(2)
                    raise AssertionError("memory that is no parameter any more was sent")
                except wb.ParametersMoved as e:
                    assert "parameters, weight (its storage is another one), bias" in str(e), e
            else:
                raised = []

                def poll(raised=raised):
                    try:
                        r.update()
                    except wb.ParametersMoved as e:
                        raised.append(e)
                th = threading.Thread(target=poll, daemon=True)
                th.start()
                try:
                    s.send_weights(4).wait(30)
                    raise AssertionError("memory that is no parameter any more was written")
                except wb.TransferAborted as e:
                    assert "ParametersMoved" in str(e), e
                th.join(30)
                assert raised and raised[0].names == ["weight", "bias"], raised
            one.rebind(timeout=10)
            move(s, a, r, b, 3 if one is s else 5)
            assert all((array == -1).all() for array in first.values())
        before = {k: p.copy() for k, p in b.params.items()}
        b.params["bias"] = b.params["bias"].astype("float64")
        try:
            r.rebind()
            raise AssertionError("another type was taken")
        except wb.WeightBridgeError as e:
            assert "parameter bias is not what the map was made for: float64 as I32" in str(e), e
        b.params["bias"] = before["bias"]
        r.rebind()
        move(s, a, r, b, 6)
        s.close(10)
        r.close(10)


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [of_parameters, of_private_heap, of_snapshots_and_staging_areas, over_shared_memory,
             an_agent_that_restarts_meanwhile_gets_the_new_memory,
             an_engine_that_slept_through_a_version_is_fed_when_it_wakes,
             pages_of_a_transfer_that_is_not_over_go_with_it, sending_while_asleep_is_refused_here, of_the_python_adapters,
             parameters_that_move_are_rebound]
    run(*[t for t in tests if not names or t.__name__ in names])
