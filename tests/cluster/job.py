# SPDX-License-Identifier: Apache-2.0
"""An operator and an RL job in the pods of a cluster: the charts as they are, with toy workers that take commands."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import TOP, patience, wait_for  # noqa: E402
from images import Tree, write_image  # noqa: E402

BUILD = os.environ.get("WB_BUILD", "build/release")
SYSTEM = "weightbridge-system"
SERVICE = f"weightbridge-operator.{SYSTEM}.svc"
VERSION = re.search(r'WB_VERSION "(.*)"', open(os.path.join(TOP, "agent/include/weightbridge/version.h")).read())[1]
IMAGES = {n: f"localhost/weightbridge/{n}:{VERSION}" for n in ("agent", "operator", "toy")}
SHAPE = "--rows 256 --cols 256 --tensors 8"  # 2 MiB


def script(shape):
    """The toy worker in a pod of charts/examples/rl-job; a rollout is an engine by itself."""
    return ("rm -f /tmp/in; mkfifo /tmp/in; if [ $ROLE = rollout ]; then I=0 OF=1; else I=${POD_NAME##*-} OF=$TRAINERS; fi; "
            f"exec toy_worker --socket /run/weightbridge/agent.sock --role $ROLE --index $I --of $OF {shape} <>/tmp/in")


SCRIPT = script(SHAPE)
SECURE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True, "runAsUser": 65532,
          "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


def add_images(c, tree=TOP, tag=VERSION):
    """Of the programs built here, or of another commit's tree, with its own scripts."""
    build = os.path.abspath(BUILD) if tree == TOP else os.path.join(tree, "build", "release")
    image = lambda part: f"localhost/weightbridge/{part}:{tag}"
    for part in ("agent", "operator"):
        subprocess.run([os.path.join(tree, "charts", "image.sh"), part, c.path(part + ".tar"), image(part)], check=True,
                       capture_output=True, env={**os.environ, "BUILD": build})
        c.import_image(c.path(part + ".tar"))
    t = Tree()
    t.program("usr/bin/toy_worker", f"{build}/tools/toy_worker")
    t.program("bin/busybox", shutil.which("busybox"))
    for name in ("sh", "mkfifo", "rm", "echo", "cat", "ls", "sleep", "timeout", "seq"):
        t.link("bin/" + name, "busybox")
    t.directory("tmp", 0o1777)
    c.import_image(write_image(c.path("toy.tar"), image("toy"), t, ["/bin/sh"]))


def apply(c, *objects):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return c.kubectl("apply", "--server-side", "-f", "-", stdin=text)


def namespace(name, level="restricted"):
    return {"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": level}}}


def install_operator(c, *args):
    """As README's first command does."""
    t = time.monotonic()
    apply(c, namespace(SYSTEM))
    c.helm("install", "weightbridge-operator", os.path.join(TOP, "charts", "weightbridge-operator"), "-n", SYSTEM,
           "--create-namespace", *args, "--wait", "--timeout", "60s")
    print(f"operator up after {time.monotonic() - t:.1f} s")


def toy_values(trainers=1, rollouts=2, uid=1000, shape=SHAPE, grace=5, tag=VERSION):
    """Values of charts/examples/rl-job for toy workers, which need little; the sidecar is what the chart gives."""
    side = {"workersPerPod": 1, "bufferSize": "64Mi", "command": ["/bin/sh", "-c", script(shape)],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}
    return {"image": f"localhost/weightbridge/toy:{tag}", "terminationGracePeriodSeconds": grace,
            "podSecurityContext": {"runAsNonRoot": uid != 0, "runAsUser": uid, "seccompProfile": {"type": "RuntimeDefault"}},
            "trainer": {"replicas": trainers, **side}, "rollout": {"replicas": rollouts, **side}}


