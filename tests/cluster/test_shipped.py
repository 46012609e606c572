# SPDX-License-Identifier: Apache-2.0
"""README's commands as they stand there, on two nodes of two cores with a kubelet's and CoreDNS's own defaults: the
charts with no value set, their sidecar, and job.py as the workers, whose rollouts compare every byte with an oracle.

Then what happens to such a job: a worker that is killed, an agent that is killed, the leading operator's pod deleted;
each time versions go on everywhere.  Nothing here is quick: a container that ended is started again after the 10 s that a
kubelet waits, a plan after the charts' settle time, a mounted authority when the kubelet looks.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from images import job_image  # noqa: E402
from job import BUILD, SYSTEM, VERSION, Job, add_images, pids  # noqa: E402
from test_faults import leader, uid_of  # noqa: E402


def readme():
    """The commands of README's section about Kubernetes, as lists of words."""
    text = open(os.path.join(TOP, "README.md")).read().split("## On Kubernetes", 1)[1].split("\n## ", 1)[0]
    return [shlex.split(x) for x in text.splitlines() if re.match("    (helm|kubectl) ", x)]


def typed(c, words, **kw):
    """What a person types at the top of the source tree."""
    config = {"HELM_CACHE_HOME": c.path("helm"), "HELM_CONFIG_HOME": c.path("helm"), "HELM_DATA_HOME": c.path("helm")}
    return subprocess.Popen([os.path.join(c.prefix, words[0]), *words[1:]], cwd=TOP, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT, env={**os.environ, "HOME": c.dir, "KUBECONFIG": c.kubeconfig, **config}, **kw)


def said(c, words):
    p = typed(c, words)
    out = p.communicate(timeout=patience(180))[0]
    assert p.returncode == 0, (words, out)
    # helm puts no warnings there, of what it was given or of what the API server says.
    assert "WARN" not in out and "Warning" not in out, (words, out)
    return out


def followed(c, job, words, seconds):
    """A command that goes on for ever, until the object has its third version, as it shows."""
    p = typed(c, words)
    rows = []

    def read():
        rows.extend(iter(p.stdout.readline, ""))
    threading.Thread(target=read, daemon=True).start()
    try:
        wait_for(lambda: job.version() >= 3 and any("True" in x.split() for x in rows), seconds, 0.5)
    except AssertionError:
        raise AssertionError(f"{words}: {''.join(rows[-6:])}") from None
    finally:
        p.kill()
    return rows


class Shipped(Job):
    def __init__(self, c, ns, name):
        self.c, self.ns, self.name = c, ns, name

    def pods(self, app=None):
        return super().pods(app and f"{self.name}-{app}")

    def version(self):
        return self.status().get("version") or 0

    def goes_on(self, versions=3, seconds=240):
        """So many versions more, at every engine, and none of them wrong."""
        want = self.version() + versions

        def look():
            """all engines have a newer version"""
            st = self.status()
            return len(st.get("engines", [])) == 2 and all((e.get("version") or 0) >= want for e in st["engines"])
        wait_for(look, seconds, 0.5)
        for pod in self.pods("rollout"):
            for line in self.lines(pod) + self.lines(pod, "worker", "--previous"):
                assert not line.startswith("update") or line.endswith(" ok"), (pod, line)

    def restarts(self):
        """Of every container, by pod and name."""
        items = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return {(p["metadata"]["name"], s["name"]): s["restartCount"] for p in items for s in
                p["status"].get("initContainerStatuses", []) + p["status"]["containerStatuses"]}


def fits(c):
    """Each node says that it has two cores; pods of job and operator are on both."""
    for n in json.loads(c.kubectl("get", "nodes", "-o", "json"))["items"]:
        assert n["status"]["allocatable"]["cpu"] == "2", n["status"]["allocatable"]
    pods = json.loads(c.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    for ns in ("rl", SYSTEM):
        assert len({p["spec"].get("nodeName") for p in pods if p["metadata"]["namespace"] == ns}) == 2, ns


def killed(c, job, pod, program):
    """A process of a pod is killed: its container is started again, and its engine has the next versions."""
    t, before = time.monotonic(), job.restarts()
    found = pids(program, uid_of(c, job.ns, pod))
    assert found, (pod, program)
    os.kill(max(found), 9)
    wait_for(lambda: sum(job.restarts().values()) > sum(before.values()), 120, 0.5)
    job.goes_on()
    print(f"{program} of {pod} killed: three more versions everywhere {time.monotonic() - t:.1f} s later")


def leader_deleted(c, job):
    t, pod = time.monotonic(), leader(c)
    c.kubectl("-n", SYSTEM, "delete", "pod", pod, "--wait=false")
    wait_for(lambda: leader(c) not in ("", pod), 90, 0.5)
    job.goes_on()
    print(f"leading operator deleted: three more versions everywhere {time.monotonic() - t:.1f} s later")


def main(c):
    add_images(c)
    c.import_image(job_image(c.path("rl-job.tar"), f"localhost/weightbridge/rl-job:{VERSION}", os.path.abspath(BUILD)))
    commands, job = readme(), Shipped(c, "rl", "grpo")
    assert [w[0] for w in commands[:3]] == ["helm", "helm", "kubectl"] and commands[2][-1] == "-w", commands
    for words in commands:
        t = time.monotonic()
        if words[-1] == "-w":
            rows = followed(c, job, words, 300)
            print("".join(rows[:1] + rows[-1:]), end="")
        else:
            out = said(c, words)
            assert out.strip(), words
        print(f"{' '.join(words)}: {time.monotonic() - t:.1f} s")
    job.ready(60)
    job.goes_on()
    fits(c)
    assert not any(job.restarts().values()), job.restarts()
    first = job.lines(job.pods("rollout")[0])
    assert any("memory shared: True" in x for x in first), first
    killed(c, job, job.pods("rollout")[0], "weightbridge-agent")
    killed(c, job, job.pods("rollout")[1], "python3")
    leader_deleted(c, job)


if __name__ == "__main__":
    run(main, __file__, defaults=True)
