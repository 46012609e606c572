# SPDX-License-Identifier: Apache-2.0
"""The operator chart's NetworkPolicy, enforced on both nodes (policy.py): with `networkPolicy.pagesFrom` only those
peers read pages and metrics, everybody else's packets are dropped; agents come in from every namespace, probes are
answered, and weights move.  Without it everybody reaches the pages' port, and no other port is open to anybody.  With
`networkPolicy.jobs` the pods of a job take weights from agents of their namespace alone, and keep their other ports."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import IMAGES, SYSTEM, Job, add_images, apply, install_operator, namespace  # noqa: E402

PEERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
AGENTS, PAGES = 7443, 9402
WEIGHTS, METRICS, OWN = 7444, 9402, 9000  # of a job's pod; the last is a worker's


def box(c, ns, node):
    """A pod without rights that can connect to where it likes."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "box-" + node, "namespace": ns}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "box", "image": IMAGES["toy"], "command": ["/bin/sh", "-c", "sleep 3600"], "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}}


def boxes(c):
    for ns in ("monitoring", "elsewhere"):
        apply(c, namespace(ns))
        wait_for(lambda: c.kubectl("-n", ns, "get", "serviceaccount", "default", check=False).returncode == 0, 30)
        apply(c, *(box(c, ns, n.name) for n in c.nodes))
        c.kubectl("-n", ns, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")


def operators(c):
    """Addresses of the operator's pods that are there to stay."""
    items = json.loads(c.kubectl("-n", SYSTEM, "get", "pods", "-l", "app.kubernetes.io/name=weightbridge-operator", "-o", "json"))["items"]
    return [p["status"]["podIP"] for p in items if "deletionTimestamp" not in p["metadata"]]


def reaches(c, ns, ip, port):
    """By whom in a namespace: a connection is made from the box of each node, the same as the operator's and the other."""
    got = []
    for n in c.nodes:
        r = c.kubectl("-n", ns, "exec", "box-" + n.name, "--", "/bin/busybox", "timeout", str(round(patience(3))), "/bin/busybox",
                      "nc", ip, str(port), "-e", "/bin/busybox", "true", check=False)
        got.append(r.returncode == 0)
    assert len(set(got)) == 1, (ns, ip, port, got)
    return got[0]


def table(c):
    """Who reaches which port of each operator."""
    c.policies.settled()
    return {(ns, port): {reaches(c, ns, ip, port) for ip in operators(c)} for ns in ("monitoring", "elsewhere")
            for port in (AGENTS, PAGES)}


def send(job):
    """A version that both engines get: one that came a moment late has none before the next plan."""
    def both():
        """both engines get a version"""
        job.last += 1
        return job.send(job.last).count("Committed") == 2
    wait_for(both, 60, 0.5)


def jobs(c, job):
    """Before, with and after a policy for the job's namespace; with it an agent that comes anew finds its peers."""
    for pod in job.pods():
        job.exec(pod, "sh", "-c", f"busybox=/bin/busybox; $busybox nc -ll -p {OWN} -e $busybox true >/dev/null 2>&1 </dev/null &")

    def who():
        c.policies.settled()
        ips = [p["status"]["podIP"] for p in json.loads(job.kubectl("get", "pods", "-l", "app=trainer", "-o", "json"))["items"]]
        return {(ns, port): reaches(c, ns, ips[0], port) for ns in ("monitoring", "elsewhere") for port in (WEIGHTS, METRICS, OWN)}
    upgrade = lambda *args: c.helm("upgrade", "weightbridge-operator", os.path.join(TOP, "charts", "weightbridge-operator"), "-n",
                                   SYSTEM, "--reset-values", *args, "--wait", "--timeout", "90s")
    wait_for(lambda: all(who().values()), 30)
    upgrade("--set-json", "networkPolicy.jobs=" + json.dumps({"namespaces": [job.ns], "metricsFrom": PEERS}))
    got = who()
    assert got == {("monitoring", WEIGHTS): False, ("elsewhere", WEIGHTS): False, ("monitoring", METRICS): True,
                   ("elsewhere", METRICS): False, ("monitoring", OWN): True, ("elsewhere", OWN): True}, got
    job.kubectl("delete", "pod", "rollout-0", "--wait=true")
    job.kubectl("wait", "--for=condition=Ready", "pod/rollout-0", "--timeout=60s")
    send(job)
    upgrade()
    assert all(who().values())
    print("jobs: weights from the namespace's agents alone")


def main(c):
    add_images(c)
    install_operator(c, "--set-json", "networkPolicy.pagesFrom=" + json.dumps(PEERS))
    boxes(c)
    job = Job(c)
    job.ready()
    send(job)
    assert len(operators(c)) == 2
    t, before = time.monotonic(), c.policies.dropped()
    got = table(c)
    assert got == {("monitoring", AGENTS): {True}, ("monitoring", PAGES): {True}, ("elsewhere", AGENTS): {True},
                   ("elsewhere", PAGES): {False}}, got
    dropped = c.policies.dropped() - before
    assert dropped >= 4, dropped
    print(f"pagesFrom: {dropped} packets dropped, {time.monotonic() - t:.1f} s")
    # What asks inside of the pods, and helm's test by its label.
    assert "True" in c.kubectl("-n", SYSTEM, "exec", "deploy/weightbridge-operator", "--", "wbctl", "get", "wt")
    c.helm("test", "weightbridge-operator", "-n", SYSTEM, "--timeout", "60s")
    c.helm("upgrade", "weightbridge-operator", os.path.join(TOP, "charts", "weightbridge-operator"), "-n", SYSTEM, "--reset-values", "--wait",
           "--timeout", "90s")
    got = table(c)
    assert set(map(frozenset, got.values())) == {frozenset({True})}, got
    send(job)
    jobs(c, job)
    restarts = c.kubectl("-n", SYSTEM, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
    assert set(restarts.split()) == {"0"}, restarts


if __name__ == "__main__":
    run(main, __file__)
