#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a warm transfer says beside its bytes, and what an agent holds beside its arenas: one JSON
object a line.  tests/e2e/test_control.py counts and asserts the same."""
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


def main():
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
