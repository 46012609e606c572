# SPDX-License-Identifier: Apache-2.0
"""The charts as a user takes them: operator and job by helm, the sidecar of chart and policy in pods that run,
wbctl inside of them, a second release beside the first, an upgrade in mid-job, and nothing left behind."""
import base64
import copy
import io
import json
import os
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import TOP, patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from test_injection import CONTROLLERS  # noqa: E402
from job import (IMAGES, SCRIPT, SECURE, SYSTEM, ChartJob, Job, Sending, add_images, apply, install_operator,  # noqa: E402
                 installed, namespace, pids, weight_transfer)

CHARTS = os.path.join(TOP, "charts")
CRD = "weighttransfers.weightbridge.io"


def raw(c, *args):
    """kubectl with bytes on stdout."""
    r = subprocess.run([os.path.join(c.prefix, "kubectl"), "--kubeconfig", c.kubeconfig, *args], capture_output=True,
                       timeout=patience(60), env={**os.environ, "HOME": c.dir})
    assert r.returncode == 0, (args, r.stderr)
    return r.stdout


def bundle(c, ns, pod, container, want, hidden):
    data = raw(c, "-n", ns, "exec", pod, "-c", container, "--", "wbctl", "support-bundle")
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        files = {os.path.basename(m.name): t.extractfile(m).read() for m in t.getmembers()}
    assert want <= set(files), (set(files), files.get("about.txt"))
    for name, text in files.items():
        for word in hidden:
            assert word not in text, (name, word[:10])


def hidden_words(c):
    data = json.loads(c.kubectl("-n", SYSTEM, "get", "secret", "weightbridge-operator-tls", "-o", "json"))["data"]
    keys = [base64.b64decode(data[k]).splitlines()[1] for k in ("tls.key", "ca.key")]
    return [b"PRIVATE KEY", b"eyJ", *keys]


def inside(c, job):
    """What the issue promises to type."""
    deploy = "deploy/weightbridge-operator"
    for word in ("receive", "bound"):
        assert word in c.kubectl("-n", SYSTEM, "exec", deploy, "--", "wbctl", "plan", "explain", f"rl/{job.name}").lower()
    hidden = hidden_words(c)
    pods = c.kubectl("-n", SYSTEM, "get", "pods", "-o", "name").split()
    assert len(pods) == 2
    for pod in pods:  # leader or standby: the same answers
        assert "True" in c.kubectl("-n", SYSTEM, "exec", pod, "--", "wbctl", "get", job.name)
        bundle(c, SYSTEM, pod, "operator", {"operator-metrics.txt", "operator-objects.json", "object-0-grpo-plan.bin"}, hidden)
    for pod in job.pods():
        out = job.exec(pod, "wbctl", "status", container="weightbridge-agent")
        assert "Operator connected:" in out and "true" in out, out
        assert "traceEvents" in job.exec(pod, "wbctl", "trace", container="weightbridge-agent")
        bundle(c, job.ns, pod, "weightbridge-agent", {"agent-status.json", "agent-metrics.txt", "agent-trace.json"}, hidden)
        # No token of the API server can be read in it.
        r = job.exec(pod, "wbctl", "inject", "-f", "/var/run/secrets/kubernetes.io/serviceaccount/token",
                     container="weightbridge-agent", check=False)
        assert "No such file" in r.stderr, r.stderr
    for p in json.loads(job.kubectl("get", "pods", "-o", "json"))["items"]:
        s = [x for x in p["status"]["initContainerStatuses"] if x["name"] == "weightbridge-agent"][0]
        assert s["started"] and s["ready"] and s["restartCount"] == 0, s


