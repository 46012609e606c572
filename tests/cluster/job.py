# SPDX-License-Identifier: Apache-2.0
"""An operator and an RL job in the pods of a cluster, by plain manifests: what the charts make, in small."""
import base64
import json
import os
import re
import threading
import time

from apiserver import TOP, wait_for
from images import Tree, write_image

BUILD = os.environ.get("WB_BUILD", "build/release")
SYSTEM = "weightbridge-system"
SERVICE = f"weightbridge-operator.{SYSTEM}.svc"
IMAGES = {"agent": "localhost/weightbridge/agent:test", "operator": "localhost/weightbridge/operator:test",
          "toy": "localhost/weightbridge/toy:test"}
SECURE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True, "runAsUser": 65532,
          "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


def add_images(c):
    for part in ("agent", "operator"):
        t = Tree()
        t.program(f"usr/bin/weightbridge-{part}", f"{BUILD}/bin/weightbridge-{part}")
        t.program("usr/bin/wbctl", f"{BUILD}/bin/wbctl")
        t.directory("tmp", 0o1777)
        c.import_image(write_image(c.path(part + ".tar"), IMAGES[part], t, [f"/usr/bin/weightbridge-{part}"]))
    t = Tree()
    t.program("usr/bin/toy_worker", f"{BUILD}/tools/toy_worker")
    t.program("bin/busybox", "/bin/busybox")
    for name in ("sh", "mkfifo", "rm", "echo", "cat", "ls", "kill", "id", "sleep"):
        t.link("bin/" + name, "busybox")
    t.directory("tmp", 0o1777)
    c.import_image(write_image(c.path("toy.tar"), IMAGES["toy"], t, ["/bin/sh"]))


def apply(c, *objects):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return c.kubectl("apply", "--server-side", "-f", "-", stdin=text)


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


def read(c, name):
    return open(c.path("pki", name)).read()


def field(path):
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def operator_objects(c, replicas=2, args=()):
    """Namespace, account, certificate, rights, Deployment and headless Service of the operator."""
    if not os.path.exists(c.path("pki", "operator.crt")):
        c.certificate("operator", "/CN=weightbridge-operator", "DNS:" + SERVICE)
    meta = lambda name: {"name": name, "namespace": SYSTEM}
    labels = {"app": "weightbridge-operator"}
    secret = {k: base64.b64encode(read(c, v).encode()).decode() for k, v in (("tls.crt", "operator.crt"),
                                                                             ("tls.key", "operator.key"))}
    subject = [{"kind": "ServiceAccount", "name": "weightbridge-operator", "namespace": SYSTEM}]
    bind = lambda kind, m: {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind + "Binding", "metadata": m,
                            "subjects": subject, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind,
                                                             "name": "weightbridge-operator"}}
    container = {
        "name": "operator", "image": IMAGES["operator"], "imagePullPolicy": "Never", "securityContext": SECURE,
        "args": ["--in-cluster", "--tls-cert=/tls/tls.crt", "--tls-key=/tls/tls.key", "--listen=:7443", "--http=:9402",
                 "--name=$(POD_NAME)", "--advertise=$(POD_IP):7443", "--settle-ms=100", *args],
        "env": [{"name": "POD_NAME", **field("metadata.name")}, {"name": "POD_IP", **field("status.podIP")}],
        "ports": [{"name": "agents", "containerPort": 7443}, {"name": "http", "containerPort": 9402}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9402}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9402}, "periodSeconds": 5},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}]}
    return [
        namespace(SYSTEM), {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("weightbridge-operator")},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta("weightbridge-tls"),
         "data": secret},
        bind("ClusterRole", {"name": "weightbridge-operator"}), bind("Role", meta("weightbridge-operator")),
        {"apiVersion": "v1", "kind": "Service", "metadata": meta("weightbridge-operator"),
         "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "agents", "port": 7443}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("weightbridge-operator"),
         "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
             "metadata": {"labels": labels},
             "spec": {"serviceAccountName": "weightbridge-operator", "containers": [container],
                      "volumes": [{"name": "tls", "secret": {"secretName": "weightbridge-tls"}}]}}}}]


def install_operator(c, **kw):
    c.install_crd()
    apply(c, *operator_objects(c, **kw))
    c.kubectl("apply", "-n", SYSTEM, "-f", os.path.join(TOP, "operator-shim", "role.yaml"))
    c.kubectl("rollout", "status", "-n", SYSTEM, "deployment/weightbridge-operator", "--timeout=60s")


