# SPDX-License-Identifier: Apache-2.0
"""One sidecar in three ways: the library chart, the policy in the API server and wbctl inject give the same
pod, field by field; a missing or bad label is refused by one sentence; the examples get theirs."""
import copy
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import ApiServer, patience, wait_for  # noqa: E402
from op import BIN  # noqa: E402

OPERATOR = "wb-weightbridge-operator.system.svc:7443"
PODS = "/api/v1/namespaces/rl/pods"
L = "weightbridge.io/"


def pod(role="rollout", annotations=None, drop=(), inject="enabled", **spec):
    labels = {L + "inject": inject, L + "name": "grpo", L + "role": role, "app": "x"}
    for k in drop:
        del labels[L + k]
    meta = {"name": "p", "namespace": "rl", "labels": labels}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {
        "containers": [{"name": "app", "image": "i"}, {"name": "more", "image": "j", "volumeMounts": [
            {"name": "v", "mountPath": "/v"}]}], "volumes": [{"name": "v", "emptyDir": {}}], **spec}}


CASES = {
    "a rollout pod": (pod(), {"memory": "6Gi"}),
    "a trainer pod": (pod("trainer"), {"memory": "2Gi"}),
    "both roles": (pod("both"), {"memory": "8Gi"}),
    "memory as wanted": (pod(annotations={L + "memory": "33Gi"}), {"memory": "33Gi"}),
    "two containers attach": (pod(annotations={L + "containers": "more,app"}), {"memory": "6Gi"}),
    "another attaches": (pod(annotations={L + "containers": "more"}), {"memory": "6Gi"}),
    "memory may be locked": (pod(annotations={L + "profile": "IPCLock"}), {"memory": "6Gi", "profile": "IPCLock"}),
    "the host's network": (pod(hostNetwork=True), {"memory": "6Gi", "hostNetwork": True}),
    "no volumes, init containers there": (
        pod(volumes=None, containers=[{"name": "app", "image": "i"}], initContainers=[{"name": "first", "image": "k"}]),
        {"memory": "6Gi"}),
    "a mesh set by hand": (pod(annotations={"config.linkerd.io/skip-inbound-ports": "1"}), {"memory": "6Gi"}),
    "no token in the pod": (pod(automountServiceAccountToken=False), {"memory": "6Gi"}),
}
for p, _ in CASES.values():
    if p["spec"].get("volumes", 1) is None:
        del p["spec"]["volumes"]


def of_chart(p, args):
    """The pod as a chart's author writes it, with the library's parts included."""
    q = copy.deepcopy(p)
    meant = q["metadata"].get("annotations", {}).get(L + "containers", q["spec"]["containers"][0]["name"]).split(",")
    spec = q["spec"]
    spec["initContainers"] = ["@sidecar@"] + spec.get("initContainers", [])
    spec["volumes"] = spec.get("volumes", []) + ["@volumes@"]
    for c in spec["containers"]:
        if c["name"] in meant:
            c["volumeMounts"] = c.get("volumeMounts", []) + ["@volumeMounts@"]
    w = json.dumps({"name": "grpo", "role": q["metadata"]["labels"][L + "role"], **args})
    text = json.dumps(q)
    for name in ("sidecar", "volumes", "volumeMounts"):
        text = text.replace(f'"@{name}@"', '{{ include "weightbridge.' + name + '" $w | fromYamlArray | toJson | '
                            'trimPrefix "[" | trimSuffix "]" }}')
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(os.path.join(d, "templates"))
        os.makedirs(os.path.join(d, "charts"))
        shutil.copytree(os.path.join(helm.CHARTS, "weightbridge"), os.path.join(d, "charts", "weightbridge"))
        for name, content in (
                ("Chart.yaml", "apiVersion: v2\nname: x\nversion: 0.1.0\n"
                 'dependencies: [{name: weightbridge, version: 0.1.0, repository: ""}]\n'),
                ("templates/pod.yaml", "{{- $w := fromJson `" + w + "` }}{{- $_ := set $w \"root\" $ }}\n"
                 "json: " + text + '\nannotations: {{ include "weightbridge.annotations" $w | fromYaml | toJson }}\n')):
            with open(os.path.join(d, name), "w") as f:
                f.write(content)
        out = helm.load(helm.run("template", "x", d, "-n", "rl", "--set", f"weightbridge.operator={OPERATOR}"))[0]
    q = out["json"]
    q["metadata"]["annotations"] = {**out["annotations"], **q["metadata"].get("annotations", {})}
    return q


def wbctl(text, *args):
    return subprocess.run([os.path.join(BIN, "wbctl"), "inject", "-f", "-", "--operator", OPERATOR, *args],
                          input=text, capture_output=True, text=True, timeout=patience(30))


