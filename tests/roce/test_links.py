# SPDX-License-Identifier: Apache-2.0
"""Links that go down and come up while a transfer moves over them: what heals, what moves to the other wire, and what is
named."""
import re
import time

from rdma import Wired
from test_transfer import engine, sent, updated
from wire import Crossing, down, run

MIB = 16
RATE = 2_000_000  # bytes/s of a rail: a transfer takes 4 s over two
DEADLINE_S = 60


def start(c, deadline=DEADLINE_S):
    """One trainer, one engine of one worker."""
    small = {"bufferSize": "64Mi"}
    c.operator(trainers=1, per_engine=1, engines=1, trainer=small, rollout=small, transferDeadlineSeconds=deadline)
    for name in ("t0", "r0"):
        c.agent(name)
    size = {"rows": 128 * MIB, "cols": 1024, "tensors": 2}
    t, r = c.worker("t0", "trainer", **size), engine(c, 0, 1, **size)[0]
    for w in (t, r):
        w.expect("planned")
    return t, r


def arrives(t, r, version):
    t.say(f"send {version}")
    ends(t, r, version)


def ends(t, r, version):
    print("  ", sent([t], version, "e0=Committed")[0], flush=True)
    updated([r], version)


def is_half_way(c, before):
    return sum(c.moved("r0", "rx")) - before >= MIB << 19


def goes_half_way(c, t, version):
    before = sum(c.moved("r0", "rx"))
    t.say(f"send {version}")
    c.until("half of it", lambda: is_half_way(c, before))


def lost(c, name="r0"):
    """What an agent's log says of queue pairs that were lost."""
    a = c.agents[name]
    a.drain()
    return [x for x in a.seen if "queue pair is lost" in x]


def a_link_that_goes_down_gives_its_load_to_the_other_and_is_named():
    with Wired(rate=RATE // 3) as c:  # the operator hears of it with a heartbeat: every few seconds
        t, r = start(c)
        assert c.degraded()["reason"] == "AsExpected", c.degraded()
        goes_half_way(c, t, 1)
        with Crossing() as x:
            with down(0):
                c.until("the port that is down is told", lambda: c.degraded()["reason"] == "ReducedRails")
                said = c.degraded()["message"]
                assert not [line for line in r.drain() if line.startswith("update")], "it was told after the transfer"
                ends(t, r, 1)
        print("  ", said, x.bytes)
        assert re.search(r"rxe_[ab]0 port 1 .*is down, 1 of 2 ports are up", said), said
        assert x["va1"] > MIB << 18, x.bytes
        assert any("rxe_b0 port 1" in line for line in lost(c)), lost(c)
        assert not any("rxe_b1" in line for line in lost(c)), lost(c)
        c.until("it is up again", lambda: c.degraded()["reason"] == "AsExpected")
        with Crossing() as x:
            arrives(t, r, 2)
        assert min(x["va0"], x["va1"]) > MIB << 18, x.bytes


def knows_of_ports_down(c, name):
    a = c.agents[name]
    a.drain()
    return len([x for x in a.seen if re.search("verbs: port .*is=down", x)])


def an_outage_of_all_links_heals_within_the_transfer():
    with Wired(rate=RATE) as c:
        t, r = start(c)
        goes_half_way(c, t, 1)
        with down(0), down(1):
            c.until("both ports are known to be down", lambda: knows_of_ports_down(c, "r0") == 2)
        ends(t, r, 1)
        arrives(t, r, 2)


def fails_by_name(t, version, *words):
    t0 = time.monotonic()
    t.say(f"send {version}")
    said = t.expect(rf"error -\d+ send: .*|sent {version} .*", timeout=DEADLINE_S, reject=None).string
    print("  ", said, f"{time.monotonic() - t0:.1f} s", flush=True)
    assert said.startswith("error") and all(re.search(x, said) for x in words), said


def an_outage_of_all_links_beyond_the_deadline_has_a_name():
    with Wired() as c:
        t, r = start(c, deadline=12)
        arrives(t, r, 1)
        with down(0), down(1):
            fails_by_name(t, 2, "connection with agent t0 was lost", r"rxe_b[01] port 1 \(GID .*\) is down, 0 of 2 ports are up")
        arrives(t, r, 3)


if __name__ == "__main__":
    run([a_link_that_goes_down_gives_its_load_to_the_other_and_is_named, an_outage_of_all_links_heals_within_the_transfer,
         an_outage_of_all_links_beyond_the_deadline_has_a_name])
