# SPDX-License-Identifier: Apache-2.0
"""The RL loop of agent/python/examples/rl, shortened: it learns, whichever way weights go, and with every way's weights the
synchronous loop generates the very same tokens."""
import json
import os
import subprocess
import sys
import tempfile

from fx import TOP, WAIT, base_env, python

STEPS = 12
RUN = os.path.join(TOP, "agent", "python", "examples", "rl", "run.py")


# A loop of 50 steps of 9 s each, which is slow, and one that hangs, both with a limit of 10 s.
LIMIT = """
import subprocess, sys, types
sys.path.insert(0, sys.argv[1])
import run

log, now = sys.argv[2] + "/steps", [0.0]
run.time = types.SimpleNamespace(monotonic=lambda: now[0])


class Worker:
    args, returncode = ["python", "trainer.py"], None

    def __init__(self, steps):
        self.steps = steps

    def wait(self, timeout):
        now[0] += 9
        if self.steps:
            with open(log, "a") as f:
                f.write("step\\n" * (self.steps > 0))
            self.steps -= 1
            raise subprocess.TimeoutExpired("", timeout)
        self.returncode = 0
        return 0


run.wait([Worker(50)], log, 10)
try:
    run.wait([Worker(-1)], log, 10)
except SystemExit as e:
    assert "no step for 10 s" in str(e), e
else:
    raise AssertionError("a loop that hangs was waited for")
"""


def lines(folder, mode, way):
    with open(os.path.join(folder, f"{mode}-{way}.jsonl")) as f:
        return [json.loads(line) for line in f]


def check(folder, steps):
    """What the logs and pictures of all four runs say."""
    found = {(mode, way): lines(folder, mode, way) for mode in ("sync", "async") for way in ("weightbridge", "broadcast")}
    for (mode, way), said in found.items():
        assert [x["version"] for x in said] == list(range(1, steps + 1)), (mode, way)
        first, last = (sum(x["reward"] for x in part) / 3 for part in (said[:3], said[-3:]))
        assert last > first + 0.1, f"{mode}, {way}: the reward was {first:.3f} and is {last:.3f}"
        stale = [x["staleness"] for x in said]
        assert (max(stale) == 0) if mode == "sync" else (min(stale) >= 0 and max(stale) > 0), (mode, way, stale)
    one, other = ([x["reward"] for x in found["sync", way]] for way in ("weightbridge", "broadcast"))
    assert one == other, f"equal weights would have generated equal tokens: {one} {other}"
    for name, begins in (("loop.png", b"\x89PNG"), ("loop.svg", b"<?xml")):
        with open(os.path.join(folder, name), "rb") as f:
            assert f.read(len(begins)) == begins, name


def main():
    interpreter = python("torch")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([interpreter, "-c", LIMIT, os.path.dirname(RUN), folder], env=base_env(), check=True)
        subprocess.run([interpreter, RUN, "--out", folder, "--steps", str(STEPS), "--timeout", str(WAIT)], env=base_env(),
                       check=True)
        check(folder, STEPS)


if __name__ == "__main__":
    main()
