# SPDX-License-Identifier: Apache-2.0
"""Whose processor time it is, of a cluster on one machine: a job's pods have a processor of their own, as on a node that
they share with nobody, and what their processes ran and waited is counted.  Standard library only."""
import contextlib
import glob
import os

from apiserver import skip
from job import pids


def of_pods(uids):
    """Process ids of this cluster, which is in a PID namespace of its own: those in these pods, and all others."""
    inside, others = [], []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
            group = f.read()
            (inside if any(u in group for u in uids) else others).append(pid)
    return inside, others


def pin(pid, processors):
    """All threads of a process, which those that they make inherit."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread), processors)


def apart(uids):
    """What runs in these pods has the last processor, and everything else of the cluster the others, from here on."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        skip("a victim with a processor of its own needs two")
    inside, others = of_pods(uids)
    for group, processors in ((inside, mine[-1:]), (others, mine[:-1])):
        for pid in group:
            with contextlib.suppress(OSError):
                pin(pid, processors)


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
