# SPDX-License-Identifier: Apache-2.0
"""vm.sh python3 -B tests/roce/bench.py [PAIRS]   wbctl bench beside perftest, in turns, in one virtual machine.

Prints medians of PAIRS (7) ratios as one JSON object: what wbctl bench moves over ib_read_bw at the same size and depth,
and the time of its smallest chunk over ib_read_lat.  The machine is emulated: only ratios mean anything.
"""
import json
import os
import statistics
import subprocess
import sys

from wire import bandwidth, latency

WBCTL = os.path.join(os.environ.get("WB_BUILD", "build/release"), "bin", "wbctl")
SIZE, DEPTH = 1 << 20, 4


def rails(end, pairs):
    """Devices with their addresses: rxe_a0@10.77.0.1,.."""
    return ",".join(f"rxe_{end}{i}@10.77.{i}.{1 if end == 'a' else 2}" for i in range(pairs))


def measure(*args, pairs=1):
    """What a receiver on the ends `a` says of a source on the ends `b`."""
    env = {**os.environ, "WEIGHTBRIDGE_BENCH_KEY": "11" * 32}
    command = [WBCTL, "bench", "--transport", "verbs", "--timeout", "60", "--json"]
    with subprocess.Popen([*command, "--listen", rails("b", pairs)], stdout=subprocess.PIPE, text=True,
                          env=env) as source:
        try:
            said = ""
            while not said.endswith("}\n"):
                line = source.stdout.readline()
                assert line, "the source has ended"
                said += line
            r = subprocess.run([*command, "--to", json.loads(said)["to"], "--from", rails("a", pairs), *args],
                               capture_output=True, text=True, timeout=240, check=False, env=env)
            assert r.returncode == 0, r.stderr
            assert source.wait(60) == 0, "the source failed"
            return json.loads(r.stdout)
        finally:
            source.kill()


def main(pairs):
    ratio = {"bandwidth, sums off": [], "bandwidth, sums on": [], "latency": []}
    for i in range(pairs):
        peer = bandwidth("ib_read_bw", SIZE, 40, depth=DEPTH) * (1 << 20)
        s = measure("--sizes", str(SIZE), "--depths", str(DEPTH), "--seconds", "6")
        for x in s["bandwidth"]:
            ratio[f"bandwidth, sums {'on' if x['sums'] else 'off'}"].append(x["bytesPerSecond"] / peer)
        peer = latency("ib_read_lat", 64, 500)
        ratio["latency"].append(s["latency"][0]["medianMicroseconds"] / peer)
        print({k: round(v[i], 2) for k, v in ratio.items()}, file=sys.stderr, flush=True)
    print(json.dumps({"case": "wbctl bench over perftest", "bytes": SIZE, "depth": DEPTH, "pairs": pairs,
                      "median": {k: round(statistics.median(v), 2) for k, v in ratio.items()}}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