def rendered(ns, release, values):
    """The objects that chart rl-job makes of them, by kind and name."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        json.dump(values, f)
        f.flush()
        docs = helm.render(os.path.join("examples", "rl-job"), "-f", f.name, release=release, ns=ns)
    return {(d["kind"], d["metadata"]["name"]): d for d in docs}


def stateful_set(ns, name, role, replicas, uid=1000, workers=1, object_="wt", shape=SHAPE, grace=5):
    """The chart's StatefulSet of toy workers, under a name of its own: pods that take commands from a pipe in /tmp and say
    on stdout what happened."""
    counts = {"trainers": workers, "rollouts": 1}
    s = rendered(ns, object_, toy_values(uid=uid, shape=shape, grace=grace, **counts))["StatefulSet", f"{object_}-{role}"]
    s["metadata"]["name"] = s["spec"]["serviceName"] = name
    s["spec"]["replicas"] = replicas
    s["spec"]["selector"]["matchLabels"]["app"] = s["spec"]["template"]["metadata"]["labels"]["app"] = name
    return s


def weight_transfer(ns, name="wt", trainers=1, per_engine=1, **spec):
    return {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
            "metadata": {"name": name, "namespace": ns},
            "spec": {"trainer": {"workers": trainers, "bufferSize": "64Mi"}, "rollout": {
                "workersPerEngine": per_engine, "bufferSize": "64Mi",
                "engineLabelKey": "apps.kubernetes.io/pod-index"}, **spec}}


class Job:
    """A WeightTransfer with its StatefulSets, in a namespace that enforces the restricted profile."""

    def __init__(self, c, ns="rl", name="wt", trainers=1, rollouts=2, uid=1000, shape=SHAPE, grace=5, level="restricted",
                 **spec):
        self.c, self.ns, self.name, self.trainers = c, ns, name, trainers
        self.last = 0
        apply(c, namespace(ns, level))
        apply(c, weight_transfer(ns, name, trainers, **spec))
        wait_for(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 30)
        apply(c, stateful_set(ns, "trainer", "trainer", trainers, uid, trainers, name, shape, grace),
              stateful_set(ns, "rollout", "rollout", rollouts, uid, 1, name, shape, grace))

    def kubectl(self, *args, **kw):
        return self.c.kubectl("-n", self.ns, *args, **kw)

    def get(self):
        return json.loads(self.kubectl("get", "wt", self.name, "-o", "json"))

    def status(self):
        return self.get().get("status", {})

    def condition(self, type_):
        for x in self.status().get("conditions", []):
            if x["type"] == type_:
                return x["status"], x["reason"], x["message"]
        return None, None, None

    def ready(self, seconds=40):
        self.kubectl("wait", "--for=condition=Ready", f"wt/{self.name}", f"--timeout={seconds}s")

    def exec(self, pod, *args, container="worker", **kw):
        return self.kubectl("exec", pod, "-c", container, "--", *args, **kw)

    def say(self, pod, text, check=True):
        """A command for a worker."""
        return self.exec(pod, "timeout", str(round(patience(5))), "sh", "-c", f"echo {text} >/tmp/in", check=check)

    def begin(self, version, hook_ms, *pods):
        """A version goes out; these engines' hooks take their time, and each is in its first."""
        for pod in self.pods("rollout"):
            ms, n = hook_ms if pod in pods else 0, len(self.lines(pod))
            self.say(pod, f"hook {ms}")
            self.heard(pod, f"hooks {ms}$", after=n)
        self.say("trainer-0", f"send {version}")
        for pod in pods:
            self.heard(pod, f"hook {version}")

    def go_on_sending(self, first, last, period=0.3):
        """The trainer sends versions first to last by itself, also while nobody can reach it."""
        assert self.trainers == 1
        self.exec("trainer-0", "sh", "-c",
                  f"(for v in $(seq {first} {last}); do echo send $v; sleep {period}; done) >/tmp/in 2>&1 </dev/null &")

    def lines(self, pod, container="worker", *args):
        r = self.kubectl("logs", pod, "-c", container, *args, check=False)
        return r.stdout.splitlines() if r.returncode == 0 else []

    def heard(self, pod, start, seconds=60, after=0):
        """The first line of a worker that begins with start, and is not among its first lines."""
        def look():
            for line in self.lines(pod)[after:]:
                assert not line.startswith("error"), (pod, line)
                if re.match(start, line):
                    return line
            return None
        look.__doc__ = f"{pod} says {start}"
        return wait_for(look, seconds, 0.1)

    def pods(self, app=None):
        """Names of the job's pods that are there and not going."""
        items = json.loads(self.kubectl("get", "pods", "-o", "json", *(["-l", "app=" + app] if app else [])))["items"]
        return sorted(p["metadata"]["name"] for p in items if "deletionTimestamp" not in p["metadata"])

    def send(self, version, seconds=60):
        """All trainers send; the line with which the first says how it ended."""
        pods = [f"trainer-{i}" for i in range(self.trainers)]
        threads = [threading.Thread(target=self.say, args=(p, f"send {version}")) for p in pods[1:]]
        for t in threads:
            t.start()
        self.say(pods[0], f"send {version}")
        for t in threads:
            t.join()
        return self.heard(pods[0], f"sent {version} ", seconds)

    def settled(self, version, seconds=30):
        """Status says that all engines run this version."""
        self.kubectl("wait", f"--for=jsonpath={{.status.version}}={version}", f"wt/{self.name}", f"--timeout={seconds}s")

    def delete(self):
        self.kubectl("delete", "statefulset", "trainer", "rollout", "--ignore-not-found")
        self.kubectl("delete", "wt", self.name, "--ignore-not-found")
        wait_for(lambda: not self.pods(), 60)


