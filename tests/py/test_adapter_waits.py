# SPDX-License-Identifier: Apache-2.0
"""What the adapters' calls wait for, how that ends, and what they say meanwhile."""

import errno
import io
import logging
import sys
import threading
import time

import numpy as np

from test_adapters import raises, sender  # first: it finds the package

import fake_agent as fa
import weightbridge as wb
from weightbridge import errors, progress

TESTS = []


def test(f):
    TESTS.append(f)
    return f


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
            e = in_time(lambda: t.send_weights(7, timeout=0.1))
            assert type(e) is wb.WeightBridgeTimeout, repr(e)
            assert "not sent after 0.1 s: " in str(e) and "is suspended" in str(e), repr(e)
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


def main():
    for f in TESTS:
        f()
        print("ok", f.__name__, flush=True)


if __name__ == "__main__":
    main()
