# SPDX-License-Identifier: Apache-2.0
"""charts/examples/rl-loop.yaml learns in pods, as a person applies it where the operator's chart injects.

What is changed of the manifest is `mounted` below and nothing else: its pods mount torch, which is in no image that can be
had here.  The image has the name that the manifest gives, the example's scripts and our package; the operator has one
replica, as three pods of a core each and two operators do not fit on two nodes of two cores."""
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import TOP, skip, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from images import loop_image  # noqa: E402
from job import BUILD, Job, add_images, columns, install_operator  # noqa: E402

STEPS = 60  # of the manifest
LINE = re.compile(r"version +(\d+)  staleness (\d+)  reward (\S+)  stall: trainer (\S+) ms, engine (\S+?)(?: ms)?$")


def torch():
    """The Python of the environment with torch, where it is there already: it is gigabytes, and not this test's to fetch."""
    said = subprocess.run([sys.executable, os.path.join(TOP, "tests", "frameworks", "env.py"), "torch"], capture_output=True,
                          text=True, env={**os.environ, "WB_FRAMEWORKS": "off"})
    if said.returncode:
        skip(f"{(said.stdout.strip().splitlines() or ['no environment with torch'])[-1]}; make check-engines makes it")
    return said.stdout.strip()


def mounted(docs, python):
    """The manifest with torch in its pods, read-only, where it lies on this machine."""
    engines = os.path.dirname(os.path.dirname(os.path.dirname(python)))
    for pod in helm.pods(docs):
        pod["spec"]["volumes"] = [{"name": "torch", "hostPath": {"path": engines, "type": "Directory"}}]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "torch", "mountPath": engines, "readOnly": True}]
    return docs


class Loop(Job):
    def __init__(self, c, docs):
        self.c, self.ns, self.name, self.docs = c, "rl", "counting", docs
        self.shown = []  # lines of `kubectl get wt -w`
        c.kubectl("create", "namespace", self.ns)
        wait_for(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 30)
        pod = {"apiVersion": "v1", "kind": "Pod", **helm.pods(docs)[0]}
        pod["metadata"] = {**pod["metadata"], "name": "probe", "namespace": self.ns}

        def injects():
            """the API server has compiled the policy that gives pods an agent"""
            out = c.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
            return json.loads(out)["spec"].get("initContainers")
        wait_for(injects, 30, 0.2)
        c.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": docs}))
        self.watch = subprocess.Popen([os.path.join(c.prefix, "kubectl"), "--kubeconfig", c.kubeconfig, "-n", self.ns, "get", "wt",
                                       "-w"], stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": c.dir})
        self.reader = threading.Thread(target=lambda: self.shown.extend(iter(self.watch.stdout.readline, "")), daemon=True)
        self.reader.start()

    def of(self, name):
        return json.loads(self.kubectl("get", "pods", "-l", f"job-name=counting-{name}", "-o", "json"))["items"]

    def finished(self):
        """both Jobs are complete"""
        ends = {}
        for j in json.loads(self.kubectl("get", "jobs", "-o", "json"))["items"]:
            said = {x["type"]: x for x in j["status"].get("conditions", []) if x["status"] == "True"}
            assert "Failed" not in said, (j["metadata"]["name"], said)
            ends[j["metadata"]["name"]] = "Complete" in said
        return len(ends) == 2 and all(ends.values())


def pods_end(job):
    """Each pod, its agent too, and none of their containers was started twice."""
    for name, n in (("trainer", 2), ("engine", 1)):
        pods = job.of(name)
        assert [p["status"]["phase"] for p in pods] == ["Succeeded"] * n, pods
        for p in pods:
            ran = p["status"]["initContainerStatuses"] + p["status"]["containerStatuses"]
            assert [(x["name"], x["restartCount"]) for x in ran] == [("weightbridge-agent", 0), ("worker", 0)], ran


def versions_commit(job):
    """As `kubectl get wt -w` shows them while the loop runs, and the status afterwards."""
    last = lambda: columns("".join(job.shown))[-1]["VERSION"] == str(STEPS)
    wait_for(lambda: len(job.shown) > 1 and last(), 30)
    job.watch.kill()
    job.reader.join()
    rows = [r for r in columns("".join(job.shown)) if r["VERSION"]]
    seen = [int(r["VERSION"]) for r in rows]
    print(f"kubectl get wt -w showed {len(set(seen))} of {STEPS} versions:\n{job.shown[0]}{job.shown[len(job.shown) // 2]}", end="")
    assert seen == sorted(seen), seen
    served = [r for r in rows if r["READY"] == "True" and r["UP-TO-DATE"] == r["ENGINES"] == "1"]
    assert any(int(r["VERSION"]) < STEPS for r in served), rows
    st = job.status()
    results = [(x["version"], x["result"]) for x in st["recentTransfers"]]
    assert st["version"] == STEPS and (STEPS, "Succeeded") in results, st
    assert {r for _, r in results} <= {"Succeeded", "Superseded"}, results


def reward_rises(job):
    """By the lines of trainer 0: a version each, how stale its batch was, and how long whom it made wait."""
    first = next(p["metadata"]["name"] for p in job.of("trainer")
                 if p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0")
    lines = [x for x in job.lines(first) if x.startswith("version")]
    print("\n".join(lines[:2] + ["..."] + lines[-2:]))
    said = [LINE.match(x) for x in lines]
    assert all(said) and [int(m[1]) for m in said] == list(range(1, STEPS + 1)), lines
    stale, rewards = [int(m[2]) for m in said], [float(m[3]) for m in said]
    before, after = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    trainer, engine = [float(m[4]) for m in said], [float(m[5]) for m in said if m[5] != "-"]
    mean = lambda x: sum(x) / len(x)
    print(f"reward {before:.3f} to {after:.3f}, staleness {mean(stale):.2f}, stall: trainer {mean(trainer):.1f} ms, "
          f"engine {mean(engine):.1f} ms of {len(engine)} batches")
    assert after > before + 0.4, rewards
    assert min(stale) >= 0 and max(stale) > 0, stale
    assert all(x > 0 for x in trainer) and engine and all(x > 0 for x in engine), lines
    last = job.lines(job.of("engine")[0]["metadata"]["name"])[-1]
    assert last == f"{STEPS} batches, the last version is {STEPS}", last


def main(c):
    python = torch()
    docs = helm.load(open(os.path.join(helm.CHARTS, "examples", "rl-loop.yaml")).read())
    worker = helm.pods(docs)[0]["spec"]["containers"][0]
    assert worker["args"][worker["args"].index("--steps") + 1] == str(STEPS), worker
    add_images(c)
    c.import_image(loop_image(c.path("loop.tar"), worker["image"], os.path.abspath(BUILD), python))
    install_operator(c, "--set", "replicas=1")
    t = time.monotonic()
    job = Loop(c, mounted(docs, python))
    wait_for(job.finished, 300, 0.5)
    print(f"both Jobs complete after {time.monotonic() - t:.1f} s")
    pods_end(job)
    reward_rises(job)
    versions_commit(job)


if __name__ == "__main__":
    if os.environ.get("EXTERNAL"):
        skip("torch lies on this machine, which is no node of that cluster")
    torch()  # before a cluster is started for nothing
    run(main, __file__)