class ChartJob(Job):
    """charts/examples/rl-job with toy workers; of another commit's tree with its images."""

    def __init__(self, c, ns, release="grpo", more=None, tree=TOP, tag=VERSION, transfer=None):
        self.c, self.ns, self.name, self.trainers, self.last = c, ns, release, 1, 0
        self.trainer = f"{release}-trainer-0"
        values = {**toy_values(tag=tag), "transfer": transfer or {}, **(more or {})}
        if tag != VERSION:
            values["weightbridge"] = {"image": {"tag": tag}}
        if not more:
            apply(c, namespace(ns))
        c.helm("install", release, os.path.join(tree, "charts", "examples", "rl-job"), "-n", ns, "-f", "-", "--wait",
               "--timeout", "120s", stdin=json.dumps(values), warns=tree != TOP)

    def pods(self, app=None):
        return super().pods(app and f"{self.name}-{app}")

    def send(self, version, seconds=60):
        self.say(self.trainer, f"send {version}")
        return self.heard(self.trainer, f"sent {version} ", seconds)


class Sending:
    """The trainer sends versions by itself, from a number on until it is told to stop."""

    def __init__(self, job, first):
        self.job, self.first = job, first
        job.exec(job.trainer, "sh", "-c", ": >/tmp/go; rm -f /tmp/last; (v=%d; while [ -e /tmp/go ]; do echo send $v; sleep 0.3; "
                 "v=$((v+1)); done >/tmp/in; echo $((v-1)) >/tmp/last) >/dev/null 2>&1 </dev/null &" % first)
        job.heard(job.trainer, f"sent {first} ")

    def so_far(self):
        return [x for x in self.job.lines(self.job.trainer) if x.startswith("sent ") and int(x.split()[1]) >= self.first]

    def some_more(self, n=2):
        have = len(self.so_far())
        wait_for(lambda: len(self.so_far()) >= have + n, 60, 0.2)

    def stop(self):
        """What became of each version, by engine."""
        job = self.job
        job.exec(job.trainer, "rm", "-f", "/tmp/go")
        self.last = int(wait_for(lambda: job.exec(job.trainer, "cat", "/tmp/last", check=False).stdout.strip(), 20, 0.2))
        job.heard(job.trainer, f"sent {self.last} ", 120)
        lines = self.so_far()
        assert [int(x.split()[1]) for x in lines] == list(range(self.first, self.last + 1)), lines
        return [dict(re.findall(r"(\S+)=(\S+)", x.split(" ", 3)[3])) for x in lines]


def installed(job, pod, first, last):
    """An engine's worker has every version of these, in order, and found each byte right."""
    job.heard(pod, f"update {last} ")
    got = [x for x in job.lines(pod) if x.startswith("update")]
    want = [f"update {v} ok" for v in range(first, last + 1)]
    assert got[-len(want):] == want, (pod, got)


def pids(program, pod_uid):
    """Process ids, seen from the nodes, of a program in a pod."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            group = open(f"/proc/{pid}/cgroup").read()
        except OSError:
            continue
        if exe == program and pod_uid in group:
            found.append(int(pid))
    return found


def columns(text):
    """The rows of a kubectl table, by column name."""
    lines = text.rstrip("\n").splitlines()
    starts = [m.start() for m in re.finditer(r"\S+", lines[0])]
    names = lines[0].split()
    return [{n: line[a:b].strip() for n, a, b in zip(names, starts, starts[1:] + [None])} for line in lines[1:]]
