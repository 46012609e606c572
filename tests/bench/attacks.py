#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a tenant notices of another one's attacks on the operator: for each attack of tests/e2e/test_attacks.py the time
of a transfer beside it against that of a quiet machine, and against a control: processes that take as much processor
time as the attackers did, and touch nobody.  One JSON object a line.  ATTACKS="uploads" measures one alone."""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)

p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
p.add_argument("--out", default=os.path.join(os.path.dirname(TESTS), "build/release"), help="what make built")
os.environ["WB_BUILD"] = os.path.abspath(p.parse_args().out)
os.environ.setdefault("OBJECTS", "2000")
sys.path[:0] = [os.path.join(TESTS, "e2e"), TESTS]
sys.argv[1:] = []

import test_attacks as attacks  # noqa: E402

QUIET_S, ATTACK_S = 6, 10  # of transfers


def put(name, figure, unit, bar, **fields):
    print(json.dumps({"name": name, "figure": round(figure, 3), "unit": unit, "bar": bar, "met": figure <= bar, **fields}),
          flush=True)


def measure(c, what, begin, most=attacks.LIMIT // 2, **how):
    """In place of the test's hold(): the same attack, and figures instead of claims."""
    before, quiet = c.rss(), c.transfers(QUIET_S)[0]
    f = attacks.measure(c, what, begin, **{**how, "seconds": ATTACK_S})
    seen = {"attack": what, "ms": round(1000 * f.took, 1), "quiet_ms": round(1000 * quiet, 1),
            "control_ms": round(1000 * f.beside, 1), "processors_of_attack": round(f.cpu_busy, 2), "transfers": f.n}
    put(f"a victim's transfer beside {what} / quiet", f.took / quiet, "x", 1.2, **seen)
    put(f"a victim's transfer beside {what} / control", f.took / f.beside, "x", 1.2, **seen)
    put(f"a victim's status after its transfer, beside {what}", f.late, "s", attacks.LATE_S, missed_pages=len(f.missed),
        operator_restarts=int(c.op.p.poll() is not None))
    put(f"what the operator's memory grew by, at most, beside {what}", (f.rss - before) / (1 << 20), "MiB", most >> 20)
    return f.counted


def main():
    attacks.hold = measure
    only = os.environ.get("ATTACKS", "").split()
    for t in attacks.TESTS:
        if not only or t.__name__ in only:
            t()


if __name__ == "__main__":
    main()
