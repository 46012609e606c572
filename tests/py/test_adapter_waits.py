# SPDX-License-Identifier: Apache-2.0
"""What the adapters' calls wait for, how that ends, and what they say meanwhile."""

import errno
import io
import logging
import os
import select
import signal
import sys
import threading
import time

import numpy as np

from fx_adapters import main, poll, raises, receiver, sender, test  # first: it finds the package

import fake_agent as fa
import weightbridge as wb
from weightbridge import errors, progress


def in_time(f, bound=20.0):
    """What f() raises; a wait that never ends is a failure."""
    raised = []

    def run():
        try:
            f()
        except BaseException as e:
            raised.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(bound)
    assert not thread.is_alive(), f"still waiting after {bound} s"
    assert raised, "nothing was raised"
    return raised[0]


@test
def deadline_that_the_agent_missed_ends_the_wait():
    """-ETIMEDOUT, -EAGAIN and -EINTR end a slice of a wait; from the agent they are the end."""
    for code in (-errno.ETIMEDOUT, -errno.EAGAIN, -errno.EINTR):
        def rejects(a):
            a.hello()
            a.expect(fa.ATTACH)
            a.attached()
            a.send(fa.REJECT, code, "planDeadlineSeconds are over")
            a.drop()

        with fa.Script(rejects) as s:
            e = in_time(lambda: sender(s.agent).connect(progress=False))
            assert "planDeadlineSeconds" in str(e), e

        def fails(a):
            a.up()
            a.expect(fa.SEND)
            a.state(1, 1, code, "not called by t1")  # before the parameters are let go
            a.expect(fa.SEND)
            a.state(2, 2)
            fails.returned.acquire(timeout=20)
            a.state(2, 3, code, "no engine was ready")
            a.expect(fa.SEND)
            a.state(3, 2)
            fails.returned.acquire(timeout=20)
            a.state(3, 3, code, "the third")
            a.expect(fa.DETACH)

        fails.returned = threading.Semaphore(0)
        with fa.Script(fails) as s:
            t = sender(s.agent).connect()
            e = in_time(lambda: t.send_weights(1))
            assert isinstance(e, wb.TransferAborted) and "not called by t1" in str(e), repr(e)
            two = t.send_weights(2)
            fails.returned.release()
            e = in_time(two.wait)
            assert isinstance(e, wb.TransferAborted) and "no engine was" in str(e), repr(e)
            assert two.state == "failed"
            three = t.send_weights(3)
            fails.returned.release()
            while three.state != "failed":
                time.sleep(0.001)
            e = in_time(lambda: t.send_weights(4))  # the third's end, which nobody has heard
            assert isinstance(e, wb.TransferAborted) and "the third" in str(e), repr(e)
            t.close()


@test
def signals_do_not_end_the_wait_for_memory():
    """Handlers of the application run meanwhile."""
    ran = threading.Event()

    def script(a):
        a.up()
        a.expect(fa.MEM_RELEASE)
        a.send(fa.MEM_RELEASED, 0, "")
        a.expect(fa.MEM_ACQUIRE)
        assert ran.wait(20)
        a.send(fa.MEM_ACQUIRED, 0, 0, "")
        a.expect(fa.DETACH)

    def handler(*_):
        nonlocal n
        n += 1
        if n == 3:
            ran.set()

    n, before = 0, signal.signal(signal.SIGALRM, handler)
    with fa.Script(script) as s:
        t = sender(s.agent).connect()
        t.release_memory(20)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            t.acquire_memory(timeout=20)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        t.close()


@test
def next_update_goes_on_after_a_transfer_that_was_aborted():
    """And tells of it, where no other comes within the timeout."""
    def script(a):
        a.up()
        for transfer, end in ((1, fa.ABORTED), (2, fa.COMMITTED), (3, fa.ABORTED)):
            assert script.go.acquire(timeout=20)
            a.set_stop(a.word()[0] + 1)
            a.send(fa.WAKE, 0)
            a.expect(fa.PARKED)
            a.send(fa.BEGIN, transfer, transfer * 10)
            a.expect(fa.BEGUN)
            a.end(transfer, end, "trainer-3 is gone" if end == fa.ABORTED else "")
            if end == fa.COMMITTED:
                a.expect(fa.RESUMED)
        a.recv()

    script.go = threading.Semaphore(2)
    with fa.Script(script) as s:
        with receiver(s.agent) as r:
            assert r.next_update(20).version == 20
            assert r.last_abort == "trainer-3 is gone"
            e = raises(wb.WeightBridgeTimeout, "no transfer came within 0.05 s", r.next_update, 0.05)
            assert "trainer-3" not in str(e), e  # it is of the call before
            script.go.release()
            while r.update(20) is not None:
                pass
            script_is_over = raises(wb.WeightBridgeTimeout, "no transfer came", r.next_update, 0.05)
            assert "trainer-3" not in str(script_is_over), script_is_over


