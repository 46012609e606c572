# SPDX-License-Identifier: Apache-2.0
"""The guest's devices are joined by a wire: what one sends is seen on it, what is cut there does not arrive."""
from wire import Crossing, bandwidth, down, latency, loss, perftest, run

SIZE, COUNT = 1 << 20, 5  # perftest warms up, too: at least so much


def what_is_read_crosses_the_wire():
    with Crossing() as c:
        bandwidth("ib_read_bw", SIZE, COUNT)
    assert c["vb0"] > SIZE * COUNT and c["va0"] < c["vb0"] / 4, c.bytes
    assert c["lo"] < SIZE, c.bytes


def what_is_written_crosses_it_the_other_way():
    with Crossing() as c:
        bandwidth("ib_write_bw", SIZE, COUNT)
    assert c["va0"] > SIZE * COUNT and c["vb0"] < c["va0"] / 4, c.bytes
    assert c["lo"] < SIZE, c.bytes


def pairs_have_wires_of_their_own():
    with Crossing() as c:
        bandwidth("ib_read_bw", SIZE, COUNT, pair=1)
    assert c["vb1"] > SIZE * COUNT, c.bytes
    assert c["va0"] + c["vb0"] < SIZE / 4, c.bytes


def lost_packets_are_sent_again():
    with loss(5), Crossing() as c:
        bandwidth("ib_write_bw", SIZE, COUNT)
    assert c["va0"] > SIZE * COUNT, c.bytes


def a_link_that_is_down_carries_nothing():
    with down():
        try:
            perftest("ib_write_bw", SIZE, COUNT)
        except (AssertionError, OSError):
            pass
        else:
            raise AssertionError("perftest came to its end over a link that is down")
    latency("ib_send_lat", 64, 20)  # and up again


run([what_is_read_crosses_the_wire, what_is_written_crosses_it_the_other_way, pairs_have_wires_of_their_own,
     lost_packets_are_sent_again, a_link_that_is_down_carries_nothing])
