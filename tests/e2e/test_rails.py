# SPDX-License-Identifier: Apache-2.0
"""Agents with several rails: bytes are spread over all, a transfer takes as long as they need
together, and a rail that stands still, breaks or never works ends in a state that is named."""
import os
import re
import subprocess
import time

from cluster import SLOW, TIMEOUT, Cluster, run

RATE = 16_000_000  # bytes/s a rail: far below what a core moves
MIB = 16


def by_rail(c, agent, way, rails=2):
    found = re.findall(rf'^wb_bytes_total{{rail="(\d+)",dir="{way}"}} (\S+)$',
                       c.get(c.agents[agent], "/metrics")[1], re.MULTILINE)
    out = {int(rail): float(value) for rail, value in found}
    return [out[rail] for rail in range(rails)]


def deploy(c, env=None, rate=RATE, deadline=None, mib=MIB, rails=None):
    """A trainer and an engine of one worker each, an agent each, two rails, or by agent `rails`;
    `env` of the trainer's agent, which is the one that sends."""
    more = {"transferDeadlineSeconds": deadline} if deadline else {}
    c.operator(trainers=1, per_engine=1, trainer={"bufferSize": "64Mi"},
               rollout={"bufferSize": "64Mi"}, **more)
    for name in ("t0", "r0"):
        c.agent(name, *(rails[name] if rails else ("--rails", "2")), "--rail-rate", str(rate),
                env=env if name == "t0" else None)
    size = {"rows": 512 * mib, "cols": 512, "tensors": 1}
    t = c.worker("t0", "trainer", **size)
    r = c.worker("r0", "rollout", engine="e0", **size)
    for w in (t, r):
        w.expect("planned")
    return t, r


def transfer(t, r, version, state="Committed", timeout=TIMEOUT):
    """Seconds from send_weights until the engine runs again, as the trainer measured it."""
    t.say(f"send {version}")
    m = t.expect(rf"sent {version} seconds=([\d.]+) e0=({state})", timeout=timeout, reject=None)
    if state == "Committed":
        r.expect(f"update {version} ok", timeout=timeout)
    return float(m[1])


def both_rails_carry_the_bytes_in_the_time_of_both():
    with Cluster() as c:
        t, r = deploy(c)
        transfer(t, r, 1)
        before = by_rail(c, "r0", "rx"), by_rail(c, "t0", "tx")
        took = sorted(transfer(t, r, v) for v in (2, 3, 4))[1]
        after = by_rail(c, "r0", "rx"), by_rail(c, "t0", "tx")
        bound = (MIB << 20) / (2 * RATE)
        print(f"EWTT {took:.3f} s, bound of two rails {bound:.3f} s: {took / bound:.3f}")
        for b, a in zip(before, after):
            moved = [y - x for x, y in zip(b, a)]
            print("bytes by rail:", *[int(m) for m in moved])
            assert sum(moved) >= 3 * (MIB << 20), moved
            assert min(moved) >= 0.4 * sum(moved), moved


ADDRESSES = [f"127.0.0.{i}" for i in range(1, 5)]  # all of 127/8 is here


def served_at(port):
    """Addresses of this host where connections to a port have come in."""
    out = set()
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            at = bytes.fromhex(local.split(":")[0])
            if state == "01" and int(local.split(":")[1], 16) == port:
                out.add(".".join(str(b) for b in reversed(at)))
    return out


def all_of_four_rails_carry_bytes():
    """Each kind of rails on either side; one that has fewer uses what it has."""
    own = tuple(f"--rail={a}" for a in ADDRESSES)
    for t0, r0 in ((("--rails", "4"),) * 2, (own, own), (own, ("--rails", "1")), (("--rails", "1"), own)):
        with Cluster() as c:
            t, r = deploy(c, rails={"t0": t0, "r0": r0})
            transfer(t, r, 1)
            for agent, way, rails in (("r0", "rx", r0), ("t0", "tx", t0)):
                n = 1 if rails[-1] == "1" else 4
                moved = by_rail(c, agent, way, n)
                print("rails", *t0, "to", *r0, agent, way, *[int(m) for m in moved])
                assert sum(moved) >= MIB << 20, moved
                assert min(moved) >= 0.5 / n * sum(moved), moved
            if t0 == own:
                c.agents["t0"].drain()
                port = next(int(m[1]) for m in (re.search(r"agent: started .*port=(\d+)", x)
                                                for x in c.agents["t0"].seen) if m)
                assert served_at(port) == set(ADDRESSES), served_at(port)


EACH = 8  # workers of an agent, and rails


