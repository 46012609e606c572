# SPDX-License-Identifier: Apache-2.0
"""The trainer's pod dies in mid-transfer, and an engine that receives in place holds a mix of two versions: one that is
whole brings it what it holds, whether the trainer comes back, as another pod, or not at all; and one that no engine can
bring anything is not parked for good, but repaired by the next version of whoever is the trainer then."""
import json
import re
import time

from cluster import Cluster, run
from test_torn import SIZE, memory
from test_transfer import send, sent, updated


def start(c, **spec):
    small = {"bufferSize": "64Mi"}
    c.operator(trainers=1, per_engine=1, engines=2, trainer=small, rollout=small, **spec)
    for pod in ("t0", "r0", "r1"):
        c.agent(pod, "--rail-rate", "16M")  # the whole takes a second: there is time to end it in the middle
    t = c.worker("t0", "trainer", **SIZE)
    r = [c.worker(f"r{e}", "rollout", engine=f"e{e}", **SIZE) for e in (0, 1)]
    for w in (t, *r):
        w.expect("planned")
    send([t], 1)
    sent([t], 1, "e0=Committed e1=Committed")
    updated(r, 1)
    return t, r


def tear(c, t, r, torn):
    """The trainer's pod dies when engines `torn` have bytes of version 2; others are in their first hook."""
    params = {e: memory(r[e]) for e in torn}
    before = {e: params[e][:] for e in torn}
    for e in {0, 1} - set(torn):
        r[e].say("hook 3000")
        r[e].expect("hooks 3000")
    send([t], 2)
    for e in torn:
        c.until("bytes of version 2", lambda e=e: params[e][:] != before[e])
    c.agents["t0"].kill()
    t.kill()
    for e in torn:
        c.agents[f"r{e}"].expect("engine ended transfer=2 .*state=Torn", reject=None)


def checked(r, version):
    for w in r:
        w.say(f"check {version}")
        w.expect(f"check {version} ok", reject=" bad")


def one_is_torn(successor):
    def test():
        with Cluster() as c:
            t, r = start(c, heartbeatTimeoutSeconds=5)
            tear(c, t, r, [0])
            began = time.monotonic()
            if successor:
                c.agent(successor)
                t = c.worker(successor, "trainer", **SIZE)
            r[0].expect("update 1 ok", timeout=60)  # from its neighbour
            print(f"  torn for {time.monotonic() - began:.1f} s", flush=True)
            r[1].say("hook 0")
            checked(r, 1)
            if not successor:
                return
            t.expect("planned")
            for v in (3, 4):
                send([t], v)
                sent([t], v, "e0=Committed e1=Committed")
                updated(r, v)
    test.__name__ = f"one_is_torn: {successor or 'no trainer comes'}"
    return test


def both_are_torn(successor):
    def test():
        with Cluster() as c:
            t, r = start(c, heartbeatTimeoutSeconds=5)
            tear(c, t, r, [0, 1])
            began = time.monotonic()
            c.agent(successor)
            t = c.worker(successor, "trainer", **SIZE)
            t.expect("planned")
            print(f"  planned after {time.monotonic() - began:.1f} s", flush=True)
            for v in (3, 4):
                send([t], v)
                sent([t], v, "e0=Committed e1=Committed")
                updated(r, v)
            status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
            torn = [x for x in status["recentTransfers"] if x["transfer"] == 2]
            assert [x["result"] for x in torn] == ["Torn"], torn
            assert not re.search("Torn", json.dumps(status["engines"])), status["engines"]
    test.__name__ = f"both_are_torn: {successor}"
    return test


if __name__ == "__main__":
    import sys
    tests = [*[one_is_torn(x) for x in (None, "t0", "t1")], *[both_are_torn(x) for x in ("t0", "t1")]]
    run(*[t for t in tests if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])], together=2)
