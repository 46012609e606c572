# SPDX-License-Identifier: Apache-2.0
"""The first build of a cluster's programs says what it is at, how many there are and how long it will take: with a
compiler that only makes empty programs."""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(TOP, "tests", "cluster", "build.sh")
GO = """#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo go1.26.8 ;;
"mod download") echo '"GoMod": "/dev/null",' ;;
build*) printf '#!/bin/sh\\n' >out; chmod +x out; ;;
*) exit 1 ;;
esac
"""


def build(d, *parts):
    r = subprocess.run([SCRIPT, *parts], capture_output=True, text=True, timeout=60,
                       env={**os.environ, "XDG_CACHE_HOME": os.path.join(d, "cache"),
                            "PATH": os.path.join(d, "bin") + ":" + os.environ["PATH"]})
    told = [re.fullmatch(r"build.sh: part (\w+), program (\d+) of (\d+): (\S+), about (\d+) min left", line)
            for line in r.stderr.splitlines()]
    return r, [m.groups() for m in told if m]


def tells_each_program(d):
    r, told = build(d, "api", "helm")
    assert r.returncode == 0, r.stderr
    assert r.stdout.splitlines() == [os.path.join(d, "cache", "weightbridge", os.path.basename(r.stdout.strip()))], r.stdout
    assert [t[:4] for t in told] == [("api", "1", "4", "etcd"), ("api", "2", "4", "kube-apiserver"),
                                     ("api", "3", "4", "kubectl"), ("helm", "4", "4", told[-1][3])], told
    assert told[-1][3].startswith("helm-"), told
    # Nothing is known yet, so the table's word counts; then nothing took any time.
    assert int(told[0][4]) > 5 and int(told[-1][4]) == 1, told


def is_quiet_when_all_is_there(d):
    r, told = build(d, "api", "helm")
    assert r.returncode == 0 and not told and not r.stderr, r.stderr


def counts_only_what_is_missing(d):
    folder = build(d, "api")[0].stdout.strip()
    os.unlink(os.path.join(folder, "kubectl"))
    told = build(d, "api", "helm")[1]
    assert [t[:4] for t in told] == [("api", "1", "1", "kubectl")], told


def main():
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(os.path.join(d, "bin"))
        with open(os.open(os.path.join(d, "bin", "go"), os.O_CREAT | os.O_WRONLY, 0o755), "w") as f:
            f.write(GO)
        for step in (tells_each_program, is_quiet_when_all_is_there, counts_only_what_is_missing):
            step(d)
            print(step.__name__)


if __name__ == "__main__":
    sys.exit(main())
