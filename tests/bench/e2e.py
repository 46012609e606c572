# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of whole transfers, one JSON object a line; ratios are within one run.

e2e.py OUTDIR [NAME...]   names: tcp, shm, bound, control; default all.
REPS=7, MIB=512 (the model is scaled by its layers).
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "demo"), os.path.join(HERE, "..")]

import make_checkpoint  # noqa: E402
from engines import deploy, models  # noqa: E402
from procs import Deployment, Failed  # noqa: E402

REPS = int(os.environ.get("REPS", 7))


def put(**fields):
    print(json.dumps(fields), flush=True)


def memcpy_seconds(nbytes):
    """Two processes copy half of nbytes each: the time of the slower one."""
    code = ("import numpy,sys,time\n"
            "n=int(sys.argv[1]); a=numpy.ones(n,'u1'); b=numpy.zeros(n,'u1'); b[:]=a\n"
            "sys.stdout.write('r'); sys.stdout.flush(); sys.stdin.read(1)\n"
            "t=time.monotonic(); b[:]=a; print(time.monotonic()-t)\n")
    ps = [subprocess.Popen([sys.executable, "-c", code, str(nbytes // 2)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for p in ps:
        p.stdout.read(1)
    for p in ps:
        p.stdin.write("g")
        p.stdin.flush()
    return max(float(p.communicate()[0]) for p in ps)


class Pair(Deployment):
    """FSDP2 on 2 workers -> one engine of TP2, each worker with an agent of its own."""

    def __init__(self, build, folder, checkpoint, config, options, gate_up="rows"):
        super().__init__(build, folder, "  trainer: {workers: 2, bufferSize: 256Mi}\n"
                         "  rollout: {workersPerEngine: 2, bufferSize: 256Mi}\n"
                         "  engineStepDeadlineSeconds: 60\n")
        self.start_operator()
        for n in ("trainer-0", "trainer-1", "engine-a", "engine-b"):
            self.start_agent(n, None, *options)
        trainers = deploy.fsdp2(config, 2)
        rollouts = deploy.engine("vllm", config, 2, tied="alias", gate_up=gate_up)
        self.trainers = [self.start_worker(f"trainer-{i}", f"t{i}", "trainer", i, s, checkpoint)
                         for i, s in enumerate(trainers)]
        self.rollouts = [self.start_worker(f"engine-{'ab'[i]}", f"r{i}", "rollout", i, s,
                                           checkpoint, engine="engine-0")
                         for i, s in enumerate(rollouts)]
        for w in self.workers.values():
            w.wait("planned", 240)

    def one(self, version):
        self.send(self.trainers, version)
        sent = [w.wait("sent", version=version) for w in self.trainers]
        done = [w.wait("update", version=version) for w in self.rollouts]
        start = min(s["start"] for s in sent)
        return (max(u["t"] for u in done) - start,
                statistics.mean(s["released"] - s["start"] for s in sent))


def pairs(build, transport, checkpoint, config):
    """EWTT of plain and transposed, sums on and off, interleaved with memcpy."""
    runs = {}
    for kind in ("plain", "transposed"):
        for sums in ("off", "on"):
            with tempfile.TemporaryDirectory() as folder:
                d = Pair(build, folder, checkpoint, config,
                         ["--transport", transport, "--checksums", sums],
                         "transposed" if kind == "transposed" else "rows")
                try:
                    moved = d.status()["status"]["plan"]["modelBytes"]
                    d.one(1)
                    times, copies = [], []
                    for v in range(2, REPS + 2):
                        times.append(d.one(v)[0])
                        copies.append(memcpy_seconds(moved))
                finally:
                    d.stop()
            t, c = statistics.median(times), statistics.median(copies)
            runs[kind, sums] = t
            put(bench=f"{transport} {kind}", sums=sums, staging="None", mib=moved >> 20,
                seconds=round(t, 4), min=round(min(times), 4), max=round(max(times), 4),
                GBps=round(moved / t / 1e9, 2), memcpy_seconds=round(c, 4),
                times_memcpy=round(t / c, 2))
    return runs, moved


def gloo(mib):
    """Seconds of each gloo mode in this run, or None with the reason printed."""
    p = subprocess.run([os.environ.get("WB_TORCH_PYTHON", sys.executable),
                        os.path.join(HERE, "gloo.py"), str(mib), str(REPS)],
                       capture_output=True, text=True, check=False)
    if p.returncode:
        put(bench="gloo", skipped=(p.stderr.strip().splitlines() or ["no output"])[-1])
        return None
    out = {}
    for line in p.stdout.splitlines():
        r = json.loads(line)
        put(**r)
        out[r["bench"]] = r["seconds"]
    return out


def tcp(build, checkpoint, config):
    base = gloo(512)
    runs, _ = pairs(build, "tcp", checkpoint, config)
    if not base:
        return
    for (kind, sums), t in runs.items():
        for name, s in base.items():
            put(ratio=f"tcp {kind} / {name}", sums=sums, value=round(t / s, 3))


def bound(build, checkpoint, config):
    """2 + 2 domains on capped rails: EWTT / bound and trainer stall / EWTT."""
    rate = int(os.environ.get("RAIL_RATE", 40_000_000))
    with tempfile.TemporaryDirectory() as folder:
        d = Deployment(build, folder, "  trainer: {workers: 2, bufferSize: 64Mi}\n"
                       "  rollout: {workersPerEngine: 1, engines: 2, bufferSize: 64Mi}\n")
        small = models.load("Qwen3-30B-A3B", 2, 16)
        where = make_checkpoint.make(small)
        try:
            d.start_operator()
            for n in ("trainer-0", "trainer-1", "engine-0", "engine-1"):
                d.start_agent(n, None, "--rail-rate", str(rate))
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
            for v in range(1, REPS + 2):
                d.send(ts, v)
                sent = [w.wait("sent", version=v) for w in ts]
                done = [w.wait("update", version=v) for w in rs]
                start = min(s["start"] for s in sent)
                out.append((max(u["t"] for u in done) - start,
                            statistics.mean(s["released"] - s["start"] for s in sent)))
            out = out[1:]
            ewtt = statistics.median(e for e, _ in out)
            put(bench="capped rails", sums="on", mib=moved >> 20, rail_bytes_per_s=rate,
                bound_seconds=round(limit, 4), seconds=round(ewtt, 4),
                ewtt_over_bound=round(ewtt / limit, 3),
                stall_over_ewtt=round(statistics.median(s / e for e, s in out), 3))
        finally:
            d.stop()


def main():
    build = os.path.abspath(sys.argv[1])
    names = sys.argv[2:] or ["tcp", "shm", "bound"]
    config = deploy.BENCH_512M
    try:
        checkpoint = make_checkpoint.make(config)
        if "tcp" in names:
            tcp(build, checkpoint, config)
        if "shm" in names:
            pairs(build, "shm", checkpoint, config)
        if "bound" in names:
            bound(build, checkpoint, config)
    except Failed as e:
        put(bench="e2e", failed=str(e))
        sys.exit(1)


if __name__ == "__main__":
    main()
