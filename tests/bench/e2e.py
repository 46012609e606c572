#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of whole transfers, one JSON object a line; ratios are within one run.

e2e.py [--out DIR] [--case NAME[,NAME...]] [--n N] [--sums on|off|both] [--peers NAME,...]

A line has name, figure, unit, bar, met (bar and met null where nothing is asked), and what it was
made of.  A ratio is the median over N pairs (our transfer, the peer's right after it).
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
try:
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
except ImportError:  # run by hand with another Python
    found = subprocess.run([os.path.join(TOP, "tests/common/venv.sh")], capture_output=True,
                           text=True, check=True).stdout.strip()
    os.execv(found, [found, *sys.argv])
sys.path[:0] = [HERE, os.path.join(TOP, "tests/demo"), os.path.join(TOP, "tests")]

import make_checkpoint  # noqa: E402
import peers  # noqa: E402
from engines import deploy, models  # noqa: E402
from procs import Deployment, Failed  # noqa: E402

MIB = 512
# (case, peer): most that ours may take as a multiple of theirs, with sums off and on.
BARS = {("tcp-plain", "gloo raw"): (1.25, 1.45),
        ("tcp-transposed", "gloo p2p"): (None, 0.55),
        ("tcp-plain", "gloo bcast"): (0.1, 0.1),
        ("tcp-transposed", "gloo bcast"): (0.1, 0.1),
        ("shm-plain", "memcpy"): (1.6, 2.3)}


def put(name, figure, unit, bar=None, **fields):
    """One result.  `bar`: what the figure may be at most."""
    print(json.dumps({"name": name, "figure": figure, "unit": unit, "bar": bar,
                      "met": None if bar is None or figure is None else figure <= bar, **fields}),
          flush=True)


SUMS = {"off": "None", "on": "Wire"}


class Pair(Deployment):
    """FSDP2 on 2 workers -> one engine of TP2, each worker with an agent of its own."""

    def __init__(self, build, folder, checkpoint, config, options, gate_up="rows", spec=""):
        super().__init__(build, folder, "  trainer: {workers: 2, bufferSize: 256Mi}\n"
                         "  rollout: {workersPerEngine: 2, bufferSize: 256Mi}\n"
                         "  engineStepDeadlineSeconds: 60\n" + spec)
        self.start_operator()
        for n in ("trainer-0", "trainer-1", "engine-a", "engine-b"):
            self.start_agent(n, None, *options)
        trainers = deploy.fsdp2(config, 2)
        rollouts = deploy.engine("vllm", config, 2, tied="alias", gate_up=gate_up)
        # Source maps are kept between runs (and verified by the probe), which halves the start.
        maps = os.path.join(make_checkpoint.cache_dir(), "maps")
        self.trainers = [self.start_worker(f"trainer-{i}", f"t{i}", "trainer", i, s, checkpoint,
                                           cache=maps)
                         for i, s in enumerate(trainers)]
        self.rollouts = [self.start_worker(f"engine-{'ab'[i]}", f"r{i}", "rollout", i, s,
                                           checkpoint, engine="engine-0", cache=maps)
                         for i, s in enumerate(rollouts)]
        for w in self.workers.values():
            w.wait("planned", 240)

    def one(self, version):
        """(seconds from the first send_weights to the last update, mean stall of trainers)."""
        self.send(self.trainers, version)
        sent = [w.wait("sent", version=version) for w in self.trainers]
        done = [w.wait("update", version=version) for w in self.rollouts]
        start = min(s["start"] for s in sent)
        self.snapshot = max(s["released"] - s["start"] for s in sent)
        return (max(u["t"] for u in done) - start,
                statistics.mean(s["released"] - s["start"] for s in sent))

    def install(self, version):
        """Seconds that the slower worker copied its staging area, once the operator knows."""
        url, end = f"http://127.0.0.1:{self.operator_http}/trace", time.monotonic() + 5
        while True:
            with urllib.request.urlopen(url, timeout=5) as r:
                took = [e["dur"] / 1e6 for e in json.load(r)["traceEvents"]
                        if e["name"] == "install" and e["args"]["version"] == version]
            if len(took) == 2:
                return max(took)
            if time.monotonic() > end:
                raise Failed(f"the operator knows {len(took)} installs of version {version}")
            time.sleep(0.02)


class Peers:
    """The peers of a run; they come up while our own processes do.  Absent ones say why once."""

    def __init__(self, names):
        self.names, self.up, self.ready = names, {}, set()
        for kind, start in (("gloo", peers.gloo), ("memcpy", peers.memcpy)):
            if any(n.split()[0] == kind for n in names):
                self._try(kind, lambda: self.up.update({kind: start(MIB)}))

    def _try(self, kind, action):
        try:
            action()
        except peers.Absent as e:
            put(kind, None, "s", skipped=str(e))
            self.up.pop(kind, None)

    def get(self, name):
        """A function that measures that peer once, or None."""
        kind, _, mode = name.partition(" ")
        if kind in self.up and kind not in self.ready:
            self._try(kind, self.up[kind].wait_ready)
            self.ready.add(kind)
        group = self.up.get(kind)
        # The better of two copies: the first still pays for what ran before it.
        once = 2 if kind == "memcpy" else 1
        return (lambda: min(group.run(mode or "go") for _ in range(once))) if group else None

    def close(self):
        for g in self.up.values():
            g.close()


def transfer(a, case, sums, theirs):
    """One deployment, N transfers, each followed by one run of each peer."""
    transport, kind = case.split("-")
    config = deploy.BENCH_512M
    checkpoint = make_checkpoint.make(config)
    with tempfile.TemporaryDirectory() as folder:
        d = Pair(a.out, folder, checkpoint, config, ["--transport", transport],
                 "transposed" if kind == "transposed" else "rows",
                 f"  checksums: {SUMS[sums]}\n")
        try:
            moved = d.status()["status"]["plan"]["modelBytes"]
            run = {n: f for n in theirs.names if (f := theirs.get(n))}
            d.one(1)
            for f in run.values():
                f()
            ours, took = [], {n: [] for n in run}
            for v in range(2, a.n + 2):
                ours.append(d.one(v)[0])
                for n, f in run.items():
                    if n != "gloo bcast" or len(took[n]) < 3:  # seconds each
                        took[n].append(f())
        finally:
            d.stop()
    t = statistics.median(ours)
    put(case, round(t, 4), "s", sums=sums, staging="None", mib=moved >> 20,
        GBps=round(moved / t / 1e9, 2), min=round(min(ours), 4), max=round(max(ours), 4), n=a.n)
    for n, other in took.items():
        bar = BARS.get((case, n), (None, None))[sums == "on"]
        put(f"{case} / {n}", round(statistics.median(x / y for x, y in zip(ours, other)), 3), "x",
            bar, sums=sums, ours=round(t, 4), theirs=round(statistics.median(other), 4),
            theirs_min=round(min(other), 4), n=a.n)


def capped(a):
    """2 + 2 domains on capped rails: EWTT / bound and trainer stall / EWTT."""
    rate = int(os.environ.get("RAIL_RATE", 40_000_000))
    with tempfile.TemporaryDirectory() as folder:
        d = Deployment(a.out, folder, "  trainer: {workers: 2, bufferSize: 64Mi}\n"
                       "  rollout: {workersPerEngine: 1, engines: 2, bufferSize: 64Mi}\n")
        small = models.load("Qwen3-30B-A3B", 2, 16)
        where = make_checkpoint.make(small)
        try:
            d.start_operator()
            for n in ("trainer-0", "trainer-1", "engine-0", "engine-1"):
                d.start_agent(n, None, "--transport", "tcp", "--rail-rate", str(rate))
            ts = [d.start_worker(f"trainer-{i}", f"t{i}", "trainer", i, s, where)
                  for i, s in enumerate(deploy.megatron(small, 2, tp=2, ep=2))]
            rs = [d.start_worker(f"engine-{e}", f"r{e}", "rollout", 0, s, where,
                                 engine=f"engine-{e}")
                  for e in range(2) for s in deploy.engine("sglang", small, 1)]
            for w in d.workers.values():
                w.wait("planned", 120)
            moved = d.status()["status"]["plan"]["modelBytes"]
            limit = moved / rate  # each engine's pod takes the model over its own rail
            out = []
            for v in range(1, a.n + 2):
                d.send(ts, v)
                sent = [w.wait("sent", version=v) for w in ts]
                done = [w.wait("update", version=v) for w in rs]
                start = min(s["start"] for s in sent)
                out.append((max(u["t"] for u in done) - start,
                            statistics.mean(s["released"] - s["start"] for s in sent)))
            out = out[1:]
            ewtt = statistics.median(e for e, _ in out)
            about = {"sums": "on", "staging": "None", "mib": moved >> 20, "n": a.n,
                     "rail_bytes_per_s": rate, "bound": round(limit, 4), "seconds": round(ewtt, 4)}
            put("capped rails: EWTT / bound", round(ewtt / limit, 3), "x", 1.15, **about)
            put("capped rails: trainer stall / EWTT",
                round(statistics.median(s / e for e, s in out), 3), "x", 0.60, **about)
        finally:
            d.stop()


# 1 MiB (and some norms).
SMALL = models.config({
    "arch": "qwen3", "layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "head_dim": 32,
    "vocab": 1024, "intermediate": 384, "tie_word_embeddings": True})


def latency(a):
    """From the first send_weights to the last update of a model of 1 MiB; engines wait."""
    n = max(50, a.n)
    checkpoint = make_checkpoint.make(SMALL)
    for transport in ("tcp", "shm"):
        with tempfile.TemporaryDirectory() as folder:
            d = Pair(a.out, folder, checkpoint, SMALL, ["--transport", transport])
            try:
                for v in range(1, 11):
                    d.one(v)
                times = sorted(d.one(v)[0] for v in range(11, n + 11))
                if a.trace:
                    with open(a.trace, "w", encoding="utf-8") as f:
                        json.dump({k: d.trace(k) for k in d.agents}, f)
            finally:
                d.stop()
        put(f"latency of 1 MiB, {transport}", round(statistics.median(times) * 1e3, 3), "ms", 3.0,
            sums="on", staging="None", min=round(times[0] * 1e3, 3),
            p90=round(times[n * 9 // 10] * 1e3, 3), n=n)


def staging(a):
    """Snapshot and install against two processes that copy the same bytes; the rails are slow, so
    that nothing else moves meanwhile."""
    checkpoint = make_checkpoint.make(deploy.BENCH_512M)
    copies = peers.memcpy(MIB)
    ours = {"snapshot": [], "install": []}
    theirs, n = [], min(a.n, 5)  # five seconds each
    with tempfile.TemporaryDirectory() as folder:
        d = Pair(a.out, folder, checkpoint, deploy.BENCH_512M, ["--transport", "tcp", "--rail-rate", "60M"],
                 spec="  staging: {trainer: HostMemory, rollout: HostMemory}\n")
        try:
            copies.wait_ready()
            for v in range(1, n + 3):
                d.one(v)
                ours["snapshot"].append(d.snapshot)
                ours["install"].append(d.install(v))
                theirs.append(min(copies.run() for _ in range(2)))
        finally:
            d.stop()
            copies.close()
    for name, took in ours.items():
        put(f"{name} of {MIB} MiB / memcpy",
            round(statistics.median(x / y for x, y in zip(took[2:], theirs[2:])), 3), "x", 1.25,
            sums="on", ours=round(statistics.median(took[2:]), 4),
            theirs=round(statistics.median(theirs[2:]), 4), n=n)


def commit(a):
    """The decision for two engines, one agent each: from the moment that the last has everything
    staged until the last knows that all of them install."""
    n = max(50, a.n)
    checkpoint = make_checkpoint.make(SMALL)
    with tempfile.TemporaryDirectory() as folder:
        d = Deployment(a.out, folder, "  trainer: {workers: 1, bufferSize: 64Mi}\n"
                       "  rollout: {workersPerEngine: 1, engines: 2, bufferSize: 64Mi}\n"
                       "  staging: {rollout: HostMemory}\n  commitPolicy: AllEngines\n")
        try:
            d.start_operator()
            for name in ("trainer-0", "engine-0", "engine-1"):
                d.start_agent(name)
            ts = [d.start_worker("trainer-0", "t0", "trainer", 0, s, checkpoint)
                  for s in deploy.fsdp2(SMALL, 1)]
            rs = [d.start_worker(f"engine-{e}", f"r{e}", "rollout", 0, s, checkpoint,
                                 engine=f"engine-{e}")
                  for e in range(2) for s in deploy.engine("vllm", SMALL, 1, tied="alias")]
            for w in d.workers.values():
                w.wait("planned", 120)
            for v in range(1, n + 11):
                d.send(ts, v)
                for w in ts:
                    w.wait("sent", version=v)
                for w in rs:
                    w.wait("update", version=v)
            last = {"staged": {}, "decided": {}}
            for name in ("engine-0", "engine-1"):
                for e in d.trace(name):
                    if e["name"] in last:
                        at, k = last[e["name"]], e["args"]["transfer"]
                        at[k] = max(at.get(k, 0), e["ts"])
        finally:
            d.stop()
    took = sorted((last["decided"][k] - last["staged"][k]) / 1e3
                  for k in sorted(last["decided"])[10:])
    put("commit round of two engines", round(statistics.median(took), 3), "ms", 1.0,
        commitPolicy="AllEngines", staging="rollout", min=round(took[0], 3),
        p90=round(took[len(took) * 9 // 10], 3), n=len(took))


def encryption(a):
    """TCP in the clear and in TLS, turn by turn, in two deployments that live side by side."""
    checkpoint = make_checkpoint.make(deploy.BENCH_512M)
    for sums in ["off", "on"] if a.sums == "both" else [a.sums]:
        with contextlib.ExitStack() as ends:
            pairs, took = {}, {"None": [], "TLS": []}
            for word in took:
                folder = ends.enter_context(tempfile.TemporaryDirectory())
                pairs[word] = Pair(a.out, folder, checkpoint, deploy.BENCH_512M, ["--transport", "tcp"],
                                   spec=f"  checksums: {SUMS[sums]}\n  transport: {{encryption: {word}}}\n")
                ends.callback(pairs[word].stop)
            moved = pairs["TLS"].status()["status"]["plan"]["modelBytes"]
            for v in range(1, a.n + 2):
                for word, d in pairs.items():
                    took[word].append(d.one(v)[0])
        clear, tls = (statistics.median(x[1:]) for x in took.values())
        put("tcp in TLS / in the clear",
            round(statistics.median(y / x for x, y in list(zip(*took.values()))[1:]), 3), "x", None, sums=sums,
            tls=round(tls, 4), clear=round(clear, 4), tls_GBps=round(moved / tls / 1e9, 2),
            clear_GBps=round(moved / clear / 1e9, 2), kernel_tls="not used", mib=moved >> 20, n=a.n)


CASES = ["tcp-plain", "tcp-transposed", "shm-plain", "shm-transposed", "capped", "latency", "commit",
         "staging", "encryption"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--out", default=os.path.join(TOP, "build/release"), help="what make built")
    p.add_argument("--case", default=",".join(CASES), help="of " + ", ".join(CASES))
    p.add_argument("--n", type=int, default=7, help="repetitions (7)")
    p.add_argument("--sums", choices=["on", "off", "both"], default="both")
    p.add_argument("--peers", help="of gloo raw, gloo p2p, gloo bcast, memcpy; none (default: those "
                   "with a bar for the case)")
    p.add_argument("--trace", help="file for the agents' traces of the latency case")
    a = p.parse_args()
    a.out = os.path.abspath(a.out)
    for case in a.case.split(","):
        if case not in CASES:
            p.error(f"no case {case!r}")
        names = [n for c, n in BARS if c == case] if a.peers is None else \
            [n for n in a.peers.split(",") if n != "none"]
        theirs = Peers(names)
        try:
            special = {"capped": capped, "latency": latency, "commit": commit,
                       "staging": staging, "encryption": encryption}.get(case)
            if special:
                special(a)
                continue
            for sums in ["off", "on"] if a.sums == "both" else [a.sums]:
                transfer(a, case, sums, theirs)
        except Failed as e:
            put(case, None, "s", failed=str(e))
            sys.exit(1)
        finally:
            theirs.close()


if __name__ == "__main__":
    main()