def worker_of(role):
    return {"name": "worker", "image": IMAGES["toy"], "command": ["/bin/sh", "-c", SCRIPT],
            "env": [{"name": "ROLE", "value": role}, {"name": "TRAINERS", "value": "1"},
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "securityContext": {**SECURE, "runAsUser": 1234}, "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}


def by_policy(c, job):
    """Pods that carry labels alone are given the agent, and move weights."""
    apply(c, weight_transfer(job.ns, "two", 1, trainer={"workers": 1, "bufferSize": "64Mi"},
                             rollout={"workersPerEngine": 1, "bufferSize": "64Mi",
                                      "engineLabelKey": "apps.kubernetes.io/pod-index"}))
    for role in ("trainer", "rollout"):
        name = f"two-{role}"
        labels = {"app": name, "weightbridge.io/inject": "enabled", "weightbridge.io/name": "two", "weightbridge.io/role": role}
        apply(c, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": job.ns}, "spec": {
            "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": labels, "annotations": {"weightbridge.io/memory": "256Mi"}},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [worker_of(role)],
                         "volumes": [{"name": "tmp", "emptyDir": {}}]}}}})
    job.kubectl("wait", "--for=condition=Ready", "wt/two", "--timeout=120s")
    job.say("two-trainer-0", "send 1")
    assert "Committed" in job.heard("two-trainer-0", "sent 1 ")
    r = c.kubectl("-n", "default", "run", "bad", "--image=x", "--labels=weightbridge.io/inject=enabled", check=False)
    assert "label weightbridge.io/name is missing" in r.stderr, r.stderr
    job.kubectl("delete", "statefulset", "two-trainer", "two-rollout")
    job.kubectl("delete", "wt", "two")


