#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real agents on rails with a cap, and what `wbctl simulate` says of the same deployment; one JSON object a line.

predicted.py [--out DIR] [--n N] [--shape NAME[;NAME...]]

Each worker is a process with NumPy parameters and a rail of its own, slow enough that a transfer takes its time and not
this machine's.  The command gets the model's config.json, the layouts and the rate, no more: so its geometry, its plan
and its model of the flow are held against agents that extracted, planned and moved.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, "tests/bench"), os.path.join(TOP, "tests/demo"), os.path.join(TOP, "tests")]

from e2e import make_checkpoint, put  # noqa: E402 (runs this again with NumPy where it is missing)
from engines import deploy, models  # noqa: E402
from procs import Deployment, Failed  # noqa: E402

DENSE = models.load("Qwen3-0.6B", 8, 2, vocab=16384, ckpt_stores_tied_lm_head=False)
MOE = models.load("Qwen3-30B-A3B", 3, 4, experts=32, vocab=8192)
LATENT = models.load("Moonlight-16B-A3B", 3, 4, experts=32, vocab=8192)

# model; layouts as the command takes them and as the reference loaders do; engines; workers of a pod
Shape = collections.namedtuple("Shape", "model trainer trainers rollout rollouts engines pod")
SHAPES = {
    "dense, one engine": Shape(
        DENSE, "megatron:tp2,pp2", deploy.megatron(DENSE, 4, tp=2, pp=2), "vllm:tp4", deploy.engine("vllm", DENSE, 4), 1, 4),
    "dense, four engines": Shape(
        DENSE, "fsdp2:4", deploy.fsdp2(DENSE, 4), "vllm:tp2", deploy.engine("vllm", DENSE, 2), 4, 2),
    "experts, two engines": Shape(
        MOE, "megatron:tp2,ep4", deploy.megatron(MOE, 4, tp=2, ep=4), "sglang:tp4,ep4", deploy.engine("sglang", MOE, 4, ep=4), 2, 4),
    "latent attention, an engine of two pods": Shape(
        LATENT, "megatron:tp2,ep8", deploy.megatron(LATENT, 8, tp=2, ep=8), "sglang:tp8,ep8",
        deploy.engine("sglang", LATENT, 8, ep=8), 1, 4),
    "more shards than readers": Shape(
        DENSE, "fsdp2:8", deploy.fsdp2(DENSE, 8), "sglang:tp2", deploy.engine("sglang", DENSE, 2), 2, 2),
}
# What of the model's parameters is another here than in a cluster of GPUs: rails are buckets of payload, lanes and the
# way between two workers are a processor's copies, slots are those of SPEC.
SET = {"goodput": 1, "latencyUs": 100, "laneGBs": 5, "fabricGBs": 3, "loopUs": 20, "trainerMiB": 64, "rolloutMiB": 64}
OFF = 0.05  # a prediction may be off by so much
RATE = 12_000_000  # bytes a second of a rail


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--out", default=os.path.join(TOP, "build/release"), help="what make built")
    p.add_argument("--n", type=int, default=5, help="transfers (5)")
    p.add_argument("--shape", default=";".join(SHAPES), help="some of: " + "; ".join(SHAPES))
    return p.parse_args()


def predicted(build, s, folder):
    """What the command says, as its JSON."""
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(models.to_hf(s.model), f)
    done = subprocess.run(
        [os.path.join(build, "bin/wbctl"), "simulate", "--json", "--model", path, "--trainer", s.trainer, "--rollout",
         s.rollout, "--engines", str(s.engines), "--gpus-per-node", str(s.pod), "--rail-gbit", f"{RATE * 8 / 1e9:.6f}",
         "--set", ",".join(f"{k}={v}" for k, v in SET.items())], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr)
    return json.loads(done.stdout)


def start(d, s, checkpoint):
    """(trainers, rollouts) with a plan; pods have addresses of their own, and a rail for each worker."""
    net = iter(range(1, 255))

    def pods(name, specs, role, **more):
        out = []
        for i, spec in enumerate(specs):
            pod = f"{name}-{i // s.pod}"
            if i % s.pod == 0:
                at = next(net)
                n = min(s.pod, len(specs) - i)
                d.start_agent(pod, None, "--transport", "tcp", *(f"--rail=127.0.{at}.{k + 1},rate={RATE}" for k in range(n)))
            out.append(d.start_worker(pod, f"{name}.{i}", role, i, spec, checkpoint, **more))
        return out

    ts = pods("trainer", s.trainers, "trainer")
    rs = [w for e in range(s.engines) for w in pods(f"engine-{e}", s.rollouts, "rollout", engine=f"engine-{e}")]
    for w in d.workers.values():
        w.wait("planned", 240)
    return ts, rs


def measured(build, s, n):
    """(seconds of each of n transfers, the plan's bound in seconds)"""
    spec = (f"  trainer: {{workers: {len(s.trainers)}, bufferSize: {SET['trainerMiB']}Mi}}\n"
            f"  rollout: {{workersPerEngine: {len(s.rollouts)}, engines: {s.engines}, bufferSize: {SET['rolloutMiB']}Mi}}\n"
            "  engineStepDeadlineSeconds: 120\n")
    took = []
    with tempfile.TemporaryDirectory() as folder:
        d = Deployment(build, folder, spec)
        try:
            d.start_operator()
            ts, rs = start(d, s, make_checkpoint.make(s.model))
            bound = d.status()["status"]["plan"]["lowerBoundMilliseconds"] / 1e3
            for v in range(1, n + 2):
                d.send(ts, v)
                sent = [w.wait("sent", version=v) for w in ts]
                done = [w.wait("update", version=v) for w in rs]
                took.append(max(u["t"] for u in done) - min(x["start"] for x in sent))
        finally:
            d.stop()
    return took[1:], bound


def shape(build, name, n):
    s = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder:
        says = predicted(build, s, folder)
    took, bound = measured(build, s, n)
    real, ewtt = statistics.median(took), says["ewtt_ms"] / 1e3
    put(f"predicted, {name}: off by", round(abs(real / ewtt - 1), 4), "of EWTT", OFF, real=round(real, 4),
        predicted=round(ewtt, 4), real_over_predicted=round(real / ewtt, 4), min=round(min(took), 4), max=round(max(took), 4),
        bound=round(bound, 4), predicted_bound=round(says["t_min_ms"] / 1e3, 4), real_over_bound=round(real / bound, 3),
        mib=says["model_bytes"] >> 20, rail_bytes_per_s=RATE, sums="on", n=n)


if __name__ == "__main__":
    a = arguments()
    for which in a.shape.split(";"):
        shape(os.path.abspath(a.out), which.strip(), a.n)