def of_wbctl(p):
    r = wbctl(json.dumps(p))
    assert r.returncode == 0, r.stderr
    return helm.load(r.stdout)[0]


def stored(c, p):
    """The pod as the API server would keep it, less what it gives each pod anew."""
    q = json.loads(c.raw(PODS + "?dryRun=All", "POST", p))
    for k in ("uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"):
        q["metadata"].pop(k, None)
    text = json.dumps(q)
    for v in q["spec"]["volumes"]:
        if v["name"].startswith("kube-api-access-"):
            text = text.replace(v["name"], "kube-api-access")
    q = json.loads(text)
    q["spec"]["volumes"].sort(key=lambda v: v["name"])
    for x in q["spec"]["containers"] + q["spec"]["initContainers"]:
        x.get("volumeMounts", []).sort(key=lambda m: m["mountPath"])
    q.pop("status")
    return q


def same(a, b, path=""):
    """Nothing, or where they first differ."""
    if type(a) is not type(b):
        return f"{path}: {a!r} and {b!r}"
    if isinstance(a, dict):
        for k in sorted(set(a) | set(b)):
            if k not in a or k not in b:
                return f"{path}.{k}: only in the {'second' if k in b else 'first'}: {a.get(k, b.get(k))}"
            d = same(a[k], b[k], f"{path}.{k}")
            if d:
                return d
    elif isinstance(a, list):
        if len(a) != len(b):
            return f"{path}: {len(a)} and {len(b)} items"
        for i, (x, y) in enumerate(zip(a, b)):
            d = same(x, y, f"{path}[{i}]")
            if d:
                return d
    elif a != b:
        return f"{path}: {a!r} and {b!r}"
    return None


def is_safe(q, locks, host):
    """What has to be so of a sidecar, by other words than the template's."""
    s = q["spec"]["initContainers"][0]
    sc, r = s["securityContext"], s["resources"]
    assert s["name"] == "weightbridge-agent" and s["restartPolicy"] == "Always"
    assert sc["runAsNonRoot"] and sc["runAsUser"] == 65532 and sc["readOnlyRootFilesystem"]
    assert not sc["allowPrivilegeEscalation"] and sc["seccompProfile"] == {"type": "RuntimeDefault"}
    assert sc["capabilities"] == {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if locks else {})}, sc
    assert r["limits"]["memory"] == r["requests"]["memory"]
    assert ("ports" not in s) == host
    # No token of the API server, whatever the pod says; its own is for this object alone.
    volumes = {v["name"]: v for v in q["spec"]["volumes"]}
    mounts = {m["mountPath"]: volumes[m["name"]] for m in s["volumeMounts"]}
    assert set(mounts) == {"/run/weightbridge", "/var/run/secrets/weightbridge",
                           "/var/run/secrets/kubernetes.io/serviceaccount"}, mounts
    assert "emptyDir" in mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
    tokens = [x["serviceAccountToken"]["audience"] for m in mounts.values() for x in
              m.get("projected", {}).get("sources", []) if "serviceAccountToken" in x]
    assert tokens == ["weightbridge.io/rl/grpo"], tokens


def policies(c):
    text = helm.template("weightbridge-operator", "-s", "templates/injection.yaml", *helm.apis(helm.MUTATING))
    c.kubectl("apply", "-f", "-", stdin=text)
    bad = pod("boss")

    def works():
        """the policies are in force"""
        r = c.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(bad), check=False)
        p = c.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod()), check=False).stdout
        return r.returncode != 0 and "weightbridge-agent" in p
    wait_for(works, 30, 0.2)


REFUSED = [
    (pod(inject="true"), "label weightbridge.io/inject is true: it has to be enabled, or disabled"),
    (pod(drop=["name"]), "label weightbridge.io/name is missing: it names the WeightTransfer"),
    (pod(drop=["role"]), "label weightbridge.io/role is missing: it is trainer, rollout or both"),
    (pod("boss"), "label weightbridge.io/role is boss: it has to be trainer, rollout or both"),
    (pod(annotations={L + "containers": "app,nobody"}), "annotation weightbridge.io/containers is app,nobody: the pod has "
     "no container of that name"),
    (pod(annotations={L + "memory": "much"}), "annotation weightbridge.io/memory is much: it has to be a quantity"),
    (pod(annotations={L + "profile": "root"}), "annotation weightbridge.io/profile is root: it has to be Hardened or "
     "IPCLock"),
]


