#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our transfers beside other tools that move the same bytes over loopback, one JSON object a line.

peers_all.py [--out DIR] [--case CASE,...] [--peer NAME,...] [--n N] [--small]

Cases are trainers->engines: 2->2 (an engine of two ranks), 1->1, 1->4 and 4->1 (engines of one rank).  Each peer runs in
turn with ours, pair by pair, so that both see the same machine; the machine has to be quiet for the figures to mean
something.  `set_up_s`: once, from the first process to the first transfer; `figure`: the median of N transfers after it,
from the word to begin until all ranks are done.  What came is compared after each.  `lacks` says what of the job a tool
does not do: reshape (other layouts on the two sides), check (of the bytes, on the way), commit (all ranks of an engine at
one step, and all or none).  Peers move the model as bytes; ours move it tensor by tensor between two layouts, with
checksums (sums on) and without.
"""
import argparse
import contextlib
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
try:
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
except ImportError:  # run by hand with another Python
    found = subprocess.run([os.path.join(TOP, "tests/common/venv.sh")], capture_output=True, text=True,
                           check=True).stdout.strip()
    os.execv(found, [found, *sys.argv])
sys.path[:0] = [HERE, os.path.join(TOP, "tests/demo"), os.path.join(TOP, "tests")]

import e2e  # noqa: E402
import make_checkpoint  # noqa: E402
from engines import deploy  # noqa: E402
from peers import Absent  # noqa: E402
from procs import Deployment  # noqa: E402

CASES = {"2->2": (2, 1, 2), "1->1": (1, 1, 1), "1->4": (1, 4, 1), "4->1": (4, 1, 1)}  # trainers, engines, ranks of one
BYTES = ["reshape", "check", "commit"]
# name: (environment of tests/frameworks/env.py, what it lacks, more environment variables)
PEERS = {"gloo p2p": ("torch", BYTES, {}), "gloo broadcast": ("torch", BYTES, {}), "ray": ("ray", BYTES, {}),
         "mooncake tcp": ("mooncake", BYTES, {}), "nixl tcp": ("nixl", BYTES, {"UCX_TLS": "tcp"}), "nixl": ("nixl", BYTES, {}),
         "checkpoint-engine": ("checkpoint-engine", ["reshape", "check", "commit"], {}),
         "awex tcp": ("awex", ["check", "commit"], {})}
ANSWER_S = 300
put = e2e.put


def python(name):
    """The Python of an environment."""
    p = subprocess.run([sys.executable, os.path.join(TOP, "tests/frameworks/env.py"), name], stdout=subprocess.PIPE, text=True,
                       check=False)
    said = p.stdout.strip().splitlines()
    if p.returncode:
        raise Absent(said[-1] if said else f"environment {name} cannot be made")
    return said[-1]


def stubs(interpreter, package):
    """A folder with stand-ins for CUDA's libraries, beside the environment."""
    out = os.path.join(os.path.dirname(os.path.dirname(interpreter)), "stubs")
    if not os.path.isdir(out):
        site = subprocess.run([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                              capture_output=True, text=True).stdout.strip()
        subprocess.run([sys.executable, os.path.join(HERE, "peers_stubs.py"), os.path.join(site, package), out + ".new"], check=True)
        os.rename(out + ".new", out)
    return out


class Peer:
    """The processes of one peer in one case."""

    def __init__(self, name, case, size):
        where, self.lacks, more = PEERS[name]
        senders, engines, per_engine = CASES[case]
        interpreter = python(where)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "UCX_LOG_LEVEL": "error", **more}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env["PYTHONPYCACHEPREFIX"] = os.path.join(os.path.dirname(os.path.dirname(interpreter)), "bytecode")
        if where in ("mooncake", "awex"):
            env["LD_LIBRARY_PATH"] = stubs(interpreter, "mooncake")
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        said = {"kind": name, "senders": senders, "engines": engines, "per_engine": per_engine, "port": port,
                "segment": size // (senders * per_engine) & ~4095}
        n = 1 if name == "ray" else senders + engines * per_engine
        self.k, begin = 0, time.monotonic()
        self.ps = [subprocess.Popen([interpreter, os.path.join(HERE, "peers_rank.py"), json.dumps({**said, "rank": r})],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
                   for r in range(n)]
        try:
            metas = [self._hear(p)["meta"] for p in self.ps]
            self._tell(json.dumps(metas))
        except Absent:
            self.close()
            raise
        self.set_up_s = time.monotonic() - begin

    def _hear(self, p):
        if not select.select([p.stdout], [], [], ANSWER_S)[0]:
            raise Absent(f"a process of it says nothing for {ANSWER_S} s")
        line = p.stdout.readline()
        said = json.loads(line) if line else {"absent": f"its process ended with {p.wait()}"}
        if "absent" in said:
            raise Absent(said["absent"])
        return said

    def _tell(self, line):
        for p in self.ps:
            try:
                p.stdin.write(line + "\n")
                p.stdin.flush()
            except BrokenPipeError:
                pass  # what it said before is read
        return [self._hear(p) for p in self.ps]

    def once(self):
        """Seconds of a transfer of fresh bytes; raises when not all came."""
        self.k += 1
        self._tell(f"fill {self.k}")
        begin = time.monotonic()
        self._tell("go")
        took = time.monotonic() - begin
        if not all(x["right"] for x in self._tell(f"check {self.k}")):
            raise Absent("wrong bytes came")
        return took

    def signal(self, number):
        for p in self.ps:
            p.send_signal(number)

    def close(self):
        self.signal(signal.SIGCONT)
        for p in self.ps:
            with contextlib.suppress(BrokenPipeError):
                p.stdin.close()
        for p in self.ps:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
            p.stdout.close()


class Ours(Deployment):
    """The case with an agent for each worker, over TCP.  Trainers are FSDP2, engines TP in vLLM's layout."""

    def __init__(self, build, folder, case, config, sums):
        trainers, engines, ranks = CASES[case]
        super().__init__(build, folder, f"  trainer: {{workers: {trainers}, bufferSize: 256Mi}}\n"
                         f"  rollout: {{workersPerEngine: {ranks}, engines: {engines}, bufferSize: 256Mi}}\n"
                         f"  engineStepDeadlineSeconds: 60\n  checksums: {e2e.SUMS[sums]}\n")
        checkpoint = make_checkpoint.make(config)
        maps = os.path.join(make_checkpoint.cache_dir(), "maps")
        begin = time.monotonic()
        self.start_operator()
        names = [f"trainer-{i}" for i in range(trainers)] + [f"engine-{e}-{r}" for e in range(engines) for r in range(ranks)]
        for n in names:
            self.start_agent(n, None, "--transport", "tcp")
        self.trainers = [self.start_worker(f"trainer-{i}", f"t{i}", "trainer", i, s, checkpoint, cache=maps)
                         for i, s in enumerate(deploy.fsdp2(config, trainers))]
        self.rollouts = [self.start_worker(f"engine-{e}-{r}", f"r{e}-{r}", "rollout", r, s, checkpoint, engine=f"engine-{e}",
                                           cache=maps)
                         for e in range(engines) for r, s in enumerate(deploy.engine("vllm", config, ranks, tied="alias"))]
        for w in self.workers.values():
            w.wait("planned", 600)
        self.set_up_s, self.version = time.monotonic() - begin, 0
        self.bytes = self.status()["status"]["plan"]["modelBytes"]

    def once(self):
        """Seconds from the first send_weights to the last update."""
        self.version += 1
        self.send(self.trainers, self.version)
        start = min(w.wait("sent", version=self.version)["start"] for w in self.trainers)
        return max(w.wait("update", version=self.version)["t"] for w in self.rollouts) - start


def measure(ours, peer, n):
    """Times of ours and of theirs, in turn; the first pair warms up.  A peer is stopped while it is not its turn: some have
    threads that look for work all the time."""
    mine, theirs = [], []
    for _ in range(n + 1):
        if peer:
            peer.signal(signal.SIGSTOP)
        mine.append(ours.once())
        if peer:
            peer.signal(signal.SIGCONT)
            theirs.append(peer.once())
    return mine[1:], theirs[1:]


def line(case, who, took, mib, set_up_s, lacks, **more):
    t = statistics.median(took)
    put(f"{case} {who}", round(t, 4), "s", case=case, who=who, GBps=round(mib * 1.048576e-3 / t, 2), mib=mib,
        set_up_s=round(set_up_s, 2), lacks=lacks, min=round(min(took), 4), max=round(max(took), 4), n=len(took), **more)
    return t


def run(a, case, sums, peers, best):
    """One case with checksums on or off.  best: case -> figures of ours and of those that only move bytes."""
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(a.out, folder, case, e2e.SMALL if a.small else deploy.BENCH_512M, sums)
        mib, mine, bars = max(1, ours.bytes >> 20), [], {}
        try:
            for name in peers:
                peer = None
                try:
                    peer = Peer(name, case, mib << 20)
                    o, theirs = measure(ours, peer, a.n)
                except Absent as e:
                    put(f"{case} {name}", None, "s", case=case, who=name, skipped=str(e))
                    continue
                finally:
                    if peer:
                        peer.close()
                mine += o
                line(case, name, theirs, mib, peer.set_up_s, peer.lacks)
                bars[name] = statistics.median(x / y for x, y in zip(o, theirs)), peer.lacks
            mine = mine or measure(ours, None, a.n)[0]
            best[case] = line(case, f"ours, sums {sums}", mine, mib, ours.set_up_s, [], sums=sums)
        finally:
            ours.stop()
    for name, (ratio, lacks) in bars.items():
        put(f"{case} ours, sums {sums} / {name}", round(ratio, 3), "x", case=case, sums=sums, lacks=lacks)
    movers = [r for r, lacks in bars.values() if lacks == BYTES]
    if movers:
        put(f"{case} ours, sums {sums} / fastest that only moves bytes", round(max(movers), 3), "x", 1.2 if sums == "on" and not a.small else None,
            case=case, sums=sums)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--out", default=os.path.join(TOP, "build/release"), help="what make built")
    p.add_argument("--case", default=",".join(CASES), help="of " + ", ".join(CASES))
    p.add_argument("--peer", default=",".join(PEERS), help="of " + ", ".join(PEERS) + "; none")
    p.add_argument("--n", type=int, default=7, help="pairs (7)")
    p.add_argument("--sums", choices=["on", "off", "both"], default="both")
    p.add_argument("--small", action="store_true", help="1 MiB instead of 512: shows that it works, measures nothing")
    a = p.parse_args()
    a.out = os.path.abspath(a.out)
    peers = [n for n in a.peer.split(",") if n != "none"]
    for n in peers:
        if n not in PEERS:
            p.error(f"no peer {n!r}")
    for sums in ["off", "on"] if a.sums == "both" else [a.sums]:
        best = {}
        for case in a.case.split(","):
            run(a, case, sums, peers if case != "1->1" else [], best)
        if {"1->1", "1->4"} <= best.keys():
            put(f"ours, sums {sums}: 4 engines / 1", round(best["1->4"] / best["1->1"], 3), "x", sums=sums)


if __name__ == "__main__":
    main()
