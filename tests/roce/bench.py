# SPDX-License-Identifier: Apache-2.0
"""vm.sh python3 -B tests/roce/bench.py [PAIRS [CASE...]]   ours beside perftest, in turns, in one virtual machine.

Prints a JSON object for each case, with medians of PAIRS (7) ratios.  The machine is emulated: only ratios mean anything.

bandwidth	what wbctl bench moves, over ib_read_bw at the same size and depth
latency		of 64 B, over ib_read_lat as it polls or as it sleeps (-e), whichever is the faster:
		READ: a READ of the transport alone, which waits for no other; ask: a chunk, from the question on;
		READ asleep: the first over ib_read_lat -e, since rails sleep where there are few processors
transfer	a whole transfer between real agents, one trainer to one engine with two rails: its bytes by its
		end-to-end time, over ib_read_bw of as many bytes, on one pair or on both at once, whichever is more
"""
import concurrent.futures
import contextlib
import json
import os
import statistics
import subprocess
import sys

from wire import bandwidth, perftest

WBCTL = os.path.join(os.environ.get("WB_BUILD", "build/release"), "bin", "wbctl")
SIZE, DEPTH = 1 << 20, 4
WHOLE_MIB = 64


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


def put(case, ratios, **about):
    print(json.dumps({"case": case, **about, "pairs": len(next(iter(ratios.values()))),
                      "median": {k: round(statistics.median(v), 2) for k, v in ratios.items()},
                      "min": {k: round(min(v), 2) for k, v in ratios.items()},
                      "max": {k: round(max(v), 2) for k, v in ratios.items()}}), flush=True)


def note(**figures):
    print({k: round(v, 2) for k, v in figures.items()}, file=sys.stderr, flush=True)


def of_bandwidth(pairs):
    ratio = {"sums off": [], "sums on": []}
    for _ in range(pairs):
        peer = bandwidth("ib_read_bw", SIZE, 40, depth=DEPTH) * (1 << 20)
        s = measure("--sizes", str(SIZE), "--depths", str(DEPTH), "--seconds", "6")
        for x in s["bandwidth"]:
            ratio[f"sums {'on' if x['sums'] else 'off'}"].append(x["bytesPerSecond"] / peer)
        note(ib_read_bw=peer / 1e6, **{k: v[-1] for k, v in ratio.items()})
    put("bandwidth: wbctl bench / ib_read_bw", ratio, bytes=SIZE, depth=DEPTH)


def of_latency(pairs):
    ratio = {"READ": [], "READ asleep": [], "ask": []}
    for _ in range(pairs):
        polls, sleeps = (perftest("ib_read_lat", 64, 500, *how)[4] for how in ((), ("-e",)))
        s = measure("--sizes", "64", "--depths", "1", "--sums", "off", "--seconds", "3")
        read, ask = (s[k][0]["medianMicroseconds"] for k in ("readLatency", "latency"))
        ratio["READ"].append(read / min(polls, sleeps))
        ratio["READ asleep"].append(read / sleeps)
        ratio["ask"].append(ask / min(polls, sleeps))
        note(polls=polls, sleeps=sleeps, read=read, ask=ask)
    put("latency: wbctl bench / ib_read_lat", ratio, bytes=64)


def both_at_once(mib):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return sum(pool.map(lambda pair: bandwidth("ib_read_bw", 1 << 20, mib // 2, pair=pair), (0, 1)))


class Deployment:
    """A trainer and an engine, in pods of their own.  one(version): bytes a second of a transfer."""

    def __init__(self, stack, checksums):
        # Their names are taken at the first import: not by those who want other cases.
        from rdma import Wired
        from test_agents import start
        self.c = stack.enter_context(Wired())
        self.t, self.r = start(self.c, WHOLE_MIB, engines=1, checksums=checksums)

    def one(self, version):
        from test_agents import arrives
        arrives(self.t, self.r, version, engines=1)
        ms = self.c.until("the transfer's times", lambda: self.milliseconds(version))
        return (WHOLE_MIB << 20) / ms * 1e3

    def milliseconds(self, version):
        done = json.loads(self.c.get(self.c.op, "/objects")[1])["items"][0]["detail"]["transfers"]
        return next((x.get("endToEndMilliseconds") for x in done if x.get("version") == version), None)


def of_transfer(pairs):
    ratio = {"sums off": [], "sums on": []}
    with contextlib.ExitStack() as stack:
        ours = {"sums off": Deployment(stack, "None"), "sums on": Deployment(stack, "Wire")}
        for d in ours.values():
            d.one(1)  # connections, keys
        for i in range(pairs):
            peer = max(bandwidth("ib_read_bw", 1 << 20, WHOLE_MIB), both_at_once(WHOLE_MIB)) * (1 << 20)
            for name, d in ours.items():
                ratio[name].append(d.one(2 + i) / peer)
            note(ib_read_bw=peer / 1e6, **{k: v[-1] for k, v in ratio.items()})
    put("transfer: agents / ib_read_bw", ratio, mib=WHOLE_MIB, rails=2)


CASES = {"bandwidth": of_bandwidth, "latency": of_latency, "transfer": of_transfer}

if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        CASES[name](int(sys.argv[1]) if len(sys.argv) > 1 else 7)