@test
def parameters_may_change_when_a_transfer_given_up_at_its_timeout_has_read_them():
    """Released, or failed: then nobody reads them either."""
    for state, code in ((2, 0), (3, -4005)):
        def script(a, state=state, code=code):
            a.up()
            a.expect(fa.SEND)
            script.given_up.acquire(timeout=20)
            a.state(1, state, code, "no engine was ready" if code else "")
            if state != 3:  # else it is over, and the sender may have gone
                a.state(1, 3, code, "")
            a.expect(fa.DETACH)

        script.given_up = threading.Semaphore(0)
        with fa.Script(script) as s:
            t = sender(s.agent).connect()
            t.wait_released(0.0)  # nothing was sent yet
            raises(wb.WeightBridgeTimeout, "", t.send_weights, 1, timeout=0.05)
            raises(wb.WeightBridgeTimeout, "", t.wait_released, 0.05)
            script.given_up.release()
            t.wait_released(20.0)
            t.wait_released(0.0)
            t.close()


@test
def the_end_of_a_transfer_says_what_engines_have():
    for code, kind in ((-4005, wb.TransferAborted), (-4006, wb.WeightsTorn),
                       (-4008, wb.OutcomeUnknown)):
        def script(a, code=code):
            a.up()
            a.expect(fa.SEND)
            a.state(1, 3, code, "engine e0 went")
            a.expect(fa.DETACH)

        with fa.Script(script) as s:
            t = sender(s.agent).connect()
            e = in_time(lambda t=t: t.send_weights(1))
            assert type(e) is kind and isinstance(e, wb.TransferFailed), repr(e)
            assert "engine e0 went" in str(e), e
            t.close()


class Lines(logging.Handler):
    """What is logged; `wanted` is set by a line with `part`."""

    def __init__(self, part):
        super().__init__()
        self.lines, self.part, self.wanted = [], part, threading.Event()

    def emit(self, record):
        self.lines.append(record.getMessage())
        if self.part in self.lines[-1]:
            self.wanted.set()


def connecting(play, part, make, **kw):
    """Connect without a terminal, every line at once; `play` goes on at a line with `part`."""
    lines, log, every = Lines(part), logging.getLogger("weightbridge"), progress._EVERY
    log.addHandler(lines)
    progress._EVERY = 0.02
    try:
        with fa.Script(lambda a: play(a, lines.wanted)) as s:
            make(s.agent).connect(30, **kw).close()
    finally:
        progress._EVERY = every
        log.removeHandler(lines)
    return lines.lines


@test
def without_a_terminal_the_log_says_what_connect_waits_for():
    def silent(a, wanted):
        assert wanted.wait(20), "nothing was logged"
        a.up()
        a.recv()

    def unplanned(a, wanted):
        a.hello()
        a.expect(fa.ATTACH)
        a.attached()
        a.send(fa.STATUS, "waiting for rollout worker e1/0")
        assert wanted.wait(20), "nothing was logged"
        a.send(fa.PLANNED, 3, 5, "xxh128:" + "1" * 32, -1, 0)
        a.recv()

    assert not sys.stderr or not sys.stderr.isatty()
    for play, part in ((silent, "the agent has not answered yet"), (unplanned, "e1/0")):
        lines = connecting(play, part, sender)
        assert all("\033" not in x and "\r" not in x for x in lines), lines
        assert any(x.startswith("connect() has waited for ") for x in lines), lines
    assert "agent.sock" in connecting(silent, "agent.sock", sender)[0]


