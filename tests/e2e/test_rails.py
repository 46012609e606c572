# SPDX-License-Identifier: Apache-2.0
"""Agents with two rails: bytes are spread over both, a transfer takes as long as both rails need,
and a rail that stands still, breaks or never works ends in a state that is named."""
import os
import re
import subprocess
import time

from cluster import SLOW, TIMEOUT, Cluster, run

RATE = 16_000_000  # bytes/s a rail: far below what a core moves
MIB = 16
OVER_BOUND = 1.15


def by_rail(c, agent, way):
    out = {}
    for line in c.get(c.agents[agent], "/metrics")[1].splitlines():
        for rail in ("0", "1"):
            if line.startswith(f'wb_bytes_total{{rail="{rail}",dir="{way}"}} '):
                out[rail] = float(line.rsplit(" ", 1)[1])
    return [out["0"], out["1"]]


def deploy(c, env=None, rate=RATE, deadline=None, mib=MIB):
    """A trainer and an engine of one worker each, an agent each, two rails; `env` of the trainer's
    agent, which is the one that sends."""
    more = {"transferDeadlineSeconds": deadline} if deadline else {}
    c.operator(trainers=1, per_engine=1, trainer={"bufferSize": "64Mi"},
               rollout={"bufferSize": "64Mi"}, **more)
    for name in ("t0", "r0"):
        c.agent(name, "--rails", "2", "--rail-rate", str(rate), env=env if name == "t0" else None)
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
        assert SLOW != 1 or took <= OVER_BOUND * bound, (took, bound)


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
            assert "error -4006" in said and "r0/worker 1 did not receive" in said, said
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
    run(both_rails_carry_the_bytes_in_the_time_of_both,
        a_rail_that_stands_still_for_a_time_costs_that_time,
        a_rail_that_breaks_in_mid_transfer_is_made_again,
        a_rail_that_never_works_ends_the_transfer_with_a_name)
