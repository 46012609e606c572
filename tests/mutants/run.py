#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--check] [--named] [--rest] [--table] [TEXT...]: does a test fail when a fence is taken away?

Each edit of tests/mutants/*.txt (README.md says how they look) is made in a copy of the tree, the
tests are built there and run: those that the edit names first, then the other fast ones of its
module.  Of TEXT only edits whose name or file contains one of them.

  --check  only look whether each old text is found exactly once
  --named  run no other tests than those named
  --rest   only edits of which no run so far has found anything, as they stand now
  --table  only print what the runs so far have found, by folder: of each edit the last, if it and
           its names stand as they did
  JOBS=N   processes of the build (2); MUTANTS=DIR where the copy lies (build/mutants), and results

The last line is "N passed, N failed, N skipped": killed, alive or not applicable, alive for the
reason that the list gives.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
SIM = ["test_flow"] + [f"test_transfer_{what}" for what in ("corners", "waits", "prompt", "world", "steps", "bytes",
                                                         "snapshots", "joint", "chaos")]
CHAOS = ["1", "400", "-1"]  # seeds of a run: first, count, mode
SLOW = {"test_serve_away", "test_serve_many"}  # thousands of objects, or of orders
LIMIT_S, SLOWER = 300, 10  # a test hangs after so many seconds, and so many times what it took without any edit
BUILD_S = 3600
# What an edit leaves unused is no error.
PRAGMAS = "".join(f'#pragma GCC diagnostic ignored "-W{w}"\n' for w in (
    "unused-variable", "unused-parameter", "unused-function", "unused-but-set-variable",
    "unused-label", "empty-body", "misleading-indentation"))


def units(*parts):
    names = (p.stem for p in (TOP / "tests/unit").glob("test_*.c"))
    return sorted(n for n in names if n not in SLOW and any(p in n for p in parts))


# Tests of a folder by parts of their names; of all others those that simulate transfers.
OWN = {"agent/client": ["client"], "agent/daemon": ["test_daemon"],
       "agent/extract": ["test_extract"], "agent/mem": ["test_extract_gpu", "test_mem"],
       "agent/proto": ["session", "proto", "client_fences"],
       "agent/xport": ["xport"], "operator-shim/reconcile": ["reconcile"],
       "operator-shim/serve": ["serve"]}


def fast_tests(file):
    own = OWN.get(os.path.dirname(file))
    return units(*own) if own else units("transfer_fences", "transfer_ends", "transfer_feeds", "transfer_doubt") + SIM


class Edit:
    def __init__(self, where):
        self.where, self.name, self.file, self.alive = where, "", "", ""
        self.kill, self.old, self.new = [], "", ""

    def key(self):
        text = "\0".join((self.file, self.old, self.new, self.alive, *self.kill))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def add(self, line):
        mark, rest = line[0], line[1:] + "\n"
        if mark in " -":
            self.old += rest
        if mark in " +":
            self.new += rest

    def apply(self, text):
        """The edited text, or a sentence that says why there is none."""
        n = text.count("\n" + self.old)
        if n != 1:
            return None, f"its old text is found {n} times in {self.file}, not once"
        return text.replace("\n" + self.old, "\n" + self.new), None


def parse(path):
    edit = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        key, _, value = line.partition(": ")
        if not line:
            edit = None
        elif line[0] == "#":
            continue
        elif key == "name":
            edit = Edit(f"{path.name}:{number}")
            edit.name = value
            yield edit
        elif edit and key in ("file", "alive"):
            setattr(edit, key, value)
        elif edit and key == "kill":
            edit.kill = value.split()
        elif edit and line[0] in " -+":
            edit.add(line)
        else:
            sys.exit(f"{path.name}:{number}: not understood: {line}")


def edits(wanted):
    for path in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        for e in list(parse(path)):
            if not wanted or any(w in e.name or w in e.file for w in wanted):
                yield e


def run(cmd, cwd, log, limit_s=LIMIT_S):
    """Exit code; what hangs has 124."""
    with open(log, "w") as f:  # a group of its own: Check hands a signal on to all of its group
        p = subprocess.Popen(cmd, cwd=cwd, stdout=f, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return p.wait(limit_s)
        except subprocess.TimeoutExpired:
            p.terminate()  # then Check ends its children, too
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        return 124


class Copy:
    """The tree as git sees it, changed or not, beside a build folder of its own."""

    def __init__(self):
        self.dir = pathlib.Path(os.environ.get("MUTANTS") or TOP / "build/mutants").resolve()
        self.tree, self.log = self.dir / "tree", self.dir / "log"
        self.limit_s = {}  # of each test
        self.tree.mkdir(parents=True, exist_ok=True)
        os.environ.update(TMPDIR=str(self.dir), CK_VERBOSITY="minimal", WB_TOP=str(self.tree),
                          WB_BUILD=str(self.tree / "build/release"))
        os.environ.setdefault("CK_DEFAULT_TIMEOUT", "180")
        self.update()

    def update(self):
        out = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=TOP,
                             check=True, stdout=subprocess.PIPE).stdout.decode()
        names = {n for n in out.split("\0") if n and (TOP / n).is_file()}
        for old in self.tree.rglob("*"):
            name = str(old.relative_to(self.tree))
            if old.is_file() and not name.startswith("build/") and name not in names:
                old.unlink()
        for n in names:
            a, b = TOP / n, self.tree / n
            if b.is_file() and b.read_bytes() == a.read_bytes():
                continue
            b.parent.mkdir(parents=True, exist_ok=True)
            b.write_bytes(a.read_bytes())
            b.chmod(a.stat().st_mode)

    def build(self, tests):
        goals = [f"build/release/tests/{t}" for t in tests]
        cmd = ["make", f"-j{os.environ.get('JOBS', '2')}", *goals]
        return run(cmd, self.tree, self.log, BUILD_S) == 0

    def fails(self, test):
        """None, or how: "fails", "hangs"."""
        args = CHAOS if test == "test_transfer_chaos" else []
        cmd = [str(self.tree / "build/release/tests" / test), *args]
        begin = time.monotonic()
        rc = run(cmd, self.tree, self.log, self.limit_s.get(test, SLOWER * LIMIT_S))
        self.limit_s.setdefault(test, max(LIMIT_S, SLOWER * (time.monotonic() - begin)))
        return "hangs" if rc == 124 else "fails" if rc else None


def killer(copy, e, named_only):
    """The test that fails, and how; None: all pass."""
    others = [] if named_only else [t for t in fast_tests(e.file) if t not in e.kill]
    for group in (e.kill, others):
        if not group:
            continue
        if not copy.build(group):
            return "the compiler", ""
        for t in group:
            how = copy.fails(t)
            if how:
                return t, how
    return None, ""


def judge(copy, e, named_only):
    """(result, sentence)"""
    text = (TOP / e.file).read_text() if (TOP / e.file).is_file() else ""
    edited, why = e.apply(text)
    for t in e.kill:
        if not (TOP / "tests/unit" / f"{t}.c").is_file():
            why = f"there is no tests/unit/{t}.c"
    if why:
        return "failed", why
    if copy is None:
        return "passed", ""
    path = copy.tree / e.file
    path.write_text(PRAGMAS + edited)
    try:
        by, how = killer(copy, e, named_only)
    finally:
        path.write_text(text)
    if by == "the compiler":
        return "failed", "does not build: " + copy.log.read_text()[-600:]
    if by:
        note = ", which hangs" if how == "hangs" else ""
        note += "" if by in e.kill else ", which it does not name"
        return ("failed", f"killed by {by}, though the list says: {e.alive}") if e.alive else (
            "passed", f"killed by {by}{note}")
    return ("skipped", f"alive: {e.alive}") if e.alive else ("failed", "ALIVE")


def baseline(copy, chosen, named_only):
    """A test that fails without any edit kills nothing."""
    tests = {t for e in chosen for t in e.kill + ([] if named_only else fast_tests(e.file))}
    if not copy.build(sorted(tests)):
        sys.exit("the tree does not build: " + copy.log.read_text()[-2000:])
    for t in sorted(tests):
        if copy.fails(t):
            sys.exit(f"{t} fails without any edit: " + copy.log.read_text()[-2000:])


def results_file():
    return pathlib.Path(os.environ.get("MUTANTS") or TOP / "build/mutants").resolve() / "results"


def commit():
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=TOP, check=True,
                          stdout=subprocess.PIPE).stdout.decode().strip()


def known():
    """What runs so far have found of each edit, and on which commit."""
    lines = results_file().read_text().splitlines() if results_file().is_file() else []
    return {key: (result, at) for key, result, at in map(str.split, lines)}


def table(chosen):
    """What is known of each folder's edits, and on which commits that was found."""
    found = known()
    rows, commits = {}, set()
    for e in chosen:
        result, at = found.get(e.key(), ("not-run", None))
        commits |= {at} if at else set()
        for name in (os.path.dirname(e.file), "all"):
            row = rows.setdefault(name, {"edits": 0, "passed": 0, "failed": 0, "skipped": 0,
                                         "not-run": 0})
            row["edits"] += 1
            row[result] += 1
    print(f"{'':24} edits  killed  alive  alive for a reason  not run")
    for name in sorted(rows, key=lambda n: (n == "all", n)):
        r = rows[name]
        print(f"{name:24} {r['edits']:5}  {r['passed']:6}  {r['failed']:5}  {r['skipped']:18}"
              f"  {r['not-run']:7}")
    print("at " + " ".join(sorted(commits)))


def main(argv):
    flags = {a for a in argv if a.startswith("--")}
    if flags - {"--check", "--named", "--rest", "--table"}:
        sys.exit(__doc__)
    chosen = list(edits([a for a in argv if not a.startswith("--")]))
    if "--rest" in flags:
        found = known()
        chosen = [e for e in chosen if e.key() not in found]
    if "--table" in flags:
        table(chosen)
        return 0
    copy = None if "--check" in flags else Copy()
    count = {"passed": 0, "failed": 0, "skipped": 0}
    at = commit()
    if copy and chosen:
        baseline(copy, chosen, "--named" in flags)
    for e in chosen:
        begin = time.monotonic()
        result, sentence = judge(copy, e, "--named" in flags)
        count[result] += 1
        if copy:
            with open(results_file(), "a") as f:
                f.write(f"{e.key()} {result} {at}\n")
        if copy or result != "passed":
            print(f"{e.where}: {e.name}: {sentence} ({time.monotonic() - begin:.0f} s)",
                  flush=True)
    print(", ".join(f"{n} {what}" for what, n in count.items()))
    return 1 if count["failed"] or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
