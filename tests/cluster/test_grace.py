# SPDX-License-Identifier: Apache-2.0
"""Pods that are deleted in the middle of a transfer: the worker ends what it does, its agent after it; a worker that
does not end is killed when the grace period is over, and its engine alone is left behind, by name."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import SHAPE, Job, add_images, install_operator  # noqa: E402

GRACE = 12
KEEP = "weightbridge.io/kept-by-test"


class Deleted:
    """A pod that is deleted, and kept by a finalizer until somebody has read how it ended. Its logs go with its
    containers, so they are followed."""

    def __init__(self, job, pod):
        self.job, self.pod = job, pod
        job.kubectl("patch", "pod", pod, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": [KEEP]}}))
        self.logs = {n: subprocess.Popen([os.path.join(job.c.prefix, "kubectl"), "--kubeconfig", job.c.kubeconfig, "-n", job.ns,
                                          "logs", "-f", pod, "-c", n], stdout=subprocess.PIPE, text=True)
                     for n in ("worker", "weightbridge-agent")}
        self.t = time.monotonic()
        job.kubectl("delete", "pod", pod, "--wait=false")

    def ended(self):
        """How the worker and the agent ended: (code, when), by container; and how long that took."""
        def look():
            """all containers of the pod that was deleted have ended"""
            st = json.loads(self.job.kubectl("get", "pod", self.pod, "-o", "json"))["status"]
            all_ = st.get("initContainerStatuses", []) + st.get("containerStatuses", [])
            ends = {x["name"]: x["state"].get("terminated") for x in all_}
            return ends if len(ends) == 2 and all(ends.values()) else None
        ends = wait_for(look, GRACE + 30, 0.2)
        took = time.monotonic() - self.t
        self.said = {n: p.communicate(timeout=patience(30))[0].splitlines() for n, p in self.logs.items()}
        self.job.kubectl("patch", "pod", self.pod, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        return {n: (e["exitCode"], e["finishedAt"]) for n, e in ends.items()}, took


def in_order(d, within=GRACE):
    ends, took = d.ended()
    assert took < within + 10, took
    assert ends["worker"][0] == 0 and ends["weightbridge-agent"][0] == 0, (ends, d.said)
    assert ends["worker"][1] <= ends["weightbridge-agent"][1], ends
    assert d.said["worker"][-1] == "bye", d.said
    return took


def back(job, pod):
    wait_for(lambda: pod in job.pods(), 60, 0.2)
    job.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
    wait_for(lambda: "planned" in job.lines(pod), 60, 0.2)
    job.ready(60)


def engine_in_its_update(job):
    """The update ends, the engine runs the version, and then the pod ends."""
    job.begin(1, 2000, "rollout-1")
    d = Deleted(job, "rollout-1")
    assert job.heard("trainer-0", "sent 1 ").count("=Committed") == 2
    took = in_order(d)
    assert d.said["worker"][-2] == "update 1 ok", d.said
    back(job, "rollout-1")
    job.heard("rollout-1", "update 1 ok")  # fed
    print(f"engine's pod ended {took:.1f} s after it was deleted in its update")


def trainer_in_its_send(job):
    """The transfer that it leads ends everywhere, and then the pod."""
    job.begin(2, 2000, "rollout-0", "rollout-1")
    d = Deleted(job, "trainer-0")
    for pod in job.pods("rollout"):
        job.heard(pod, "update 2 ok")
    took = in_order(d)
    assert d.said["worker"][-2].count("=Committed") == 2, d.said
    job.settled(2, 30)
    back(job, "trainer-0")
    assert job.send(3).count("=Committed") == 2
    print(f"trainer's pod ended {took:.1f} s after it was deleted in its send")


def worker_that_does_not_end(job):
    """It is killed at the end of the grace period; the transfer ends without its engine, which is named."""
    job.begin(4, 1000 * (GRACE + 20), "rollout-1")
    d = Deleted(job, "rollout-1")
    line = job.heard("trainer-0", "sent 4 ", GRACE + 30)
    assert "0=Committed" in line and "1=Committed" not in line and "1=" in line, line
    ends, took = d.ended()
    assert ends["worker"][0] == 137 and ends["weightbridge-agent"][0] == 0, (ends, d.said)
    assert GRACE - 1 <= took < GRACE + 10, took
    print(f"a worker that does not end: {took:.1f} s; {line}")
    back(job, "rollout-1")
    job.heard("rollout-1", "update 4 ok")  # fed
    job.say("rollout-1", "hook 0")
    assert job.send(5).count("=Committed") == 2


def trainer_that_does_not_end(job):
    """An engine's hooks take longer than the trainer's pod may: the others have the version, it has one or the other."""
    job.begin(6, 1000 * (GRACE - 2), "rollout-1")
    d = Deleted(job, "trainer-0")
    job.heard("rollout-0", "update 6 ok")
    ends, took = d.ended()
    assert took < GRACE + 10, took
    job.heard("rollout-1", "(update 6 ok|none: )", GRACE + 30)
    back(job, "trainer-0")
    for pod in job.pods("rollout"):
        job.say(pod, "hook 0")
    assert job.send(7).count("=Committed") == 2
    print(f"a trainer whose send does not end: {took:.1f} s, {ends}")


def main(c):
    add_images(c)
    install_operator(c)
    job = Job(c, rollouts=2, shape=SHAPE + " --term", grace=GRACE)
    job.ready()
    for case in (engine_in_its_update, trainer_in_its_send, worker_that_does_not_end, trainer_that_does_not_end):
        t = time.monotonic()
        case(job)
        bad = [x for p in job.pods() for x in job.lines(p) if " bad" in x]
        assert not bad, bad
        print(f"{case.__name__}: {time.monotonic() - t:.1f} s")


if __name__ == "__main__":
    run(main, __file__)