def eight_rails_of_eight_workers_carry_their_share():
    """Each trainer has rows and each rollout columns: every one of a side gets from all of the other."""
    with Cluster() as c:
        c.operator(trainers=EACH, per_engine=EACH, trainer={"bufferSize": "64Mi"}, rollout={"bufferSize": "64Mi"})
        for name, net in (("t0", 1), ("r0", 2)):
            c.agent(name, *(f"--rail=127.0.{net}.{i + 1},rate=4M" for i in range(EACH)))
        size = {"rows": 1024 * 2, "cols": 4096, "tensors": 1, "of": EACH}
        ts = [c.worker("t0", "trainer", i, rank=i, **size) for i in range(EACH)]
        rs = [c.worker("r0", "rollout", i, rank=i, engine="e0", cut="cols", **size) for i in range(EACH)]
        for w in (*ts, *rs):
            w.expect("planned")
        for t in ts:
            t.say("send 1")
        took = max(float(t.expect(r"sent 1 seconds=([\d.]+) e0=Committed")[1]) for t in ts)
        for r in rs:
            r.expect("update 1 ok")
        bound = (32 << 20) / EACH / 4e6
        print(f"EWTT {took:.3f} s, bound of eight rails {bound:.3f} s: {took / bound:.3f}")
        for agent, way in (("r0", "rx"), ("t0", "tx")):
            moved = by_rail(c, agent, way, EACH)
            print("bytes by rail", agent, way, *[int(m) for m in moved])
            assert sum(moved) >= 32 << 20, moved
            assert min(moved) >= 0.95 / EACH * sum(moved), moved


def a_slow_rail_is_helped_by_another_of_its_agent():
    """Each engine worker needs half of the model for itself; one of the two rails is a quarter as fast."""
    slow, fast, mib = 4_000_000, 16_000_000, 16
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2, trainer={"bufferSize": "64Mi"}, rollout={"bufferSize": "64Mi"})
        c.agent("t0", *(f"--rail=127.0.1.{i + 1},rate={fast}" for i in range(2)))
        c.agent("r0", f"--rail=127.0.2.1,rate={slow}", f"--rail=127.0.2.2,rate={fast}")
        size = {"rows": 512 * mib, "cols": 512, "tensors": 1, "of": 2}
        ts = [c.worker("t0", "trainer", i, rank=i, **size) for i in range(2)]
        rs = [c.worker("r0", "rollout", i, rank=i, engine="e0", **size) for i in range(2)]
        for w in (*ts, *rs):
            w.expect("planned")
        for v in (1, 2):
            for t in ts:
                t.say(f"send {v}")
            took = max(float(t.expect(rf"sent {v} seconds=([\d.]+) e0=Committed")[1]) for t in ts)
            for r in rs:
                r.expect(f"update {v} ok")
        together, alone = (mib << 20) / (slow + fast), (mib << 20) / 2 / slow
        moved = by_rail(c, "r0", "rx")
        print(f"EWTT {took:.3f} s, bound of both rails {together:.3f} s: {took / together:.3f}; of the slow one alone {alone:.3f} s; "
              "bytes by rail:", *[int(m) for m in moved])
        assert moved[0] < 0.3 * sum(moved), moved  # half, if nobody helped; the time is the machine's, too


def a_rail_that_stands_still_for_a_time_costs_that_time():
    with Cluster() as c:
        t, r = deploy(c, env={"WB_FAULT": "stall=rail1:700ms:chunk=6"})
        took = transfer(t, r, 1)
        assert took < 5 * SLOW, took
        transfer(t, r, 2)


def a_rail_that_breaks_in_mid_transfer_is_made_again():
    with Cluster() as c:
        t, r = deploy(c, env={"WB_FAULT": "drop=rail1:chunk=4"})
        for v in (1, 2):
            transfer(t, r, v)


def a_rail_that_never_works_ends_the_transfer_with_a_name():
    with Cluster() as c:
        t, r = deploy(c, env={"WB_FAULT": "drop=rail1"}, deadline=3)
        for version in (1, 2):  # the second would repair what the first left
            t0 = time.monotonic()
            t.say(f"send {version}")
            said = t.expect(rf"error -\d+ send: .*|sent {version} .*", timeout=2 * TIMEOUT,
                            reject=None).string
            print(said, f"{time.monotonic() - t0:.1f} s")
            # Writing was allowed, so the parameters count as a mix; it is said who waits for what.
            assert "error -4006" in said and "r0/worker 1 (rank 0) did not receive" in said, said
            assert "from worker 0, receive stage" in said, said
            # One rail takes the other one with it; who sits at the broken end knows which it was.
            assert re.search("connection with agent t0 was lost [0-9]+ times?, last rail [01]: ", said), said
            assert time.monotonic() - t0 < 3 + 3 * SLOW
        c.agents["t0"].expect("connection ended peer=r0 reason=.rail 1: ", reject=None)
        lines = c.get(c.agents["r0"], "/metrics")[1]
        assert 'wb_engine_updates_total{state="Torn"} 2' in lines, lines
        # The pod of such an engine is not ready; all else about it is well, and so are other pods.
        assert probe(c.agents["r0"], "ready") == (1, "engine e0 is Torn: its weights are a mix of versions")
        assert probe(c.agents["r0"], "live") == probe(c.agents["t0"], "ready") == (0, "")


def probe(agent, what):
    r = subprocess.run([os.path.join(os.environ["WB_BUILD"], "bin", "weightbridge-agent"), f"--probe={what}",
                        f"--http=127.0.0.1:{agent.http}"], capture_output=True, text=True, timeout=20)
    return r.returncode, r.stderr.strip()


if __name__ == "__main__":
    run(both_rails_carry_the_bytes_in_the_time_of_both, all_of_four_rails_carry_bytes,
        eight_rails_of_eight_workers_carry_their_share, a_slow_rail_is_helped_by_another_of_its_agent,
        a_rail_that_stands_still_for_a_time_costs_that_time,
        a_rail_that_breaks_in_mid_transfer_is_made_again,
        a_rail_that_never_works_ends_the_transfer_with_a_name)