@test
def a_trainer_of_a_suspended_object_waits_and_says_so():
    def refused(a, times):
        for _ in range(times):
            a.expect(fa.SEND)
            a.state(0, 3, -errno.ECANCELED, "the WeightTransfer is suspended")

    def suspended(a):
        a.up()
        refused(a, 2)
        a.expect(fa.SEND)
        a.state(7, 2)
        a.state(7, 3)
        refused(a, 2)
        a.expect(fa.DETACH)

    lines, log = Lines("suspended"), logging.getLogger("weightbridge")
    log.addHandler(lines)
    try:
        with fa.Script(suspended) as s:
            t = sender(s.agent).connect()
            assert t.send_weights(7).wait(20).state == "final"
            assert [x.startswith("send_weights() waits, for 0 s now: ") for x in lines.lines] == [True], lines.lines
            e = in_time(lambda: t.send_weights(7, wait_suspended=False))
            assert type(e) is wb.TransferSuspended and "is suspended" in str(e), repr(e)
            e = in_time(lambda: t.send_weights(7, timeout=0.4))
            assert type(e) is wb.WeightBridgeTimeout, repr(e)
            assert "not sent after 0.4 s: " in str(e) and "is suspended" in str(e), repr(e)
            t.close()
    finally:
        log.removeHandler(lines)


@test
def a_trainer_whose_transfer_does_not_begin_says_what_is_awaited():
    missing = "waiting for 1 of 2 trainer workers, missing rank 1"

    def asked(a):
        a.up()
        a.send(fa.STATUS, missing)
        a.expect(fa.SEND)
        lines.wanted.wait(20)
        a.state(7, 2)
        a.state(7, 3)
        a.expect(fa.SEND)
        a.state(8, 2)
        a.state(8, 3)
        a.send(fa.STATUS, "")
        a.expect(fa.SEND)
        over.wait(20)
        a.state(9, 3)
        a.expect(fa.DETACH)

    over = threading.Event()
    lines, log = Lines("missing rank"), logging.getLogger("weightbridge")
    log.addHandler(lines)
    try:
        with fa.Script(asked) as s:
            t = sender(s.agent).connect()
            t.send_weights(7).wait(20)
            assert lines.lines == [f"send_weights() waits, for 1 s now: version 7 is not sent yet: {missing}"], lines.lines
            t.send_weights(8).wait(20)
            e = in_time(lambda: t.send_weights(9, timeout=0.4))
            assert type(e) is wb.WeightBridgeTimeout and "is asked for, not received, after 0.4 s" in str(e), repr(e)
            assert "missing" not in str(e) and t.awaited() == "", repr(e)
            over.set()
            t.close()
    finally:
        log.removeHandler(lines)


@test
def without_a_terminal_probing_is_told_in_plain_lines():
    probed, params = threading.Event(), {"p": np.zeros((4, 4), np.float32)}

    def load(weights):
        for _, tensor in weights:
            params["p"][...] = tensor
            probed.wait(20)

    def make(agent):
        return wb.SenderAdapter(load, params=params, manifest=[("t", (4, 4), "F32")],
                                socket=agent.path, connect_timeout=10)

    def play(a, wanted):
        a.hello()
        assert wanted.wait(20), "nothing was logged"
        probed.set()
        a.expect(fa.ATTACH)
        a.attached()
        a.send(fa.PLANNED, 3, 5, "xxh128:" + "1" * 32, -1, 0)
        a.recv()

    lines = connecting(play, "pass 1 of ", make)
    assert all("\033" not in x and "\r" not in x for x in lines), lines
    assert not connecting(lambda a, _: (a.up(), a.recv()), "", sender, progress=False)
    said, stderr = io.StringIO(), sys.stderr
    every, progress._EVERY, sys.stderr = progress._EVERY, 0.0, said
    try:
        wb.extract(load, [("t", (4, 4), "F32")], params, progress=True)
    finally:
        progress._EVERY, sys.stderr = every, stderr
    assert "pass 1 of" in said.getvalue() and "\033" not in said.getvalue(), said.getvalue()


@test
def a_failed_transfer_says_what_to_do():
    for code, part in ((fa.E_ABORTED, "engines keep the weights they had: call send_weights again"),
                       (errors.TORN, "repairs it"), (-errno.EPIPE, "Call send_weights again")):
        def play(a):
            a.up()
            a.expect(fa.SEND)
            a.state(1, 1, code, "worker 2 is gone")
            a.expect(fa.DETACH)

        with fa.Script(play) as s:
            t = sender(s.agent).connect()
            e = raises(wb.WeightBridgeError, part, t.send_weights, 1)
            assert "worker 2 is gone." in str(e), e
            t.close()


