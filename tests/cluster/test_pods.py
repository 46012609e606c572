# SPDX-License-Identifier: Apache-2.0
"""An RL job in pods, as its users run it: 20 versions over pod addresses, and what kubectl shows of them."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import SHAPE, Job, add_images, columns, install_operator, stateful_set  # noqa: E402

VERSIONS = 20


def before_the_first(job):
    """Ready holds before the first transfer; the engines are named by the label of their pods."""
    job.ready()  # with the engines that were there: one whose pod starts late joins at once

    def row():
        """both engines are in the plan"""
        got = columns(job.kubectl("get", "wt"))[0]
        return got["ENGINES"] == "2" and got
    row = wait_for(row, 20, 0.1)
    job.ready()
    assert row["READY"] == "True" and row["VERSION"] == "", row
    assert {e["name"] for e in job.status()["engines"]} == {"0", "1"}
    assert job.condition("UpToDate")[:2] == ("False", "NoTransferYet")


def versions(job):
    for v in range(1, VERSIONS + 1):
        line = job.send(v)
        assert line.count("Committed") == 2, line
    job.settled(VERSIONS)
    for pod in job.pods("rollout"):
        want = [f"update {v} ok" for v in range(1, VERSIONS + 1)]
        job.heard(pod, f"update {VERSIONS} ")
        got = [line for line in job.lines(pod) if line.startswith("update")]
        assert got == want, (pod, got)


def every_column(job):
    # A transfer's figures come with its report, moments after the version.
    row = wait_for(lambda: next((r for r in columns(job.kubectl("get", "wt", "-o", "wide"))
                                 if r["REASON"] == "Idle" and r["UP-TO-DATE"] == "2"), None), 20)
    print(" ".join(f"{k}={v}" for k, v in row.items()))
    assert row["NAME"] == "wt" and row["READY"] == "True" and row["VERSION"] == str(VERSIONS)
    assert row["ENGINES"] == "2" and row["WORKERS"] == "4"
    for name in ("TIME(MS)", "STALL(MS)", "LAST-TRANSFER", "AGE", "ROUNDS"):
        assert row[name] not in ("", "<none>", "<unknown>"), row
    missing = [k for k, v in row.items() if v in ("", "<none>", "<unknown>") and k not in ("BOUND(MS)", "MBIT/S")]
    assert not missing, (missing, row)


def described(job):
    text = job.kubectl("describe", "wt", job.name)
    for word in ("AllAgentsConnected", "PlanDistributed", "AllEnginesAtVersion", "PlanActivated", "TransferCompleted",
                 "weightbridge.io/operator"):
        assert word in text, (word, text)


def nothing_privileged(job):
    """What the pods run as, and what their agent cannot read."""
    for pod in job.pods():
        token = job.kubectl("exec", pod, "-c", "worker", "--", "ls", "/run/weightbridge")
        assert "agent.sock" in token
    spec = job.kubectl("get", "pod", "rollout-0", "-o", "jsonpath={.spec.initContainers[0].volumeMounts[*].name}")
    assert "kube-api-access" not in spec, spec


def socket_and_memory(job, uid):
    """The agent has a user of its own; its socket and its files are what a worker of another may use, and no more."""
    for pod in job.pods():
        assert job.exec(pod, "cat", "/proc/self/status").split("Uid:")[1].split()[0] == str(uid)
        rows = [x.split() for x in job.exec(pod, "ls", "-ln", "/run/weightbridge").splitlines() if "agent.sock" in x]
        assert rows and all(r[2] == "65532" for r in rows), rows
        assert {r[-1].rsplit("/")[-1]: r[0] for r in rows}["agent.sock"] == "srw-rw-rw-", rows


def users(c):
    """Workers of user 1000 and of the agent's own in a restricted namespace, where root may not be; of root in a
    baseline one. Memory that the agent maps, and memory that only the worker has."""
    for uid, level in ((1000, "restricted"), (65532, "restricted"), (0, "baseline")):
        t = time.monotonic()
        for heap in ("", " --heap"):
            job = Job(c, f"user-{uid}{heap.strip('- ') and '-heap'}", rollouts=1, uid=uid, level=level, shape=SHAPE + heap)
            job.ready()
            for v in (1, 2, 3):
                assert job.send(v).count("=Committed") == 1
            assert [x for x in job.lines("rollout-0") if x.startswith("update")] == [f"update {v} ok" for v in (1, 2, 3)]
            socket_and_memory(job, uid)
            c.kubectl("delete", "namespace", job.ns, "--wait=false")
        print(f"user {uid}: 3 versions each, {time.monotonic() - t:.1f} s")
    pod = stateful_set("rl", "root", "rollout", 1, 0)["spec"]["template"]
    pod.update(apiVersion="v1", kind="Pod")
    pod["metadata"].update(name="root", namespace="rl")
    r = c.kubectl("apply", "-f", "-", stdin=json.dumps(pod), check=False)
    assert "violates PodSecurity" in r.stderr and "must not set runAsUser=0" in r.stderr, r.stderr


def main(c):
    add_images(c)
    install_operator(c)
    t = time.monotonic()
    job = Job(c, trainers=2, rollouts=2)
    before_the_first(job)
    print(f"job ready after {time.monotonic() - t:.1f} s")
    t = time.monotonic()
    versions(job)
    print(f"{VERSIONS} versions in {time.monotonic() - t:.1f} s")
    every_column(job)
    described(job)
    nothing_privileged(job)
    if "--short" not in sys.argv:
        users(c)
    t = time.monotonic()
    job.delete()
    print(f"pods gone after {time.monotonic() - t:.1f} s")


if __name__ == "__main__":
    run(main, __file__)
