# SPDX-License-Identifier: Apache-2.0
"""Who leads, on a cluster of objects in memory.

The operator's loop stands still for longer than a Lease is held: it leads all the same, and goes on.  So it is on a
machine that gives it little time while thousands of objects are listed or deleted.  Its first thread, which runs that
loop, is held by ptrace.

An agent that comes before it is known who leads is told so, and comes again: it does not wait for an answer until it
gives up, as after every change of the leader it would."""
import ctypes
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
from fakeapi import FakeApi, Operator, pod, transfer, until  # noqa: E402

STILL_S = 12  # a Lease that is not renewed for 10 s is lost
REJECT, WELCOME = 0x203, 0x202
SEIZE, INTERRUPT, DETACH, ANY_CHILD = 0x4206, 0x4207, 17, 0x40000000


class Held:
    """The first thread of a child does not run."""

    def __init__(self, pid):
        self.pid, self.libc = pid, ctypes.CDLL(None, use_errno=True)

    def ask(self, what):
        if self.libc.ptrace(ctypes.c_long(what), self.pid, None, None) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    def __enter__(self):
        try:
            self.ask(SEIZE)
        except PermissionError as e:
            print(f"ptrace of a child is not allowed here: {e}")
            sys.exit(77)
        self.ask(INTERRUPT)
        assert os.waitpid(self.pid, ANY_CHILD)[0] == self.pid

    def __exit__(self, *exc):
        self.ask(DETACH)


def renewed(api):
    return api.lease and api.lease["spec"]["renewTime"]


def an_agent_that_comes_before_anybody_leads_is_told_so():
    with tempfile.TemporaryDirectory() as d, FakeApi(d) as api:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        other = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now,
                 "leaseTransitions": 1}  # and it says nowhere where it is
        api.lease = {"metadata": {"name": "weightbridge-operator", "namespace": "default", "resourceVersion": "1"}, "spec": other}
        api.put("weighttransfers", transfer("n", "t"))
        token = f"pod n a {api.put('pods', pod('n', 'a', 't'))['metadata']['uid']}"
        with Operator(api) as op:
            kind, body, s = op.hello(token, "a", "n/t")
            s.close()
            assert kind == REJECT and "does not lead" in body["sentence"], (kind, body)
            api.lease["spec"]["holderIdentity"] = ""
            until("it leads", lambda: op.metric("wb_leader") == 1)

            def is_let_in():
                kind, _, s = op.hello(token, "a", "n/t")
                s.close()
                return kind == WELCOME
            until("the agent is let in", is_let_in)


def leads_on_while_its_loop_stands_still():
    with tempfile.TemporaryDirectory() as d, FakeApi(d) as api, Operator(api) as op:
        until("it leads", lambda: op.metric("wb_leader") == 1)
        first, seen = dict(api.lease["spec"]), set()
        with Held(op.p.pid):
            end = time.monotonic() + STILL_S
            while time.monotonic() < end:
                seen.add(renewed(api))
                time.sleep(0.05)
        assert op.p.poll() is None, op.text()[-2000:]
        api.put("weighttransfers", transfer("victim", "v"))
        until("an object is served", lambda: api.status("victim", "v").get("conditions"))
        assert op.metric("wb_leader") == 1 and "leads no more" not in op.text(), op.text()[-2000:]
        now = api.lease["spec"]
        assert {k: now[k] for k in ("holderIdentity", "leaseTransitions", "acquireTime")} == \
            {k: first[k] for k in ("holderIdentity", "leaseTransitions", "acquireTime")}, (first, now)
        assert len(seen) >= 3, seen
        print(f"{STILL_S} s without its loop: {len(seen) - 1} renewals")
        op.p.terminate()
        assert op.p.wait(30) == 0 and not api.lease["spec"]["holderIdentity"], api.lease  # given up in order


if __name__ == "__main__":
    an_agent_that_comes_before_anybody_leads_is_told_so()
    leads_on_while_its_loop_stands_still()
