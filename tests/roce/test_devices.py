# SPDX-License-Identifier: Apache-2.0
"""A device that is removed, and addresses that change, while a transfer moves over them: what is named, what moves to the
other wire, and what is used again afterwards."""
import re

from rdma import Wired
from test_links import MIB, RATE, arrives, ends, goes_half_way, lost, start
from wire import Crossing, Removable, gids, readdressed, run, sh

HALF = MIB << 19  # of a version, in bytes; a wire that has its share carries half of this at the least


def both_wires_carry(t, r, version):
    with Crossing() as x:
        arrives(t, r, version)
    print("  ", x.bytes)
    assert min(x["va0"], x["va1"]) > HALF / 2, x.bytes


def a_device_that_is_removed_gives_its_load_to_the_other_and_is_named():
    """The kernel takes it away when the last who has it open ends: that is the agent."""
    with Removable("rxe_b0", "vb0") as device, Wired(rate=RATE // 3) as c:
        t, r = start(c)
        goes_half_way(c, t, 1)
        asks = device.remove()
        with Crossing() as x:
            c.until("the device that goes is told", lambda: c.degraded()["reason"] == "ReducedRails")
            said = c.degraded()["message"]
            assert not [line for line in r.drain() if line.startswith("update")], "it was told after the transfer"
            ends(t, r, 1)
        print("  ", said, x.bytes, *lost(c), sep="\n   ")
        assert x["va1"] > HALF / 2, x.bytes
        assert re.search(r"rxe_b0 port 1 \(GID ::ffff:10\.77\.0\.2\) is down, 1 of 2 ports are up", said), said
        assert lost(c) and all("rxe_b0 port 1 (GID ::ffff:10.77.0.2)" in line for line in lost(c)), lost(c)
        assert any("device is being removed device=rxe_b0" in line for line in c.agents["r0"].seen)
        with Crossing() as x:
            arrives(t, r, 2)
        assert x["va0"] < HALF / 8 and x["va1"] > HALF, x.bytes
        assert asks.poll() is None, "the kernel did not wait for the agent"
        assert c.agents["r0"].stop() == 0, c.agents["r0"].drain()
        assert asks.wait(20) == 0 and "rxe_b0" not in sh("rdma", "link"), sh("rdma", "link")
        device.back()
        c.agent("r0")
        c.until("ready again", lambda: c.get(c.agents["r0"], "/readyz")[0] == 200)
        both_wires_carry(t, r, 3)
        c.until("both are up again", lambda: c.degraded()["reason"] == "AsExpected")


def readdressed_at(end, agent, last):
    """What the agent at this end of pair 0 does when its address there is another one."""
    device, was, now = f"rxe_{end}0", f"::ffff:10.77.0.{2 if end == 'b' else 1}", f"::ffff:10.77.0.{last}"

    def case():
        with Wired(rate=RATE) as c:
            t, r = start(c)
            goes_half_way(c, t, 1)
            with readdressed(0, end, last):
                c.until("the device has that address", lambda: gids(device) == {now})
                ends(t, r, 1)
                print("  ", *lost(c, agent), sep="\n   ")
                said = [line for line in lost(c, agent) if f"{device} port 1 (GID {was})" in line]
                assert any(f"another address, it is {device} port 1 (GID" in line for line in said), lost(c, agent)
                assert not any(f"rxe_{end}1" in line for line in lost(c, agent)), lost(c, agent)
                both_wires_carry(t, r, 2)
            both_wires_carry(t, r, 3)
            assert c.degraded()["reason"] == "AsExpected", c.degraded()
    case.__name__ = f"an_address_that_changes_at_{agent}_is_named_and_its_new_one_used"
    return case


if __name__ == "__main__":
    run([readdressed_at("b", "r0", 12), readdressed_at("a", "t0", 11),
         a_device_that_is_removed_gives_its_load_to_the_other_and_is_named])
