# SPDX-License-Identifier: Apache-2.0
"""The loop four times: synchronous and asynchronous, by WeightBridge and by a broadcast.  Writes a line of JSON for each
step, loop.svg and loop.png, and prints a table."""
import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import plot
    import torch.distributed as dist
except ModuleNotFoundError as e:
    raise SystemExit(f"{e}: pip install torch transformers matplotlib") from None

HERE = os.path.dirname(os.path.abspath(__file__))
TRAINERS = 2
RUNS = [(mode, way) for mode in ("sync", "async") for way in ("weightbridge", "broadcast")]


def start(*argv, **more):
    return subprocess.Popen([sys.executable, *argv], text=True, **more)


@contextlib.contextmanager
def local(mode, folder):
    """An operator and two agents on this machine."""
    p = start("-m", "weightbridge", "local", "--dir", folder, "--file", os.path.join(HERE, mode + ".yaml"),
              stdout=subprocess.PIPE)
    try:
        for line in p.stdout:
            if "wbctl get" in line:
                break
        else:
            raise SystemExit(f"weightbridge local ended: logs are in {folder}")
        yield
    finally:
        p.send_signal(signal.SIGTERM)
        p.communicate()


def loop(mode, way, args, folder):
    """One run; its lines are in a log."""
    log = os.path.join(args.out, f"{mode}-{way}.jsonl")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = ["--store", f"127.0.0.1:{store.port}", "--mode", mode, "--weights", way, "--steps", str(args.steps),
              "--hidden", str(args.hidden), "--layers", str(args.layers), "--trainers", str(TRAINERS)]
    with local(mode, folder) if way == "weightbridge" else contextlib.nullcontext():
        def env(agent):
            return {**os.environ, "WEIGHTBRIDGE_SOCKET": os.path.join(folder, agent + ".sock")}
        workers = [start(os.path.join(HERE, "trainer.py"), "--rank", str(r), *common, *(["--log", log] if r == 0 else []),
                         env=env("trainer")) for r in range(TRAINERS)]
        workers.append(start(os.path.join(HERE, "engine.py"), *common, env=env("engine-0")))
        try:
            wait(workers, log, args.timeout)
        finally:
            for w in workers:
                w.kill()
                w.wait()


def wait(workers, log, timeout):
    """Until all have ended; the others do not wait for one that failed.  timeout: seconds in which nothing gets on, however
    slow the machine is: no line comes into the log and none of them ends."""
    left, before = list(workers), None
    while left:
        for w in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if w.wait(0.2):
                    raise SystemExit(f"{w.args[1]} ended with status {w.returncode}")
        left = [w for w in left if w.returncode is None]
        now = len(left), os.path.getsize(log) if os.path.exists(log) else 0
        if now != before:
            before, end = now, time.monotonic() + timeout
        if left and time.monotonic() >= end:
            raise SystemExit(f"{left[0].args[1]} is not done, and there was no step for {timeout:.0f} s")


def summary(lines):
    """What the table says of one run; the first steps are left out of the stalls, for they warm things up."""
    last = max(1, len(lines) // 6)
    trainer = [x["trainer_stall"] * 1e3 for x in lines[2:]]
    engine = [x["engine_stall"] * 1e3 for x in lines[2:] if x["engine_stall"] is not None]
    steps = [b["seconds"] - a["seconds"] for a, b in zip(lines, lines[1:])]
    return {"reward, first": statistics.mean(x["reward"] for x in lines[:last]),
            "reward, last": statistics.mean(x["reward"] for x in lines[-last:]),
            "staleness": statistics.mean(x["staleness"] for x in lines),
            "trainer stall ms": statistics.median(trainer), "engine stall ms": statistics.median(engine),
            "step ms": statistics.median(steps) * 1e3}


def table(results):
    rows = {f"{mode}, {way}": summary(lines) for (mode, way), lines in results.items()}
    heads = list(next(iter(rows.values())))
    print(f"{'':20}" + "".join(f"{h:>18}" for h in heads))
    for name, row in rows.items():
        print(f"{name:20}" + "".join(f"{row[h]:18.2f}" for h in heads), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", default="rl-loop", help="folder for logs and plots")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--only", choices=[f"{mode}-{way}" for mode, way in RUNS], help="one of the four runs")
    p.add_argument("--timeout", type=float, default=900.0, help="seconds in which there has to be a step")
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for mode, way in RUNS:
        if args.only in (None, f"{mode}-{way}"):
            print(f"\n{mode}, {way}:", flush=True)
            with tempfile.TemporaryDirectory(prefix="wb-rl-") as folder:
                loop(mode, way, args, folder)
    results = plot.read(args.out)  # with those of earlier runs
    print()
    table(results)
    for kind in ("svg", "png"):
        plot.draw(results, os.path.join(args.out, "loop." + kind))


if __name__ == "__main__":
    main()