def agent_status(c, ns, pod, program):
    """What the kernel says about the agent's process of a pod."""
    uid = c.kubectl("-n", ns, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
    found = wait_for(lambda: pids(program, uid), 60)
    return dict(line.split(":\t", 1) for line in open(f"/proc/{found[0]}/status").read().splitlines() if ":\t" in line)


def examples_run(c):
    """The pod templates of the examples, as pods with the labels that their controllers set: each has an engine of
    the name that those labels give, and moves weights."""
    ns = "examples"
    apply(c, namespace(ns))
    wait_for(lambda: c.kubectl("-n", ns, "get", "serviceaccount", "default", check=False).returncode == 0, 30)
    job = Job.__new__(Job)
    job.c, job.ns = c, ns
    for kind, labels in CONTROLLERS.items():  # one after the other: with the chart's sidecar a pod takes half a core
        docs = helm.load(open(os.path.join(CHARTS, "examples", kind + ".yaml")).read())
        key = docs[0]["spec"]["rollout"]["engineLabelKey"]
        apply(c, weight_transfer(ns, kind, 1, trainer={"workers": 1, "bufferSize": "64Mi"},
                                 rollout={"workersPerEngine": 1, "bufferSize": "64Mi", "engineLabelKey": key}))
        engine = None
        # Of each role the last: where there are leaders and workers, a worker.
        for role, t in {p["metadata"]["labels"]["weightbridge.io/role"]: p for p in helm.pods(docs)
                        if "labels" in p.get("metadata", {})}.items():
            t = copy.deepcopy(t)
            t["metadata"]["labels"].update(labels)
            t["metadata"]["labels"]["weightbridge.io/name"] = kind
            t["metadata"].update(name=f"{kind}-{role}-0", namespace=ns, annotations={"weightbridge.io/memory": "128Mi"})
            engine = t["metadata"]["labels"].get(key)
            t["spec"] = {"terminationGracePeriodSeconds": 1, "containers": [worker_of(role)], "restartPolicy": "Never",
                         "volumes": [{"name": "tmp", "emptyDir": {}}]}
            apply(c, {"apiVersion": "v1", "kind": "Pod", **t})
        job.kubectl("wait", "--for=condition=Ready", f"wt/{kind}", "--timeout=120s")
        job.say(f"{kind}-trainer-0", "send 1")
        assert f"{engine}=Committed" in job.heard(f"{kind}-trainer-0", "sent 1 "), (kind, engine)
        job.kubectl("delete", "pod", "--all", "--wait=false")
    c.kubectl("delete", "namespace", ns)


def on_the_hosts_network(c):
    """Pods of one node share its ports: agents take free ones, and are found."""
    c.kubectl("create", "namespace", "host")
    job = ChartJob(c, "host", "host", {"hostNetwork": True})
    job.ready(60)
    assert job.send(1).count("Committed") == 2
    ports = set()
    for p in json.loads(job.kubectl("get", "pods", "-o", "json"))["items"]:
        st = json.loads(job.exec(p["metadata"]["name"], "wbctl", "status", "--json", container="weightbridge-agent"))
        ports.add((p["spec"]["nodeName"], st["port"]))
    assert len(ports) == 3 and 7444 not in {x for _, x in ports}, ports
    c.helm("uninstall", "host", "-n", "host", "--wait", "--timeout", "60s")
    c.kubectl("delete", "namespace", "host")


def capabilities(c, job):
    """None in the hardened profile; the one to lock memory in the other, in effect, though it is not root."""
    for pod in job.pods():
        st = agent_status(c, job.ns, pod, "weightbridge-agent")
        assert int(st["CapEff"], 16) == int(st["CapPrm"], 16) == int(st["CapBnd"], 16) == 0, st
        assert st["NoNewPrivs"] == "1" and st["Uid"].split() == ["65532"] * 4 and st["Seccomp"] == "2", st
    c.kubectl("create", "namespace", "lock")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "p", "namespace": "lock", "labels": {"weightbridge.io/inject": "enabled", "weightbridge.io/name": "none",
                                                     "weightbridge.io/role": "rollout"},
        "annotations": {"weightbridge.io/profile": "IPCLock", "weightbridge.io/memory": "64Mi"}},
        "spec": {"containers": [{"name": "w", "image": IMAGES["toy"], "imagePullPolicy": "Never",
                                 "command": ["/bin/sh", "-c", "sleep 600"]}], "terminationGracePeriodSeconds": 1}}
    wait_for(lambda: c.kubectl("-n", "lock", "get", "serviceaccount", "default", check=False).returncode == 0, 30)
    apply(c, pod)
    c.kubectl("-n", "lock", "wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    st = agent_status(c, "lock", "p", "weightbridge-agent-ipclock")
    assert int(st["CapEff"], 16) == int(st["CapBnd"], 16) == 1 << 14, st  # CAP_IPC_LOCK
    assert st["NoNewPrivs"] == "1" and st["Uid"].split() == ["65532"] * 4, st
    c.kubectl("delete", "namespace", "lock")


def upgraded_in_mid_job(c, job):
    """Every replica is replaced while versions move; none is lost."""
    pod = f"{job.name}-trainer-0"
    before = c.kubectl("-n", SYSTEM, "get", "pods", "-o", "name").split()
    job.exec(pod, "sh", "-c", "(for v in $(seq 10 40); do echo send $v; sleep 0.3; done) >/tmp/in 2>&1 </dev/null &")
    t = time.monotonic()
    c.helm("upgrade", "weightbridge-operator", os.path.join(CHARTS, "weightbridge-operator"), "-n", SYSTEM, "--reuse-values",
           "--set", "podAnnotations.again=yes", "--wait", "--timeout", "120s")
    took = time.monotonic() - t
    # helm has seen the new ones ready; an old one may still be about to end.
    wait_for(lambda: not set(before) & set(c.kubectl("-n", SYSTEM, "get", "pods", "-o", "name").split()), 30)
    job.heard(pod, "sent 40 ", 60)
    for v in range(10, 41):
        line = job.heard(pod, f"sent {v} ", 5)
        assert line.count("Committed") == 2, line
    job.settled(40, 60)
    print(f"helm upgrade --wait: {took:.1f} s, 31 versions meanwhile and after")


def rotated_under_transfers(c, job):
    """Certificate, then authority and certificate, made anew while 20 versions move; then agents come back by them."""
    pod = f"{job.name}-trainer-0"
    keys = lambda: json.loads(c.kubectl("-n", SYSTEM, "get", "secret", "weightbridge-operator-tls", "-o", "json"))["data"]
    job.exec(pod, "sh", "-c", "(for v in $(seq 50 69); do echo send $v; sleep 0.5; done) >/tmp/in 2>&1 </dev/null &")
    for drop in (["tls.crt"], ["ca.key", "tls.crt"]):
        old = keys()
        c.kubectl("-n", SYSTEM, "patch", "secret", "weightbridge-operator-tls", "--type=merge", "-p",
                  json.dumps({"data": {k: None for k in drop}}))
        new = wait_for(lambda: (lambda k: k if k.get("tls.crt", old["tls.crt"]) != old["tls.crt"] else None)(keys()), 30, 0.3)
        assert ("ca.key" in drop) == (new["ca.crt"] != old["ca.crt"])
    for v in range(50, 70):
        assert job.heard(pod, f"sent {v} ", 60).count("Committed") == 2
    # The kubelet brings the new authority; then an agent that is started anew is let in.
    job.kubectl("delete", "pod", f"{job.name}-rollout-1", "--wait")
    job.kubectl("wait", "--for=condition=Ready", "pod", f"{job.name}-rollout-1", "--timeout=60s")
    wait_for(lambda: [e.get("version") for e in job.status()["engines"] if e["state"] == "Committed"] == [69, 69] or
             [e.get("version") for e in job.status()["engines"]] == [69, 69], 150, 1)
    assert job.send(70).count("Committed") == 2


def reinstalled(c, job):
    """The chart goes and comes under a job: versions go on without any operator, and the next one, of another
    authority, finds the plan that runs."""
    plan, number = job.status()["plan"], job.status()["transfer"]
    ca = lambda: json.loads(job.kubectl("get", "configmap", "weightbridge-ca", "-o", "json"))["data"]["ca.crt"]
    was = ca()
    s = Sending(job, 80)
    c.helm("uninstall", "weightbridge-operator", "-n", SYSTEM, "--wait", "--timeout", "120s")
    s.some_more(3)
    assert job.status()["plan"] == plan
    t = time.monotonic()
    install_operator(c)
    wait_for(lambda: ca() != was, 60, 0.2)
    # The kubelets bring the new authority to the pods.
    wait_for(lambda: job.status()["transfer"] > number, 150, 0.3)
    took = time.monotonic() - t
    ends = s.stop()
    assert all(list(e.values()) == ["Committed"] * 2 for e in ends), ends
    job.settled(s.last, 150)
    after = job.status()["plan"]
    assert (after["digest"], after["number"]) == (plan["digest"], plan["number"]), (plan, after)
    for pod in job.pods("rollout"):
        installed(job, pod, s.first, s.last)
    print(f"chart installed again: {len(ends)} versions meanwhile, agents back {took:.1f} s after the install")


SECOND = ("install", "wb", os.path.join(CHARTS, "weightbridge-operator"), "-n", "ops-2", "--set",
          "watchNamespaces={team-2},hostNetwork=true", "--wait", "--timeout", "60s")


def beside_the_first(c, job):
    """A release for one namespace, where one serves all, which leaves that namespace alone and goes on elsewhere."""
    for ns in ("ops-2", "team-2"):
        apply(c, namespace(ns, "privileged"))
    notes = c.helm(*SECOND)
    assert "Lease weightbridge-system/weightbridge-operator serves all other namespaces, and leaves team-2 to this one" in notes, notes
    says = lambda: "".join(c.kubectl("-n", SYSTEM, "logs", "--prefix", "-l", "app.kubernetes.io/name=weightbridge-operator", "--tail=-1"))  # noqa: E731
    wait_for(lambda: "this operator is idle for a namespace that another release serves" in says(), 60, 1)
    assert "ops-2/wb-weightbridge-operator" in says()
    s = Sending(job, 300)
    s.some_more(3)
    assert all(list(e.values()) == ["Committed"] * 2 for e in s.stop())
    c.helm("uninstall", "wb", "-n", "ops-2", "--wait", "--timeout", "60s")


def for_one_namespace(c):
    """Alone, and with the resource there, which the first left behind. On the nodes' network, with a replica on each, it
    is replaced although a third would find its ports taken."""
    chart = SECOND[2]
    c.helm(*SECOND)
    notes = c.helm("get", "notes", "wb", "-n", "ops-2")
    assert "was not made by this release" in notes, notes
    assert "--set weightbridge.operator=wb-weightbridge-operator.ops-2.svc:7443" in notes, notes
    c.helm("upgrade", "wb", chart, "-n", "ops-2", "--reuse-values", "--set", "podAnnotations.again=yes", "--wait", "--timeout", "120s")
    # helm is content when as many are Ready as may be at the least: one of the two here.
    c.kubectl("-n", "ops-2", "rollout", "status", "deployment/wb-weightbridge-operator", "--timeout=120s")
    pods = json.loads(c.kubectl("-n", "ops-2", "get", "pods", "-o", "json"))["items"]
    nodes = {p["spec"]["nodeName"] for p in pods if p["metadata"]["annotations"].get("again") and p["status"]["podIP"] == p["status"]["hostIP"]}
    assert len(nodes) == 2, pods
    c.helm("test", "wb", "-n", "ops-2", "--timeout", "60s")
    c.helm("uninstall", "wb", "-n", "ops-2", "--wait", "--timeout", "60s")
    assert c.kubectl("get", "crd", CRD, "-o", "name").strip()


def leftovers(c, ns):
    """Everything that the charts' release could have left, by any name."""
    found = []
    for scope, extra in (("true", ["-n", ns]), ("false", [])):
        kinds = c.kubectl("api-resources", "--verbs=list", f"--namespaced={scope}", "-o", "name").split()
        kinds = [k for k in kinds if not k.startswith(("events", "nodes"))]
        for line in c.kubectl(*extra, "get", ",".join(kinds), "--ignore-not-found", "-o", "name").split():
            if "weightbridge" in line or "wb-" in line:
                found.append(line)
    return [x for x in found if not x.startswith("namespace/")]


def main(c):
    add_images(c)
    install_operator(c)
    c.helm("test", "weightbridge-operator", "-n", SYSTEM, "--timeout", "60s")
    t = time.monotonic()
    job = ChartJob(c, "rl")
    job.ready(60)
    print(f"rl-job: {time.monotonic() - t:.1f} s from helm install to Ready")
    for v in (1, 2, 3):
        assert job.send(v).count("Committed") == 2
    inside(c, job)
    by_policy(c, job)
    examples_run(c)
    on_the_hosts_network(c)
    if c.owns_nodes:
        capabilities(c, job)
    upgraded_in_mid_job(c, job)
    rotated_under_transfers(c, job)
    reinstalled(c, job)
    beside_the_first(c, job)
    c.helm("uninstall", "grpo", "-n", "rl", "--wait", "--timeout", "120s")
    wait_for(lambda: "weightbridge-ca" not in c.kubectl("-n", "rl", "get", "configmap", "-o", "name"), 60)
    c.helm("uninstall", "weightbridge-operator", "-n", SYSTEM, "--wait", "--timeout", "120s")
    # The second is the API server's own, made of the first.
    want = ["customresourcedefinition.apiextensions.k8s.io/" + CRD, "apiservice.apiregistration.k8s.io/v1alpha1.weightbridge.io"]
    try:
        wait_for(lambda: leftovers(c, SYSTEM) == want, 20, 1)
    except AssertionError:
        raise AssertionError(f"left behind: {leftovers(c, SYSTEM)}") from None
    for_one_namespace(c)


if __name__ == "__main__":
    run(main, __file__)
