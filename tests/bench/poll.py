#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""poll.py [--out DIR]   What one idle poll_requests() costs in Python, against a scripted agent."""
import json
import os
import statistics
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = sys.argv[2] if sys.argv[1:2] == ["--out"] else os.path.join(TOP, "build/release")
os.environ["WB_LIB"] = os.path.join(os.path.abspath(OUT), "lib/libweightbridge.so")
sys.path[:0] = [os.path.join(TOP, "agent/python"), os.path.join(TOP, "tests/py")]

import fake_agent as fa  # noqa: E402
import fx_adapters as fx  # noqa: E402

CALLS, RUNS, BAR_NS = 1 << 18, 7, 2000


def play(agent):
    agent.up()
    agent.expect(fa.DETACH)


def main():
    times = []
    with fa.Script(play) as s:
        r = fx.receiver(s.agent)
        r.connect(10)
        poll = r.poll_requests
        for _ in range(RUNS + 1):
            t = time.perf_counter_ns()
            for _ in range(CALLS):
                if poll() is not None:
                    raise SystemExit("an update that nobody sent")
            times.append((time.perf_counter_ns() - t) / CALLS)
        r.close()
    ns = statistics.median(times[1:])
    print(json.dumps({"name": "idle poll_requests from Python", "figure": round(ns, 1), "unit": "ns",
                      "bar": BAR_NS, "met": ns < BAR_NS, "calls": CALLS, "n": RUNS}), flush=True)


if __name__ == "__main__":
    main()