def refusals(c):
    for p, sentence in REFUSED:
        r = c.kubectl("create", "-f", "-", stdin=json.dumps(p), check=False)
        assert r.returncode != 0 and sentence in r.stderr and len(r.stderr.strip().splitlines()) == 1, r.stderr
        r = wbctl(json.dumps(p))
        assert r.returncode == 1 and sentence in r.stderr and not r.stdout, r
    # Without the label, or with the word that says so, a pod is nobody's business.
    for p in (pod(drop=["inject", "name"]), pod(drop=["name"], inject="disabled")):
        q = json.loads(c.raw(PODS + "?dryRun=All", "POST", p))
        assert "initContainers" not in q["spec"]
        assert helm.load(wbctl(json.dumps(p)).stdout)[0] == p


# What each controller sets on its pods beside the template's own labels.
CONTROLLERS = {
    "statefulset": {"apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": "rollout-0"},
    "job": {"batch.kubernetes.io/job-name": "engine-0", "batch.kubernetes.io/job-completion-index": "0"},
    "jobset": {"jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/replicatedjob-name": "rollout"},
    "lws": {"leaderworkerset.sigs.k8s.io/group-index": "1", "leaderworkerset.sigs.k8s.io/worker-index": "0"},
    "rl-loop": {"batch.kubernetes.io/job-name": "counting-engine", "batch.kubernetes.io/job-completion-index": "0"},
    "raycluster": {"ray.io/worker-group-replica-index": "1", "ray.io/group": "rollout", "ray.io/cluster": "grpo"},
    "trainjob": {"jobset.sigs.k8s.io/job-index": "0", "apps.kubernetes.io/pod-index": "0"},
    "volcano": {"volcano.sh/job-name": "grpo", "volcano.sh/task-spec": "engine-0"},
}


def examples(c):
    files = sorted(glob.glob(os.path.join(helm.CHARTS, "examples", "*.yaml")))
    assert [os.path.basename(f)[:-5] for f in files] == sorted(CONTROLLERS)
    for f in files:
        kind = os.path.basename(f)[:-5]
        docs = helm.load(open(f).read())
        c.kubectl("apply", "-f", "-", stdin=json.dumps(docs[0]))  # the WeightTransfer
        key = docs[0]["spec"]["rollout"]["engineLabelKey"]
        r = wbctl(open(f).read())
        assert r.returncode == 0, r.stderr
        roles = set()
        for before, after in zip(helm.pods(docs), helm.pods(helm.load(r.stdout))):
            labels = before.get("metadata", {}).get("labels", {})
            if L + "inject" not in labels:
                assert before == after  # Ray's head
                continue
            roles.add(labels[L + "role"])
            made = []
            for t in (before, after):
                p = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(t)}
                p["metadata"].update(name="p", namespace="rl")
                p["metadata"]["labels"].update(CONTROLLERS[kind])
                made.append(stored(c, p))
            assert not same(*made), (f, same(*made))
            if labels[L + "role"] == "rollout":
                assert key in made[0]["metadata"]["labels"], (f, key)
            is_safe_example(made[0])
        assert roles == {"trainer", "rollout"}, (f, roles)
        c.kubectl("delete", "-f", "-", stdin=json.dumps(docs[0]))


def is_safe_example(q):
    assert [x["name"] for x in q["spec"]["initContainers"]] == ["weightbridge-agent"]
    assert any(m["mountPath"] == "/run/weightbridge" for m in q["spec"]["containers"][0]["volumeMounts"])


def main():
    helm.need()
    with ApiServer() as c:
        c.install_crd()
        c.kubectl("create", "namespace", "rl")
        c.post("/api/v1/namespaces/rl/serviceaccounts", {"metadata": {"name": "default"}})
        policies(c)
        for name, (p, args) in CASES.items():
            a, b, d = stored(c, p), stored(c, of_chart(p, args)), stored(c, of_wbctl(p))
            assert not same(a, b), f"{name}: policy and chart: {same(a, b)}"
            assert not same(a, d), f"{name}: policy and wbctl: {same(a, d)}"
            is_safe(a, "IPCLock" in json.dumps(p), "hostNetwork" in json.dumps(p))
        refusals(c)
        examples(c)
        # A cluster that enforces the restricted profile takes all but the two that need more.
        c.kubectl("label", "namespace", "rl", "pod-security.kubernetes.io/enforce=restricted")
        tight = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]},
                 "seccompProfile": {"type": "RuntimeDefault"}}
        for name, (p, _) in CASES.items():
            p = copy.deepcopy(p)
            for x in p["spec"]["containers"] + p["spec"].get("initContainers", []):
                x["securityContext"] = tight
            r = c.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(p), check=False)
            needs_more = name in ("memory may be locked", "the host's network")
            assert (r.returncode == 0) == (not needs_more), (name, r.stderr)
        print(f"{len(CASES)} pods, each the same in three ways; {len(CONTROLLERS)} examples")


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
