# SPDX-License-Identifier: Apache-2.0
"""A job whose members and object change: scaled, suspended, deleted and made again, a trainer that starts over.

ROUNDS=1 times 2 to 3 to 1 engines under versions; CASES="joins_without_a_send scaled_under_versions" runs these alone.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import Job, add_images, apply, install_operator, stateful_set, weight_transfer  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "1"))


def scale(job, n):
    job.kubectl("scale", "statefulset", "rollout", f"--replicas={n}")


def engines(job):
    return {e["name"]: e.get("version") for e in job.status()["engines"]}


def versions_of(job, pod):
    return [int(line.split()[1]) for line in job.lines(pod) if line.startswith("update") and line.endswith(" ok")]


def joins_without_a_send(job):
    """A third engine reaches the current version by itself."""
    job.send(1)
    job.settled(1)
    t = time.monotonic()
    scale(job, 3)
    wait_for(lambda: engines(job) == {"0": 1, "1": 1, "2": 1}, 40, 0.2)
    assert versions_of(job, "rollout-2") == [1]
    print(f"joiner at the current version after {time.monotonic() - t:.1f} s")


def scaled_under_versions(job):
    """2 to 3 to 1 while versions go on: the engine that stays misses none."""
    scale(job, 2)
    wait_for(lambda: "2" not in engines(job), 40, 0.2)
    for first in range(2, 2 + 59 * ROUNDS, 59):
        t = time.monotonic()
        last = first + 58
        if first > 2:
            scale(job, 2)
            wait_for(lambda: engines(job) == {"0": first - 1, "1": first - 1}, 40, 0.2)
        job.go_on_sending(first, last, 0.4)
        job.heard("rollout-0", f"update {first + 6} ")
        scale(job, 3)
        wait_for(lambda: (engines(job).get("2") or 0) > first + 6, 40, 0.2)
        job.heard("rollout-0", f"update {engines(job)['2'] + 5} ")
        scale(job, 1)
        wait_for(lambda: job.pods("rollout") == ["rollout-0"], 40)
        job.heard("trainer-0", f"sent {last} ", 90)
        job.heard("rollout-0", f"update {last} ")
        assert versions_of(job, "rollout-0") == list(range(1, last + 1))
        job.settled(last)
        wait_for(lambda: set(engines(job)) == {"0"}, 40, 0.2)
        assert job.condition("UpToDate")[:2] == ("True", "AllEnginesAtVersion")
        if ROUNDS > 1:
            print(f"versions {first} to {last}: {time.monotonic() - t:.1f} s")


def suspended(job):
    patch = lambda v: job.kubectl("patch", "wt", "wt", "--type=merge", "-p", json.dumps({"spec": {"suspend": v}}))
    patch(True)
    job.kubectl("wait", "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=Suspended", "wt/wt",
                "--timeout=20s")
    n = len(job.lines("trainer-0"))

    def refused():
        """a send is refused"""
        job.say("trainer-0", "send 61")
        time.sleep(0.3)
        return [x for x in job.lines("trainer-0")[n:] if x.startswith("error") and "suspended" in x]
    wait_for(refused, 20, 0.2)
    assert "update 61 ok" not in job.lines("rollout-0")
    patch(False)
    job.ready()


def deleted_in_mid_transfer(job):
    """The transfer that runs ends whole; the pods live, and the object made again gets them all."""
    restarts = job.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
    n = len(job.lines("trainer-0"))
    job.begin(70, 1500, "rollout-0")
    job.kubectl("delete", "wt", "wt")
    assert "update 70 ok" not in job.lines("rollout-0"), "the transfer had ended before its object was gone"
    assert job.heard("trainer-0", "sent 70 ", after=n).count("Committed") == len(job.pods("rollout"))
    for pod in job.pods("rollout"):
        job.heard(pod, "update 70 ok")
        job.say(pod, "check 70")
        assert job.heard(pod, "check 70 ").endswith(" ok")
    job.say("rollout-0", "hook 0")
    apply(job.c, weight_transfer(job.ns))
    t = time.monotonic()
    # Pods older than their object have waited, and come at most a minute later.
    job.ready(90)
    print(f"ready {time.monotonic() - t:.1f} s after the object was made again")
    n = len(job.lines("trainer-0"))
    job.say("trainer-0", "send 80")
    assert "Committed" in job.heard("trainer-0", "sent 80 ", after=n)
    job.settled(80)
    assert restarts == job.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")


def trainer_starts_over(job):
    """A trainer that starts anew and goes back to version 5: it is newer than 80, as its transfer is."""
    before = job.status()["transfer"]
    job.kubectl("delete", "pod", "trainer-0", "--wait=true")
    wait_for(lambda: job.pods("trainer") == ["trainer-0"], 30)
    job.kubectl("wait", "--for=condition=Ready", "pod/trainer-0", "--timeout=40s")
    wait_for(lambda: "planned" in job.lines("trainer-0"), 40, 0.2)
    assert "Committed" in job.send(5)
    job.settled(5)
    assert job.status()["transfer"] > before
    assert versions_of(job, "rollout-0")[-1] == 5


def two_objects(job):
    """A pod serves the object of its label, whatever its sidecar asks for; the other says what it waits for."""
    apply(job.c, weight_transfer(job.ns, "other"))
    other = lambda: {x["type"]: x for x in json.loads(job.kubectl("get", "wt", "other", "-o", "json")).get(
        "status", {}).get("conditions", [])}.get("MembersConnected", {})
    wait_for(lambda: other().get("reason") == "WaitingForPods", 20, 0.2)
    thief = stateful_set(job.ns, "thief", "rollout", 1, object_="other")
    pod = thief["spec"]["template"]
    pod["metadata"]["labels"]["weightbridge.io/name"] = "wt"
    env = next(e for e in pod["spec"]["initContainers"][0]["env"] if e["name"] == "WEIGHTTRANSFER")
    del env["valueFrom"]  # else it would be what the label says
    env["value"] = "other"
    apply(job.c, thief)
    wait_for(lambda: other().get("reason") == "AuthenticationRejected"
             and "label weightbridge.io/name: wt, not other" in other()["message"], 40, 0.2)
    assert "AuthenticationRejected" in job.kubectl("describe", "wt", "other")
    job.kubectl("delete", "statefulset", "thief")
    job.kubectl("delete", "wt", "other")
    assert job.condition("Ready")[0] == "True"


def main(c):
    add_images(c)
    install_operator(c)
    job = Job(c, rollouts=2)
    job.ready()
    only = os.environ.get("CASES", "").split()
    for case in (joins_without_a_send, scaled_under_versions, suspended, deleted_in_mid_transfer, trainer_starts_over,
                 two_objects):
        if only and case.__name__ not in only:
            continue
        t = time.monotonic()
        case(job)
        print(f"{case.__name__}: {time.monotonic() - t:.1f} s")


if __name__ == "__main__":
    run(main, __file__)
