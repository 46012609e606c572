#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What extraction costs beyond the loads themselves, for one worker of Qwen3-30B-A3B with all its
layers, experts and tensors; one JSON object a line.

extract.py [--out DIR] [--scale N] [--n N]

Rows of the experts and of the vocabulary and the width of heads are 1/N of the real ones: the
counts of parameters and operations stay what they are in the real deployment (trainer TP4 EP8 on
16 workers, rollout TP8 EP8), and are compared.  The figure is the time outside of load_weights:
snapshot, scans, recovery, restoring; cpu_seconds what they took of the cores, which says how much of
the figure is waiting for others.  Inside of it, "making" is the iterator, which makes up the
tensors, and "loads" the loader itself.
"""
import argparse
import dataclasses
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "agent/python"), os.path.join(TOP, "tests")]

BAR_SECONDS = 5.0
# Parameters and (tensor, rectangle) pairs of a worker of the real deployment.
COUNTS = {"trainer": (1875, 2739), "rollout": (435, 2739)}


class Timed:
    """load_weights with the time spent in it, and that of it in our iterator."""

    def __init__(self, load_weights):
        self.load_weights, self.seconds, self.calls, self.inside = load_weights, 0.0, 0, 0.0
        self.cpu = 0.0

    def _items(self, items):
        items = iter(items)
        while True:
            t = time.perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.inside += time.perf_counter() - t
            yield item

    def __call__(self, items):
        t, cpu = time.perf_counter(), time.process_time()
        self.load_weights(self._items(items))
        self.seconds += time.perf_counter() - t
        self.cpu += time.process_time() - cpu
        self.calls += 1


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--out", default=os.path.join(TOP, "build/release"), help="what make built")
    p.add_argument("--scale", type=int, default=16, help="rows are 1/N of the real ones (16)")
    p.add_argument("--n", type=int, default=3, help="repetitions (3)")
    a = p.parse_args()
    os.environ["WB_LIB"] = os.path.join(os.path.abspath(a.out), "lib/libweightbridge.so")
    import weightbridge as wb
    from engines import deploy, make, models

    c = models.load("Qwen3-30B-A3B")
    c = dataclasses.replace(c, moe_intermediate=c.moe_intermediate // a.scale,
                            vocab=max(c.vocab // a.scale // 512 * 512, 512),
                            head_dim=max(c.head_dim // a.scale, 2))
    specs = {"trainer": deploy.megatron(c, 16, tp=4, ep=8)[5],
             "rollout": deploy.engine("sglang", c, 8, ep=8)[3]}
    ok = True
    for role, spec in specs.items():
        engine = make(spec)
        own, cpus, loads, making, counts, calls = [], [], [], [], set(), 0
        for _ in range(a.n):
            load = Timed(engine.load_weights)
            t, cpu = time.perf_counter(), time.process_time()
            found = wb.extract(load, models.tensors(c), engine.params, expand_bytes=0,
                               progress=False)
            own.append(time.perf_counter() - t - load.seconds)
            cpus.append(time.process_time() - cpu - load.cpu)
            loads.append(load.seconds - load.inside)
            making.append(load.inside)
            counts.add((len(found.param_names), found.n_ops))
            calls = load.calls
        figure = statistics.median(own)
        right = counts == {COUNTS[role]}
        ok = ok and right
        print(json.dumps({
            "name": f"extraction of a Qwen3-30B {role} beyond its loads", "figure": round(figure, 3),
            "unit": "s", "bar": BAR_SECONDS, "met": figure <= BAR_SECONDS and right,
            "cpu_seconds": round(statistics.median(cpus), 3),
            "loads_seconds": round(statistics.median(loads), 3), "loads": calls,
            "making_seconds": round(statistics.median(making), 3),
            "parameters": sorted(counts)[0][0], "operations": sorted(counts)[0][1],
            "expected": COUNTS[role], "GB": round(engine.nbytes() / 1e9, 2), "rows": f"1/{a.scale}",
            "n": a.n}), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