@test
def plan_that_does_not_come_names_who_is_missing():
    def play(a):
        a.hello()
        a.expect(fa.ATTACH)
        a.attached()
        a.send(fa.STATUS, "waiting for rollout worker e1/0")
        a.recv()

    with fa.Script(play) as s:
        e = raises(wb.WeightBridgeTimeout, "e1/0", sender(s.agent).connect, 0.1, False)
        assert "within 0.1 s" in str(e), e


@test
def second_thread_inside_send_weights_is_told_so():
    def play(a):
        a.up()
        a.expect(fa.SEND)
        a.state(1, 2)
        play.go.wait(10)
        a.state(1, 3)
        a.expect(fa.SEND)
        a.state(2, 3)
        a.recv()

    play.go = threading.Event()
    with fa.Script(play) as s:
        t = sender(s.agent).connect()
        t.send_weights(1)

        def send_second():
            while True:  # either of the two may be the one that is told
                try:
                    return t.send_weights(2)
                except wb.WeightBridgeError as e:
                    assert "another thread" in str(e), e
                    time.sleep(0.001)

        second = threading.Thread(target=send_second)
        second.start()
        for _ in range(10000):  # until the other one is inside
            e = raises(wb.WeightBridgeError, "", t.send_weights, 3, timeout=0)
            if "another thread" in str(e):
                break
            time.sleep(0.001)
        assert "another thread is inside send_weights" in str(e)
        play.go.set()
        second.join(10)
        assert not second.is_alive()
        t.close()


@test
def update_waits_and_fileno_wakes():
    def play(a):
        a.up()
        for transfer in (1, 2):
            play.go.wait(10)
            play.go.clear()
            time.sleep(0.05)  # the worker is inside its wait, most likely: both orders must work
            a.set_stop(a.word()[0] + 1)
            a.send(fa.WAKE, 0)
            a.expect(fa.PARKED)
            a.send(fa.BEGIN, transfer, transfer * 10)
            a.expect(fa.BEGUN)
            a.end(transfer, fa.COMMITTED)
            a.expect(fa.RESUMED)
        a.recv()

    play.go = threading.Event()
    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            t0 = time.monotonic()
            assert r.update(0.05) is None and time.monotonic() - t0 >= 0.05
            play.go.set()
            assert r.update(10).version == 10
            assert not select.select([r], [], [], 0)[0]
            play.go.set()
            update = None
            while update is None:
                assert select.select([r], [], [], 10)[0]
                update = r.poll_requests()
            assert update.version == 20


@test
def restarted_agent_gets_the_worker_back():
    def play(a):
        first = a.up()
        blobs = a.blobs
        a.drop()
        again = a.up()
        # But for the polls so far, of which there may be some before the loss is noticed.
        assert again[:fa.COUNT] + again[fa.COUNT + 1:] == first[:fa.COUNT] + first[fa.COUNT + 1:]
        assert a.blobs == blobs
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 1, 10)
        a.expect(fa.BEGUN)
        a.end(1, fa.COMMITTED)
        a.expect(fa.RESUMED)
        a.recv()

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            assert poll(r).version == 10


@test
def forked_child_is_told_and_harms_nothing():
    def play(a):
        a.up()
        a.expect(fa.DETACH)
        play.count = a.word()[0]

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            pid = os.fork()
            if pid == 0:
                try:
                    raises(wb.WeightBridgeError, "forked", r.poll_requests)
                    raises(wb.WeightBridgeError, "forked", r.update, 1)
                    r.close()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            r.poll_requests()
    assert play.count == 1


@test
def signal_reaches_a_waiting_worker():
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop()

    def play(a):
        a.up()
        a.recv()

    old = signal.signal(signal.SIGALRM, handler)
    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            t0 = time.monotonic()
            raises(Stop, "", r.update)
            assert time.monotonic() - t0 < 5
            assert r.poll_requests() is None
    signal.signal(signal.SIGALRM, old)


if __name__ == "__main__":
    main()
