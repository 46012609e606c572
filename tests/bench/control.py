#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a warm transfer says beside its bytes, what an agent holds beside its arenas, and how long its
loop works on a chunk: one JSON object a line.  tests/e2e/test_control.py counts and asserts the first two."""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)

p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
p.add_argument("--out", default=os.path.join(os.path.dirname(TESTS), "build/release"),
               help="what make built")
os.environ["WB_BUILD"] = os.path.abspath(p.parse_args().out)
sys.path[:0] = [os.path.join(TESTS, "e2e"), TESTS]

import test_control as control  # noqa: E402
from cluster import Cluster  # noqa: E402

SIZES = (1, 100)  # MiB
# Of one chunk, at both ends: granted, written; arrived, and by way of a slot also packed and assembled.
EVENTS = 6
EVENT_US = 2


def put(name, figure, unit, bar, **fields):
    print(json.dumps({"name": name, "figure": figure, "unit": unit, "bar": bar,
                      "met": figure <= bar, **fields}), flush=True)


def resident(mib):
    """The largest agent after five transfers, in bytes."""
    with Cluster() as c:
        t, r = control.deploy(c, 512 * mib, 512)
        for v in range(1, 6):
            control.transfer(t, r, v)
        return max(sum(control.resident(a)) for a in c.agents.values())


def loop_ns(agent):
    """Processor time that an agent's loop, its first thread, has had."""
    with open(f"/proc/{agent.p.pid}/task/{agent.p.pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0])


def loops(transport, mib, n):
    """(chunks, microseconds of the loops of both ends) of n warm transfers."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        for name in ("t0", "r0"):
            c.agent(name, "--transport", transport)
        size = {"rows": 512 * mib, "cols": 512, "tensors": 1}
        t = [c.worker("t0", "trainer", **size)]
        r = [c.worker("r0", "rollout", engine="e0", **size)]
        for w in t + r:
            w.expect("planned")
        control.transfer(t, r, 1)
        before = control.settled(c), sum(loop_ns(a) for a in c.agents.values())
        for v in range(2, n + 2):
            control.transfer(t, r, v)
        after = control.settled(c), sum(loop_ns(a) for a in c.agents.values())
        return (max(control.of(after[0][a], "wb_chunks_total") - control.of(before[0][a], "wb_chunks_total") for a in c.agents),
                (after[1] - before[1]) / 1e3)


def loop(transport, n=5):
    """What one more chunk costs: the difference of two models, so that what a transfer costs by itself is none of it."""
    few, many = (loops(transport, mib, n) for mib in (128, 1024))
    put(f"loop, {transport}: processor time of a chunk, both ends", round((many[1] - few[1]) / (many[0] - few[0]), 2), "us",
        EVENTS * EVENT_US, sums="on", staging="None", chunks=(many[0] - few[0]) // n, transfer_us=round(few[1] / n, 1), n=n,
        events_of_a_chunk=EVENTS)


def main():
    for transport in ("tcp", "shm"):
        loop(transport)
    total = {}
    for mib in SIZES:
        one = control.cost(mib)  # one worker an agent
        total[mib] = sum(control.of(d, "wb_control_bytes_total") for d in one.values())
        put("control bytes of a warm transfer, a worker",
            max(control.of(d, "wb_control_bytes_total") for d in one.values()), "B",
            control.PER_WORKER, sums="on", staging="None", mib=mib, of_all_workers=total[mib],
            messages=sum(control.of(d, "wb_control_messages_total") for d in one.values()),
            chunks=sum(control.of(d, "wb_chunks_total") for d in one.values()))
    # Some messages more or fewer, as waits happen to end: test_control says which.
    put(f"control bytes, {SIZES[1]} MiB / {SIZES[0]} MiB",
        round(total[SIZES[1]] / total[SIZES[0]], 3), "x", 1.2, sums="on", staging="None")
    put("resident memory of an agent beside its arenas", resident(SIZES[1]), "B",
        control.RESIDENT_MAX, sums="on", staging="None", mib=SIZES[1])


if __name__ == "__main__":
    main()
