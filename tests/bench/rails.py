#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real agents on rails with a cap, one JSON object a line as e2e.py has them.

rails.py [--out DIR] [--n N]

Workers are toy_worker processes of a few megabytes each, and rails are slow enough that the time of a
transfer is theirs and not this machine's.
"""
import argparse
import os
import statistics
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--out", default=os.path.join(TOP, "build/release"), help="what make built")
    p.add_argument("--n", type=int, default=5, help="repetitions (5)")
    return p.parse_args()


A = arguments()
os.environ["WB_BUILD"] = os.path.abspath(A.out)
sys.path[:0] = [os.path.join(TOP, "tests/e2e"), os.path.join(TOP, "tests/bench")]

from cluster import Cluster  # noqa: E402
from e2e import put  # noqa: E402

COLS = 4096  # of four bytes


def transfers(c, trainers, rollouts, n):
    """Seconds of n transfers, after one that makes connections."""
    took = []
    for v in range(1, n + 2):
        for t in trainers:
            t.say(f"send {v}")
        took.append(max(float(t.expect(rf"sent {v} seconds=([\d.]+).*=Committed")[1]) for t in trainers))
        for r in rollouts:
            r.expect(f"update {v} ok")
    return took[1:]


def eight(n, each=8, mib=128, rate=8_000_000):
    """Eight workers of a pod with a rail each, on either side, every one with every one."""
    with Cluster() as c:
        c.operator(trainers=each, per_engine=each, trainer={"bufferSize": "64Mi"}, rollout={"bufferSize": "64Mi"})
        for name, net in (("t0", 1), ("r0", 2)):
            c.agent(name, *(f"--rail=127.0.{net}.{i + 1},rate={rate}" for i in range(each)))
        size = {"rows": (mib << 20) // 4 // COLS, "cols": COLS, "tensors": 1, "of": each}
        ts = [c.worker("t0", "trainer", i, rank=i, **size) for i in range(each)]
        rs = [c.worker("r0", "rollout", i, rank=i, engine="e0", cut="cols", **size) for i in range(each)]
        for w in (*ts, *rs):
            w.expect("planned")
        took = transfers(c, ts, rs, n)
    bound = (mib << 20) / each / rate
    put("eight rails of eight workers: EWTT / bound", round(statistics.median(took) / bound, 3), "x", 1.10,
        bound=round(bound, 4), seconds=round(statistics.median(took), 4), min=round(min(took) / bound, 3),
        max=round(max(took) / bound, 3), rail_bytes_per_s=rate, mib=mib, sums="on", n=n)


if __name__ == "__main__":
    eight(A.n)
