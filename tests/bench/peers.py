# SPDX-License-Identifier: Apache-2.0
"""What others need for the same bytes, measured between our own transfers.

Their processes live through the run and wait for a line each on a pipe, so that a pair (ours,
theirs) is measured within a second, and they take no time in between.
"""
import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Absent(Exception):
    """Why a peer cannot be measured here."""


class Group:
    """Processes that do one thing together when told."""

    def __init__(self, argvs):
        self.ps = [subprocess.Popen(a, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    stderr=subprocess.DEVNULL) for a in argvs]

    def wait_ready(self):
        for p in self.ps:
            if p.stdout.readline() != "ready\n":
                raise Absent(f"{' '.join(p.args[:2])} does not start")

    def run(self, mode="go"):
        """Seconds of the slowest."""
        for p in self.ps:
            p.stdin.write(mode + "\n")
            p.stdin.flush()
        return max(float(p.stdout.readline()) for p in self.ps)

    def close(self):
        for p in self.ps:
            p.stdin.close()
            p.kill()
            p.wait()
            p.stdout.close()


COPY = """import ctypes, sys, time
n = int(sys.argv[1])
a, b = (ctypes.create_string_buffer(n) for _ in range(2))
ctypes.memset(a, 1, n), ctypes.memmove(b, a, n)
print("ready", flush=True)
for _ in sys.stdin:
    t = time.monotonic()
    ctypes.memmove(b, a, n)
    print(time.monotonic() - t, flush=True)
"""


def memcpy(mib):
    """Two processes copy half of it each."""
    return Group([[sys.executable, "-c", COPY, str(mib << 19)]] * 2)


def gloo(mib):
    """Two trainer and two rollout ranks; modes raw, p2p, bcast."""
    p = subprocess.run([os.path.join(HERE, "torch.sh")], capture_output=True, text=True, check=False)
    if p.returncode:
        raise Absent((p.stderr.strip().splitlines() or ["torch is not there"])[-1])
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    return Group([[p.stdout.strip(), os.path.join(HERE, "gloo.py"), str(r), str(port), str(mib)]
                  for r in range(4)])
