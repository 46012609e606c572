# SPDX-License-Identifier: Apache-2.0
"""A dual-stack cluster: agents announce every address of their pod, the operator's Service has both families, and
where IPv4 is cut between nodes the weights take IPv6."""
import itertools
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import wait_for  # noqa: E402
from cluster import NET, NET6, run  # noqa: E402
from job import SYSTEM, Job, add_images, install_operator  # noqa: E402
from test_faults import commits  # noqa: E402


TRAINER = "trainer-0"


def pod_ips(job, pod):
    return [x["ip"] for x in json.loads(job.kubectl("get", "pod", pod, "-o", "json"))["status"]["podIPs"]]


def agent_lines(job, pod):
    return job.kubectl("logs", pod, "-c", "weightbridge-agent").splitlines()


def peers(job, pod):
    """Whom its agent has channels with, by address."""
    found = (re.search(r'"peer up".*"peer":"([^"]+)".*"address":"([^"]+)"', x) or re.search(r"peer up peer=(\S+) .*address=(\S+)", x)
             for x in agent_lines(job, pod))
    return [(m[1], m[2].rsplit(":", 1)[0]) for m in found if m]


def only_on(c, node, other):
    c.kubectl("cordon", other)
    c.kubectl("uncordon", node)


def services_have_both(c):
    for name in ("weightbridge-operator", "weightbridge-operator-http"):
        spec = json.loads(c.kubectl("-n", SYSTEM, "get", "service", name, "-o", "json"))["spec"]
        assert spec["ipFamilies"] == ["IPv4", "IPv6"] and spec["ipFamilyPolicy"] == "RequireDualStack", spec


def pods_announce_both(job):
    for pod in [TRAINER, *job.pods("rollout")]:
        four, six = pod_ips(job, pod)
        assert four.startswith(NET + ".") and six.startswith(NET6 + ":"), (four, six)
        started = next(x for x in agent_lines(job, pod) if "advertise" in x)
        assert f"IPv4 {four}, IPv6 {six}" in started, started


def main(c):
    add_images(c)
    install_operator(c, "--set", "service.ipFamilyPolicy=RequireDualStack")
    services_have_both(c)
    only_on(c, "node0", "node1")
    job = Job(c, rollouts=0)
    job.kubectl("wait", "--for=condition=Ready", f"pod/{TRAINER}", "--timeout=60s")
    only_on(c, "node1", "node0")
    job.kubectl("scale", "statefulset/rollout", "--replicas=2")
    job.ready(60)
    wait_for(lambda: len(job.pods("rollout")) == 2, 30)
    job.kubectl("wait", "--for=condition=Ready", "pod/rollout-0", "pod/rollout-1", "--timeout=60s")
    wait_for(lambda: len(job.status().get("engines", [])) == 2, 30)
    pods_announce_both(job)
    number = itertools.count(1)
    wait_for(lambda: job.send(next(number)).count("=Committed") == 2, 30)
    used = {address for _, address in peers(job, TRAINER)}
    assert used and all(a.startswith(NET + ".") for a in used), used
    print(f"versions over {sorted(used)}")

    # IPv4 is cut for weights, between the nodes.
    for rule in ("add table ip cut", "add chain ip cut f { type filter hook forward priority 0; }",
                 "add rule ip cut f tcp dport 7444 drop"):
        c.nodes[1].run("nft", rule)
    job.kubectl("delete", "pod", "rollout-0", "rollout-1", "--wait=true")
    job.kubectl("wait", "--for=condition=Ready", "pod/rollout-0", "pod/rollout-1", "--timeout=90s")
    # Until there is a plan with the new pods a call may end with an agent that is gone: it is to be sent again.
    for _ in range(2):
        commits(job, next(number), 90)
    for pod in ("rollout-0", "rollout-1"):
        got = peers(job, pod)
        assert got and all(a.startswith(f"[{NET6}:") for p, a in got if p == TRAINER), (pod, got)
    print(f"versions to {next(number) - 1} over IPv6: {sorted({a for _, a in peers(job, 'rollout-0')})}")


if __name__ == "__main__":
    run(main, __file__, dual=True)
