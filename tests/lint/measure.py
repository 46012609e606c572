#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""measure.py [--json] [--list] [--trace] [--contracts] [--ref COMMIT] [ROOT]

What the product's C code is like, in figures: agent, kernels, planner and operator-shim without tests.
  --ref COMMIT  the same of that commit, in a column of its own before this one
  --list        header functions without a contract, and functions of more than 70 lines
  --trace       what one version costs (traced.py): builds, minutes
  --json        one JSON object instead of a table
  --contracts   only the functions without a contract; exit status 1 when there are any

How it counts: a function's length is from the first line of its head to its closing brace; nesting 0 is
straight code, each branch or loop around a statement one more; a header function is one that a header
declares or defines, and has a contract as source.py:contracted() says; asserts are assert() and
wb_dassert(), all of which debug, sanitizer and simulation builds check, a thousand lines of .c and .h;
product lines are those of .c, .h and .cu, with comments and blank ones."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import source  # noqa: E402

TOPS = ("agent", "kernels", "planner", "operator-shim")
LONG = 70
ASSERT = re.compile(r"\b(?:assert|wb_dassert)\s*\(")


def files(root):
    for top in TOPS:
        for at, dirs, names in os.walk(os.path.join(root, top)):
            dirs.sort()
            for n in sorted(names):
                if n.endswith((".c", ".h", ".cu")):
                    yield os.path.relpath(os.path.join(at, n), root)


def folder(path):
    """agent/xport/tcp/x.c counts for agent/xport, operator-shim/x.c for operator-shim."""
    return "/".join(path.split("/")[:-1][:2])


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0


def measure(root):
    lines, asserts, defined, declared = {}, {}, [], {}
    for path in files(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        at = folder(path)
        lines[at] = lines.get(at, 0) + text.count("\n")
        asserts[at] = asserts.get(at, 0) + len(ASSERT.findall(source.blank(text)[0]))
        for f in source.functions(path, text):
            if f.is_contracted is None or f.has_body:
                defined.append(f)
            if f.is_contracted is not None:
                declared[path, f.name] = f
    sizes = [f.lines for f in defined]
    bare = [f for f in declared.values() if not f.is_contracted]
    deepest = max(defined, key=lambda f: f.nesting, default=None)
    product = sum(lines.values())
    return {
        "product lines": product,
        "functions": len(defined),
        "median function, lines": statistics.median_low(sizes) if sizes else 0,
        "90th percentile, lines": percentile(sizes, 0.9),
        f"functions > {LONG} lines": sum(n > LONG for n in sizes),
        f"share > {LONG} lines, %": round(100 * sum(n > LONG for n in sizes) / max(1, len(sizes)), 1),
        "deepest nesting": deepest.nesting if deepest else 0,
        "asserts a kloc": round(1000 * sum(asserts.values()) / max(1, product), 2),
        "header functions": len(declared),
        "header functions without contract": len(bare),
        "lines by folder": lines,
        "asserts a kloc by folder": {d: round(1000 * n / lines[d], 1) for d, n in asserts.items()},
        "without contract by folder": {d: sum(folder(f.path) == d for f in bare) for d in lines},
    }, {
        "without contract": [f"{f.path}:{f.first}: {f.name}" for f in bare],
        f"more than {LONG} lines": [f"{f.path}:{f.first}: {f.name}, {f.lines}" for f in defined if f.lines > LONG],
        "deepest": [f"{f.path}:{f.first}: {f.name}" for f in defined if deepest and f.nesting == deepest.nesting],
    }


class Checkout:
    """A commit in a temporary folder."""

    def __init__(self, root, ref):
        self.root, self.ref = root, ref

    def __enter__(self):
        self.base = tempfile.TemporaryDirectory(prefix="wb-measure-")
        self.path = os.path.join(self.base.name, "tree")
        subprocess.run(["git", "-C", self.root, "worktree", "add", "-q", "--detach", self.path, self.ref], check=True)
        return self.path

    def __exit__(self, *_):
        subprocess.run(["git", "-C", self.root, "worktree", "remove", "--force", self.path], check=True)
        self.base.cleanup()


def look(root, with_trace):
    figures, lists = measure(root)
    if with_trace:
        import traced
        more, names = traced.version(root)
        figures.update(more)
        lists.update(names)
    return figures, lists


def rows(figures):
    for k, v in figures.items():
        if isinstance(v, dict):
            for name, n in sorted(v.items()):
                yield f"{k}: {name}", n
        else:
            yield k, v


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for flag in ("--json", "--list", "--trace", "--contracts"):
        p.add_argument(flag, action="store_true")
    p.add_argument("--ref")
    p.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    a = p.parse_args()
    if a.contracts:
        bare = measure(a.root)[1]["without contract"]
        for line in bare:
            print(f"{line}() has no contract: say above it what it promises, units, who owns what, errors")
        return 1 if bare else 0
    columns = {}
    if a.ref:
        with Checkout(a.root, a.ref) as before:
            columns[a.ref] = look(before, a.trace)[0]
    columns["now"], lists = look(a.root, a.trace)
    if a.json:
        print(json.dumps({**columns, **(lists if a.list else {})}, indent=1))
        return 0
    keys = list(dict.fromkeys(k for c in columns.values() for k, _ in rows(c)))
    wide = max(map(len, keys)) + 2
    print("".ljust(wide) + "".join(name[:12].rjust(14) for name in columns))
    for k in keys:
        print(k.ljust(wide) + "".join(str(dict(rows(c)).get(k, "-")).rjust(14) for c in columns.values()))
    for name, items in lists.items() if a.list else ():
        print(f"\n{name}:", *items, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
