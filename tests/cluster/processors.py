# SPDX-License-Identifier: Apache-2.0
"""Whose processor time it is, of a cluster on one machine: what its own programs took, and what the processes of a
job's pods ran and waited.  Standard library only."""
import contextlib
import glob
import json
import os
import subprocess
import sys
import time

from apiserver import TOP
from job import pids

ATTACK = os.path.join(TOP, "tests/common/attack.py")
TICKS = os.sysconf("SC_CLK_TCK")


def used(pid):
    """Seconds that a process ran, all its threads, also those that have ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Programs:
    """The cluster's programs that all tenants share, and this test, which speaks to them as a tenant's client would.
    Of somebody else's cluster this test alone is seen."""

    def __init__(self, c):
        self.pids = {"this test": os.getpid()}
        for name, p in (("kube-apiserver", getattr(c, "api", None)), ("etcd", getattr(c, "etcd", None)),
                        ("kube-controller-manager", getattr(c, "manager", None))):
            if p:
                self.pids[name] = p.pid
        self.begin()

    def begin(self):
        self.at, self.seen = time.monotonic(), {n: used(p) for n, p in self.pids.items()}

    def shares(self):
        """By program: processors that it took since begin()."""
        took = time.monotonic() - self.at
        return {n: (used(p) - self.seen[n]) / took for n, p in self.pids.items()}


class Busy:
    """A process beside the cluster's programs, as one of them: no pod, and of their priority."""

    def __init__(self, share, seconds):
        self.p = subprocess.Popen([sys.executable, ATTACK, "busy", "--as-it-is", "--cpu", str(share), "--seconds", str(seconds)],
                                  stdout=subprocess.PIPE, text=True)

    def end(self):
        """What it counted, when its seconds are over."""
        return json.loads(self.p.communicate()[0].splitlines()[-1])


class Waits:
    """What processes of these pods ran and waited."""

    def __init__(self, programs, uids):
        self.pids = [p for uid in uids for name in programs for p in pids(name, uid)]
        assert len(self.pids) == len(programs) * len(uids), self.pids

    def so_far(self):
        """Seconds that their threads ran, and that they were ready to and had no processor."""
        ran = waited = 0
        for pid in self.pids:
            for file in glob.glob(f"/proc/{pid}/task/*/schedstat"):
                with contextlib.suppress(OSError), open(file, encoding="utf-8") as f:
                    now = f.read().split()
                    ran, waited = ran + int(now[0]) / 1e9, waited + int(now[1]) / 1e9
        return ran, waited