def sidecar(ns, name):
    return {
        "name": "weightbridge-agent", "image": IMAGES["agent"], "imagePullPolicy": "Never", "restartPolicy": "Always",
        "securityContext": SECURE,
        "args": ["--name=$(POD_NAME)", "--node=$(NODE_NAME)", f"--operator={SERVICE}:7443", f"--object={ns}/{name}",
                 "--token-file=/var/run/secrets/weightbridge/token", "--ca-file=/var/run/secrets/weightbridge/ca.crt",
                 "--socket=/run/weightbridge/agent.sock", "--advertise=$(POD_IP)", "--http=:9402"],
        "env": [{"name": "POD_NAME", **field("metadata.name")}, {"name": "POD_IP", **field("status.podIP")},
                {"name": "NODE_NAME", **field("spec.nodeName")}],
        "ports": [{"name": "weights", "containerPort": 7444}, {"name": "metrics", "containerPort": 9402}],
        "startupProbe": {"httpGet": {"path": "/healthz", "port": 9402}, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9402}, "periodSeconds": 10, "failureThreshold": 6},
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "10m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "weightbridge-run", "mountPath": "/run/weightbridge"},
                         {"name": "weightbridge-auth", "mountPath": "/var/run/secrets/weightbridge", "readOnly": True},
                         # Nothing of the API server's token, whatever the pod says.
                         {"name": "weightbridge-none", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}


def stateful_set(ns, name, role, replicas, uid=1000, workers=1, object_="wt", shape="--rows 256 --cols 256 --tensors 8"):
    """Pods of toy workers that take commands from a pipe in /tmp and say on stdout what happened."""
    labels = {"weightbridge.io/name": object_, "weightbridge.io/role": role, "app": name}
    script = ("rm -f /tmp/in; mkfifo /tmp/in; exec toy_worker --socket /run/weightbridge/agent.sock "
              f"--role {role} --index {'${POD_NAME##*-}' if role == 'trainer' else '0'} "
              f"--of {workers} {shape} <>/tmp/in")
    worker = {
        "name": "worker", "image": IMAGES["toy"], "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
        "env": [{"name": "POD_NAME", **field("metadata.name")}],
        "securityContext": {**SECURE, "runAsUser": uid, "runAsNonRoot": uid != 0},
        "volumeMounts": [{"name": "weightbridge-run", "mountPath": "/run/weightbridge"},
                         {"name": "tmp", "mountPath": "/tmp"}]}
    auth = [{"serviceAccountToken": {"audience": f"weightbridge.io/{ns}/{object_}", "expirationSeconds": 3600, "path": "token"}},
            {"configMap": {"name": "weightbridge-ca", "optional": True, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]
    spec = {
        "terminationGracePeriodSeconds": 5, "initContainers": [sidecar(ns, object_)], "containers": [worker],
        "securityContext": {"fsGroup": 2000},
        "volumes": [{"name": "weightbridge-run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "weightbridge-none", "emptyDir": {"medium": "Memory", "sizeLimit": "4Ki"}},
                    {"name": "weightbridge-auth", "projected": {"sources": auth}}, {"name": "tmp", "emptyDir": {}}]}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": ns}, "spec": {
        "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": spec}}}


def weight_transfer(ns, name="wt", trainers=1, per_engine=1, **spec):
    return {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
            "metadata": {"name": name, "namespace": ns},
            "spec": {"trainer": {"workers": trainers}, "rollout": {
                "workersPerEngine": per_engine, "engineLabelKey": "apps.kubernetes.io/pod-index"}, **spec}}


def ca_map(c, ns):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weightbridge-ca", "namespace": ns},
            "data": {"ca.crt": read(c, "ca.crt")}}


class Job:
    """A WeightTransfer with its StatefulSets, in a namespace that enforces the restricted profile."""

    def __init__(self, c, ns="rl", name="wt", trainers=1, rollouts=2, uid=1000, **spec):
        self.c, self.ns, self.name, self.trainers = c, ns, name, trainers
        self.last = 0
        apply(c, namespace(ns))
        apply(c, ca_map(c, ns), weight_transfer(ns, name, trainers, **spec))
        wait_for(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 30)
        apply(c, stateful_set(ns, "trainer", "trainer", trainers, uid, trainers, name),
              stateful_set(ns, "rollout", "rollout", rollouts, uid, 1, name))

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

    def say(self, pod, text):
        """A command for a worker."""
        self.exec(pod, "sh", "-c", f"echo {text} >/tmp/in")

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


def agent_pid(c, node, pod_uid, name):
    """Process ids, seen from the node, of a program in a pod."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            group = open(f"/proc/{pid}/cgroup").read()
        except OSError:
            continue
        if exe == name and pod_uid in group:
            found.append(int(pid))
    return found


def columns(text):
    """The rows of a kubectl table, by column name."""
    lines = text.rstrip("\n").splitlines()
    starts = [m.start() for m in re.finditer(r"\S+", lines[0])]
    names = lines[0].split()
    return [{n: line[a:b].strip() for n, a, b in zip(names, starts, starts[1:] + [None])} for line in lines[1:]]
