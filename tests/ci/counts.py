# SPDX-License-Identifier: Apache-2.0
"""How often each tier passed, over all runs on this machine: what run.py and flakes.py wrote down.

    counts.py [--newest N] [--json] [TIER...]

Prints a row for each tier and load: how many runs, how many tests passed in the best of them, how long they took, and
which tests failed in how many of them, and the machine's load average meanwhile, the tier's own part in it. A test
that passed when it was run again alone counts as one that failed. "ci" stands for runs of run.py, a number for runs of
flakes.py beside so many busy processes. Of each row the newest N=10 runs count.
"""
import argparse
import collections
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def cache():
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge", "ci")


def load_of_the_last(seconds):
    """The machine's load average over about so long."""
    return round(os.getloadavg()[0 if seconds < 150 else 1 if seconds < 500 else 2], 1)


def commit():
    """What the work tree is: a commit, with + where files of it were changed since."""
    def git(*args):
        return subprocess.run(["git", "-c", "safe.directory=*", *args], cwd=TOP, capture_output=True, text=True).stdout
    return git("rev-parse", "--short=10", "HEAD").strip() + ("+" if git("status", "--porcelain", "-uno") else "")


class Ledger:
    """DIR/runs.jsonl: a line a run, only ever added to."""

    def __init__(self, dir):
        self.path = os.path.join(dir, "runs.jsonl")
        os.makedirs(dir, exist_ok=True)

    def add(self, tier, beside, at, seconds, passed, failed, skipped):
        """@beside busy processes, None: continuous integration. @failed: names of tests, also of those that passed later."""
        line = json.dumps({"at": round(at), "commit": commit(), "tier": tier, "beside": beside, "seconds": round(seconds),
                           "load": load_of_the_last(seconds), "passed": passed, "failed": sorted(set(failed)), "skipped": skipped})
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(fd, f"\n{line}\n".encode())  # in one piece: two runs may end at once; and not behind a line cut short
        finally:
            os.close(fd)

    def runs(self):
        """All lines that can be read; one that was cut short is left out."""
        try:
            with open(self.path, errors="replace") as f:
                lines = f.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                run = json.loads(line)
                if {"tier", "beside", "seconds", "passed", "failed", "commit"} <= run.keys():
                    yield run
            except (ValueError, AttributeError):
                continue


def table(runs, newest):
    """A row a tier and load, of its newest runs."""
    rows = collections.OrderedDict()
    for r in runs:
        rows.setdefault((r["tier"], r["beside"]), []).append(r)
    for (tier, beside), of in rows.items():
        of = of[-newest:]
        failed = collections.Counter(name for r in of for name in r["failed"])
        yield {"tier": tier, "beside": "ci" if beside is None else beside, "runs": len(of), "tests": max(r["passed"] for r in of),
               "seconds": [min(r["seconds"] for r in of), max(r["seconds"] for r in of)],
               "load": [f([r["load"] for r in of if "load" in r] or [0]) for f in (min, max)],
               "clean_runs": sum(not r["failed"] for r in of), "failed": dict(sorted(failed.items())),
               "commits": [of[0]["commit"], of[-1]["commit"]]}


def text(row):
    failed = ", ".join(f"{name} in {n}" for name, n in row["failed"].items()) or "nothing failed"
    return (f"{row['tier']:20} {row['beside']!s:>4} {row['runs']:4} runs ({row['clean_runs']} clean) {row['tests']:6} tests  "
            f"{row['seconds'][0]} to {row['seconds'][1]} s  load {row['load'][0]} to {row['load'][1]}  "
            f"{' to '.join(dict.fromkeys(row['commits']))}: {failed}")


def main(argv):
    ap = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--newest", type=int, default=10, metavar="N", help="of each tier and load, the newest N runs")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("tier", nargs="*", help="only these")
    a = ap.parse_args(argv)
    ledger = Ledger(cache())
    rows = list(table((r for r in ledger.runs() if not a.tier or r["tier"] in a.tier), max(1, a.newest)))
    for row in rows:
        print(json.dumps(row) if a.json else text(row))
    if not rows:
        print(f"no runs are written down in {ledger.path}", file=sys.stderr)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
