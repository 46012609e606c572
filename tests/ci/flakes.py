# SPDX-License-Identifier: Apache-2.0
"""Count how often each test passes, on the machine as it is and beside busy loops.

    flakes.py [--runs 10] [--load 0,8] [--busy SCRIPT] TIER | COMMAND...

Runs a tier of tiers.py, or a command, and reads the lines "ok NAME N ms", "FAIL NAME ..." and "SKIP NAME: ..." that the
runners print. Prints a row a test that ever failed and a total a load, as JSON lines on --json. Exit 1 when a test failed. The runs of a
tier are written down for counts.py, which adds up those of several days.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from counts import Ledger, cache
from tiers import TIERS

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINE = re.compile(r"^(ok|FAIL|SKIP)\s+(?:fuzz )?([\w-]+):?(?:.*?(\d+) ms$)?")


class Load:
    """n processes that do nothing but compute, as long as the block runs; or that run a script which does not end."""

    def __init__(self, n, script=None):
        self.n, self.procs = n, []
        self.command = ["bash", script] if script else [sys.executable, "-c", "while True: pass"]

    def __enter__(self):
        for i in range(self.n):
            self.procs.append(subprocess.Popen([*self.command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               env={**os.environ, "BUSY": str(i)}, start_new_session=True))
        return self

    def __exit__(self, *_):
        for p in self.procs:
            if p.poll() is not None:
                print("flakes.py: a busy process ended by itself: the load was less", file=sys.stderr)
            with contextlib.suppress(ProcessLookupError):  # what it started may run on
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()


def once(command):
    """What came of each test in one run, as (result, ms or None)."""
    r = subprocess.run(command, cwd=TOP, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    seen = {}
    for line in r.stdout.splitlines():
        m = LINE.match(line)
        if m:
            seen[m[2]] = (m[1], int(m[3]) if m[3] else None)
    if r.returncode and not any(what == "FAIL" for what, _ in seen.values()):
        seen["(the command)"] = ("FAIL", None)
    return seen, r.stdout


def table(runs):
    """name -> results of all runs, each test with its passes, failures, skips and slowest time in ms."""
    out = collections.OrderedDict()
    for seen in runs:
        for name, (what, ms) in seen.items():
            row = out.setdefault(name, {"ok": 0, "FAIL": 0, "SKIP": 0, "slowest_ms": 0})
            row[what] += 1
            row["slowest_ms"] = max(row["slowest_ms"], ms or 0)
    return out


def note(tier, load, began, seen):
    what = [w for w, _ in seen.values()]
    Ledger(cache()).add(tier, load, began, time.time() - began, what.count("ok"), [n for n, (w, _) in seen.items() if w == "FAIL"],
                        what.count("SKIP"))


def main(argv):
    ap = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=10)
    ap.add_argument("--load", default="0,8", help="busy loops beside it, one round each")
    ap.add_argument("--busy", metavar="SCRIPT", help="what a busy loop is: a bash script, told its number as BUSY")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("what", nargs=argparse.REMAINDER)
    a = ap.parse_args(argv)
    if not a.what:
        ap.error("a tier or a command is missing")
    known = {t.name: t.command.format(jobs=os.cpu_count() or 1).split() for t in TIERS}
    command = known.get(a.what[0], a.what) if len(a.what) == 1 else a.what
    bad = 0
    for load in (int(x) for x in a.load.split(",")):
        runs = []
        with Load(load, a.busy):
            for i in range(a.runs):
                t0 = time.time()
                seen, text = once(command)
                runs.append(seen)
                if command is not a.what:
                    note(a.what[0], load, t0, seen)
                failed = [n for n, (what, _) in seen.items() if what == "FAIL"]
                print(f"load {load}, run {i + 1} of {a.runs}: {len(seen)} tests" + (f", failed: {' '.join(failed)}" if failed else ""),
                      file=sys.stderr, flush=True)
                if failed:
                    print(text[-6000:], file=sys.stderr, flush=True)
        rows = table(runs)
        flakes = {n: r for n, r in rows.items() if r["FAIL"]}
        bad += len(flakes)
        for name, r in rows.items():
            if a.json:
                print(json.dumps({"load": load, "test": name, "passed": r["ok"], "failed": r["FAIL"], "skipped": r["SKIP"],
                                  "slowest_ms": r["slowest_ms"]}), flush=True)
            elif name in flakes:
                print(f"load {load}: {name} failed {r['FAIL']} of {a.runs}", flush=True)
        print(f"load {load}: {len(rows)} tests, {len(rows) - len(flakes)} never failed in {a.runs} runs", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
