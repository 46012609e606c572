# SPDX-License-Identifier: Apache-2.0
"""Packets that do not arrive while a transfer moves, some or all of them, and no device is told so."""
import contextlib
import subprocess
import time

from rdma import Wired, counter
from test_links import RATE, arrives, ends, fails_by_name, goes_half_way, lost, start
from wire import Crossing, loss, run

BUDGET_S = 7 * 0.54  # of a queue pair (agent/xport/verbs/verbs.h)


def tried_again():
    """How often each device at r0 has asked for the same thing again."""
    return [counter(f"rxe_b{i}", "completer_retry_err") for i in (0, 1)]


@contextlib.contextmanager
def silent(*pairs):
    """Nothing arrives any more; no device is told so.  (A root qdisc that comes under traffic would be, wire.py.)"""
    def set_loss(percent):
        lines = [f"qdisc change dev v{end}{pair} root netem limit 20000 loss {percent}%\n" for pair in pairs for end in "ab"]
        subprocess.run(["tc", "-batch", "-"], input="".join(lines), text=True, check=True)
    set_loss(100)
    try:
        yield
    finally:
        set_loss(0)


def silence_within_the_retry_budget_heals_on_the_same_queue_pairs():
    with loss(0, 0), loss(0, 1), Wired(rate=RATE) as c:
        t, r = start(c)
        for version in range(1, 6):
            goes_half_way(c, t, version)
            n_lost = len(lost(c))
            before = tried_again()
            since = time.monotonic()
            with silent(0, 1):
                c.until("both devices have tried again", lambda: all(now > n for now, n in zip(tried_again(), before)))
            took = time.monotonic() - since
            ends(t, r, version)
            print(f"   silent for {took:.1f} s, {len(lost(c)) - n_lost} queue pairs were lost")
            if took < BUDGET_S / 2:
                break  # else this machine is too busy to end it in time
        assert took < BUDGET_S / 2 and len(lost(c)) == n_lost, (took, lost(c))


def silence_beyond_the_retry_budget_of_one_wire_moves_its_load():
    with loss(0, 0), Wired(rate=RATE) as c:
        t, r = start(c)
        goes_half_way(c, t, 1)
        with Crossing() as x, silent(0):
            ends(t, r, 1)
        print("  ", x.bytes, *lost(c), sep="\n   ")
        assert any("rxe_b0 port 1" in line and "retry counter exceeded" in line for line in lost(c)), lost(c)
        assert not any("rxe_b1" in line for line in lost(c)), lost(c)
        arrives(t, r, 2)


def silence_of_all_wires_beyond_the_deadline_has_a_name():
    with loss(0, 0), loss(0, 1), Wired() as c:
        t, r = start(c, deadline=12)
        arrives(t, r, 1)
        with silent(0, 1):
            fails_by_name(t, 2, "connection with agent t0 was lost", r"rxe_b[01] port 1 \(GID .*retry counter exceeded")
        arrives(t, r, 3)


def one_lost_packet_of_a_hundred_is_sent_again():
    with loss(1, 0), loss(1, 1), Wired() as c:
        t, r = start(c)
        before = tried_again()
        arrives(t, r, 1)
        again = [now - n for now, n in zip(tried_again(), before)]
        print("  ", again, "times tried again", *lost(c), sep="\n   ")
        assert min(again) > 0, again
        assert not lost(c), lost(c)


if __name__ == "__main__":
    run([silence_within_the_retry_budget_heals_on_the_same_queue_pairs,
         silence_beyond_the_retry_budget_of_one_wire_moves_its_load, silence_of_all_wires_beyond_the_deadline_has_a_name,
         one_lost_packet_of_a_hundred_is_sent_again])
