# SPDX-License-Identifier: Apache-2.0
"""N with N-1: operator, chart and resource of an earlier commit (file compat) are upgraded, rolled back and upgraded
again while a job of that commit moves versions; then its pods are replaced one by one, in an order in which old and
new agents and libraries meet on either side of a transfer. No version is lost, and nobody but the pod that is being
replaced is blamed."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compat  # noqa: E402
from apiserver import TOP, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import IMAGES, SYSTEM, VERSION, ChartJob, Sending, add_images, apply, installed, namespace  # noqa: E402

OLD = "compat"
TOY_OLD = "localhost/weightbridge/toy:" + OLD
RELEASE = "weightbridge-operator"


def operator_images(c):
    pods = json.loads(c.kubectl("-n", SYSTEM, "get", "pods", "--field-selector=status.phase=Running", "-o", "json"))["items"]
    return sorted(p["spec"]["containers"][0]["image"].rsplit(":", 1)[1] for p in pods if "deletionTimestamp" not in p["metadata"])


def helm_operator(c, tree, tag, verb):
    args = ["--reset-then-reuse-values"] if verb == "upgrade" else []
    c.helm(verb, RELEASE, os.path.join(tree, "charts", RELEASE), "-n", SYSTEM, *args, "--set",
           f"image.tag={tag}", "--wait", "--timeout", "150s", warns=tree != TOP)


def nothing_bad(job):
    for pod in job.pods():
        bad = [x for x in job.lines(pod) if re.search(r" bad|^error|torn", x)]
        assert not bad, (pod, bad)
    restarts = job.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount} "
                           "{.items[*].status.initContainerStatuses[*].restartCount}")
    assert set(restarts.split()) == {"0"}, restarts


def operator_there_and_back(c, job, old):
    """The operator is a version ahead of its agents, then of their version again, then ahead."""
    plan = job.status()["plan"]
    s = Sending(job, 10)
    for what in ("upgraded", "rolled back", "upgraded again"):
        t = time.monotonic()
        if what == "rolled back":
            c.helm("rollback", RELEASE, "1", "-n", SYSTEM, "--wait", "--timeout", "150s")
        else:
            helm_operator(c, TOP, VERSION, "upgrade")
        want = OLD if what == "rolled back" else VERSION
        wait_for(lambda: operator_images(c) == [want] * 2, 60, 0.2)
        took = time.monotonic() - t
        s.some_more()
        # The new leader hears from all agents, and goes on with the plan that runs.
        job.kubectl("wait", "--for=condition=Ready", f"wt/{job.name}", "--timeout=60s")
        now = int(s.so_far()[-1].split()[1])
        wait_for(lambda: (job.status().get("version") or 0) >= now, 60, 0.2)
        after = job.status()["plan"]
        assert (after["digest"], after["number"]) == (plan["digest"], plan["number"]), (what, plan, after)
        print(f"operator {what}: {took:.1f} s, version {now} in the status")
    ends = s.stop()
    assert all(list(e.values()) == ["Committed"] * 2 for e in ends), [e for e in ends if set(e.values()) != {"Committed"}]
    job.settled(s.last, 60)
    for pod in job.pods("rollout"):
        installed(job, pod, s.first, s.last)
    print(f"{len(ends)} versions meanwhile, none lost")
    return s.last


def helm_job(c, job, toy):
    """The job's chart of this tree, with its agent; pods follow when they are deleted."""
    values = json.loads(c.helm("get", "values", job.name, "-n", job.ns, "-o", "json"))
    values["image"] = toy
    values["weightbridge"]["image"]["tag"] = VERSION
    c.helm("upgrade", job.name, os.path.join(TOP, "charts", "examples", "rl-job"), "-n", job.ns, "-f", "-", stdin=json.dumps(values))


def replace(job, pod):
    job.kubectl("delete", "pod", pod, "--wait=true")
    wait_for(lambda: pod in job.pods(), 60, 0.2)
    job.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")


def engine_replaced(job, index, first):
    """While versions go on: the other engine misses none, and this one is fed and goes on."""
    pod, other = f"{job.name}-rollout-{index}", f"{job.name}-rollout-{1 - index}"
    s = Sending(job, first)
    t = time.monotonic()
    replace(job, pod)
    # Its worker has attached, has been brought to a version, and gets those that are sent.
    job.heard(pod, "update ")
    wait_for(lambda: f"{index}=Committed" in s.so_far()[-1], 60, 0.2)
    s.some_more()
    ends = s.stop()
    assert all(e.get(str(1 - index)) == "Committed" for e in ends), [e for e in ends if e.get(str(1 - index)) != "Committed"]
    missed = [e.get(str(index)) for e in ends if e.get(str(index)) != "Committed"]
    back = len(ends) - 1 - max((i for i, e in enumerate(ends) if e.get(str(index)) != "Committed"), default=-1)
    assert back >= 2, ends
    installed(job, other, s.first, s.last)
    installed(job, pod, s.last - back + 1, s.last)
    job.settled(s.last, 60)
    print(f"{pod} replaced: {len(ends)} versions in {time.monotonic() - t:.1f} s, without it: {missed}")
    return s.last


def trainer_replaced(job, version):
    """The trainer goes in mid-transfer, which may tear both engines where nothing is staged, but serves nobody a mix: what
    the new trainer sends makes each of them whole."""
    s = Sending(job, version + 1)
    s.some_more()
    version = int(s.so_far()[-1].split()[1]) + 1000  # whatever the last one had begun
    replace(job, job.trainer)
    job.ready(60)
    wait_for(lambda: "planned" in job.lines(job.trainer), 60, 0.2)
    for v in (version, version + 1):
        assert job.send(v).count("=Committed") == 2
    for pod in job.pods("rollout"):
        installed(job, pod, version, version + 1)
    job.settled(version + 1, 60)
    return version + 1


def main(c):
    old = compat.tree()
    add_images(c)
    add_images(c, old, OLD)
    apply(c, namespace(SYSTEM))
    helm_operator(c, old, OLD, "install")
    job = ChartJob(c, "rl", tree=old, tag=OLD)
    job.ready(60)
    for v in (1, 2, 3):
        assert job.send(v).count("=Committed") == 2
    version = operator_there_and_back(c, job, old)
    nothing_bad(job)
    for side in ("trainer", "rollout"):
        job.kubectl("patch", "statefulset", f"{job.name}-{side}", "--type=merge", "-p",
                    '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}')
    # New agents with old libraries: an engine's, then the trainer's; then an engine with new ones of both.
    helm_job(c, job, TOY_OLD)
    version = engine_replaced(job, 1, version + 1)
    version = trainer_replaced(job, version)
    helm_job(c, job, IMAGES["toy"])
    version = engine_replaced(job, 0, version + 1)
    nothing_bad(job)
    pods = json.loads(job.kubectl("get", "pods", "-o", "json"))["items"]
    assert {p["spec"]["initContainers"][0]["image"] for p in pods} == {IMAGES["agent"]}
    assert sorted(p["spec"]["containers"][0]["image"] for p in pods) == sorted([IMAGES["toy"], TOY_OLD, TOY_OLD])


if __name__ == "__main__":
    if "WB_CLUSTER_OUTER" not in os.environ:
        compat.tree()
    run(main, __file__)
