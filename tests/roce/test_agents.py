# SPDX-License-Identifier: Apache-2.0
"""Whole deployments of processes over soft-RoCE: what agents count has crossed the wires, in each mode of staging."""
from rdma import Wired, counter
from test_modes import MODES
from test_transfer import engine, quit_all, send, sent, updated
from wire import Crossing, run

MIB = 1 << 20


def start(c, mib, trainers=1, per_engine=1, engines=2, args=(), **spec):
    """A trainer pod and one pod an engine; each matrix of two has half of `mib`."""
    small = {"bufferSize": "64Mi"}
    c.operator(trainers=trainers, per_engine=per_engine, engines=engines, trainer=dict(small), rollout=dict(small), **spec)
    for name in ("t0", *(f"r{e}" for e in range(engines))):
        c.agent(name)
    size = {"rows": 128 * mib, "cols": 1024, "tensors": 2}
    t = [c.worker("t0", "trainer", i, trainers, args=args, **size) for i in range(trainers)]
    r = sum((engine(c, e, per_engine, **size) for e in range(engines)), [])
    for w in t + r:
        w.expect("planned")
    return t, r


def arrives(t, r, version, engines=2):
    send(t, version)
    sent(t, version, " ".join(f"e{e}=Committed" for e in range(engines)))
    updated(r, version)


def all_end(c, workers):
    quit_all(workers)
    for a in c.agents.values():
        assert a.stop() == 0, a.drain()
    assert c.op.stop() == 0


def a_demo_of_32_mib_crosses_both_wires():
    """Two trainer workers and two engines; what each agent counts by rail is seen on the wires."""
    devices = [f"rxe_{end}{i}" for end in "ab" for i in range(2)]
    with Wired() as c:
        t, r = start(c, 32, trainers=2)
        arrives(t, r, 1)
        gets = {name: c.peers(name) for name in ("r0", "r1")}
        assert all(way == "verbs+soft" for x in gets.values() for way in x.values()), gets
        assert "t0" in gets["r0"] and "r0" in gets["r1"], gets
        before = {x: c.moved(*x) for x in (("r0", "rx"), ("r1", "rx"), ("r0", "tx"), ("t0", "tx"))}
        packets = [counter(d, "sent_pkts") for d in devices]
        with Crossing() as x:
            arrives(t, r, 2)
        moved = {k: [b - a for a, b in zip(v, c.moved(*k))] for k, v in before.items()}
        packets = [counter(d, "sent_pkts") - n for d, n in zip(devices, packets)]
        print("moved", moved, "crossed", x.bytes, "packets", dict(zip(devices, packets)), flush=True)
        to_b, to_a = sum(moved["r0", "rx"]), sum(moved["r0", "tx"])
        assert to_b >= 32 * MIB and sum(moved["r1", "rx"]) >= 32 * MIB and sum(moved["t0", "tx"]) >= 32 * MIB, moved
        # All that r0 gets comes from the ends `a`, and what it gives goes there.
        assert x["va0"] + x["va1"] >= to_b and x["vb0"] + x["vb1"] >= to_a > 0, (x.bytes, moved)
        assert min(x["va0"], x["va1"]) >= to_b / 4 and min(x["vb0"], x["vb1"]) >= to_a / 4, (x.bytes, moved)
        assert x["lo"] < 2 * MIB, x.bytes
        # A packet has 4 KiB at most, and both ends `a` are of one device each: theirs to each other count, too.
        assert min(packets) > 0 and sum(packets[:2]) >= to_b / 4096 and sum(packets[2:]) >= to_a / 4096, packets
        said_lost = [line for a in c.agents.values() for line in (a.drain(), a.seen)[1]
                     if "is lost" in line or "cannot be connected" in line]
        assert not said_lost, said_lost
        all_end(c, t + r)


def mode(name):
    def case():
        with Wired() as c:
            t, r = start(c, 8, args=["--scribble"] if name in ("trainer", "both") else [], **MODES[name])
            for v in (1, 2):  # the second is written over the first
                with Crossing() as x:
                    arrives(t, r, v)
                print(name, x.bytes)
                assert x["va0"] + x["va1"] >= 8 * MIB and x["vb0"] + x["vb1"] > 0 and x["lo"] < MIB, x.bytes
            all_end(c, t + r)
    case.__name__ = f"versions_arrive_with_staging_{name}"
    return case


if __name__ == "__main__":
    run([a_demo_of_32_mib_crosses_both_wires, *(mode(m) for m in ("none", "trainer", "rollout", "both"))])
