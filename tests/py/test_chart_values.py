# SPDX-License-Identifier: Apache-2.0
"""Values of the charts: each is described, is read by a template, and does what its description says."""
import concurrent.futures
import functools
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from helm import CHARTS, MONITORING, MUTATING, apis, render, template  # noqa: E402

if os.environ.get("WB_BUILD", "build/release").rstrip("/").rsplit("/", 1)[-1] != "release":
    print("charts are rendered once, with release programs")
    sys.exit(77)
OP, LIB, JOB = "weightbridge-operator", "weightbridge", os.path.join("examples", "rl-job")
ALL = apis(MUTATING, *MONITORING)


def one(docs, kind, end=""):
    found = [d for d in docs if d["kind"] == kind and d["metadata"]["name"].endswith(end)]
    assert len(found) == 1, (kind, end, [d["metadata"]["name"] for d in found])
    return found[0]


def sets(values):
    return [x for k, v in values.items() for x in ("--set-json", f"{k}={json.dumps(v)}")]


def values_of(chart):
    """values.yaml as an object: helm reads the YAML."""
    with open(os.path.join(CHARTS, chart, "values.yaml")) as f:
        return helm.load(f.read())[0]


def leaves(v, path=()):
    """Paths of all values but maps that hold others; an empty map is a value."""
    if isinstance(v, dict) and v:
        for k, x in v.items():
            yield from leaves(x, (*path, k))
    else:
        yield ".".join(path), v


# ---- each value is read ----

CERT, SECRET = {"tls.mode": "CertManager"}, {"tls.mode": "ExistingSecret", "tls.existingSecret": "mine"}
JOBS = {"networkPolicy.jobs.namespaces": ["rl"]}
PEER = [{"podSelector": {}}]
NAMED = [{"name": "x"}]
# Value -> another one, and what else must be set for it to matter; others are changed by their type.
CHANGED = {
    OP: {
        "image.digest": ("sha256:" + "a" * 64,), "image.pullPolicy": ("Never",), "imagePullSecrets": (["x"],),
        "global.imagePullSecrets": (["x"],), "tls.mode": ("CertManager",), "tls.existingSecret": ("other", SECRET),
        "tls.certManager.issuerRef": ({"name": "corp"}, CERT), "tls.certManager.duration": ("720h", CERT),
        "logLevel": ("debug",), "service.ipFamilyPolicy": ("SingleStack",), "service.ipFamilies": (["IPv6"],),
        "serviceAccount.name": ("x",), "serviceAccount.create": (False, {"serviceAccount.name": "x"}),
        "resources.requests.cpu": ("7m",), "resources.requests.memory": ("7Mi",), "resources.limits.memory": ("7Gi",),
        "tolerations": (PEER,), "affinity": ({"nodeAffinity": {}},), "podSecurityContext.seccompProfile.type": ("Localhost",),
        "extraEnv": (NAMED,), "extraVolumes": (NAMED,), "extraVolumeMounts": (NAMED,), "dnsPolicy": ("Default",),
        "networkPolicy.pagesFrom": (PEER,), "networkPolicy.jobs.metricsFrom": (PEER, JOBS),
        "networkPolicy.jobs.otherPorts": (False, JOBS), "networkPolicy.jobs.egress": (True, JOBS),
        "networkPolicy.jobs.namespaces": (["rl"],), "podMonitor.interval": ("7s",),
        "serviceMonitor.interval": ("7s", {"serviceMonitor.enabled": True}),
        "serviceMonitor.labels": ({"a": "b"}, {"serviceMonitor.enabled": True}),
        "serviceMonitor.namespace": ("m", {"serviceMonitor.enabled": True}), "injection.mode": ("None",),
        "injection.memory.trainer": ("7Gi",), "injection.memory.rollout": ("7Gi",), "injection.memory.both": ("7Gi",),
        "injection.namespaceSelector": ({"matchLabels": {"a": "b"}},),
        "probes.startup": ({"periodSeconds": 7},), "probes.liveness": ({"periodSeconds": 7},),
        "probes.readiness": ({"periodSeconds": 7},), "metrics.objects": (7,), "budgets": ({"objects": "7"},),
        "planningMemory": ("7Mi",),
        "weightbridge": ({"cpu": "7m"},), "crds.takeOver": (None,),  # tests/cluster/test_release.py
    },
    LIB: {
        "image.digest": ("sha256:" + "a" * 64,), "image.pullPolicy": ("Never",), "operator": ("x.y.svc:1",),
        "rdma.resourceName": ("rdma/hca",), "transport": ("shm,tcp",), "baseMemory": ("7Mi",), "cpu": ("7m",), "logLevel": ("debug",), "runAsUser": (7,),
        "extraResources": ({"example.com/nic": 1},), "extraEnv": (NAMED,), "extraVolumes": (NAMED,), "extraVolumeMounts": (NAMED,),
        "probes.startup": ({"periodSeconds": 7},), "probes.liveness": ({"periodSeconds": 7},),
        "probes.readiness": ({"periodSeconds": 7},),
    },
    JOB: {
        "dnsPolicy": ("Default",), "pullPolicy": ("Never",), "transfer": ({"suspend": True},), "weightbridge.cpu": ("7m",),
        **{f"{side}.{k}": v for side in ("trainer", "rollout") for k, v in {
            "bufferSize": ("7Mi",), "staging": ("7Mi",), "command": (["x"],), "args": (["x"],), "env": (NAMED,),
            "resources.requests.cpu": ("7m",), "resources.requests.memory": ("7Mi",)}.items()},
        "podSecurityContext.seccompProfile.type": ("Localhost",),
        "networkPolicy.metricsFrom": (PEER, {"networkPolicy.enabled": True}),
    },
}


def another(value):
    """Of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return int(value) + 1
    return {str: "changed", list: ["changed"], dict: {"changed": "x"}}[type(value)]


@functools.lru_cache(None)
def rendered(chart, *values):
    return template(chart, *ALL, *values)


def is_read(chart, path, value):
    """Whether the charts render otherwise with another value."""
    if path in CHANGED[chart] and CHANGED[chart][path][0] is None:
        return True
    new, *more = CHANGED[chart].get(path, (another(value),))
    base = more[0] if more else {}
    # The library chart renders nothing by itself.
    shown, prefix = (JOB, "weightbridge.") if chart == LIB else (chart, "")
    return rendered(shown, *sets(base)) != template(shown, *ALL, *sets({**base, prefix + path: new}))


def every_value_is_read():
    todo = [(c, p, v) for c in (OP, LIB, JOB) for p, v in leaves(values_of(c))]
    assert len(todo) > 120, len(todo)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        unread = [f"{c}: {p}" for (c, p, _), read in zip(todo, pool.map(lambda x: is_read(*x), todo)) if not read]
    assert not unread, f"no template reads {unread}"
    print(f"{len(todo)} values change what is rendered")


# ---- each value is described, and known to the schema ----

OBVIOUS = {"replicas", "resources", "podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity",
           "priorityClassName", "imagePullSecrets", "global", "nameOverride", "fullnameOverride", "image", "logLevel",
           "serviceAccount", "podSecurityContext", "podDisruptionBudget"}  # as in every chart


def described(text):
    """Top-level values of values.yaml that have a comment above, or one within."""
    found, comment = set(), False
    for part in re.split(r"\n(?=\n)", text):
        for block in re.findall(r"(?:^#.*\n|^\w.*\n?(?:^ .*\n?)*)+", part.lstrip("\n") + "\n", re.M):
            comment = "#" in block
            found |= {k for k in re.findall(r"^(\w+):", block, re.M) if comment}
    return found


def every_value_is_described():
    for chart in (OP, LIB, JOB):
        with open(os.path.join(CHARTS, chart, "values.yaml")) as f:
            text = f.read()
        missing = set(re.findall(r"^(\w+):", text, re.M)) - described(text) - OBVIOUS
        assert not missing, (chart, missing)
        with open(os.path.join(CHARTS, chart, "values.schema.json")) as f:
            schema = json.load(f)
        for path, _ in leaves(values_of(chart)):
            at = schema
            for k in path.split("."):
                at = at.get("properties", {}).get(k) if at else None
                if at is not None and "properties" not in at:
                    break  # a map of the user's own
            assert at is not None, f"{chart}: the schema does not know {path}"


# ---- what they do ----

def deployment(**values):
    return one(render(OP, *sets({k.replace("__", "."): v for k, v in values.items()})), "Deployment")["spec"]


def labels_are_everywhere():
    """Also where another value gives labels, and none of them can break a selector."""
    common = {"team": "rl", "cost/center": "7", "app.kubernetes.io/name": "mine", "grafana_dashboard": "no"}
    docs = render(OP, *ALL, *sets({"commonLabels": common, "podLabels": {"team": "pods"}, "serviceMonitor.enabled": True,
                                   "podMonitor.labels": {"team": "m"}, "networkPolicy.jobs.namespaces": ["rl"],
                                   "tls.mode": "CertManager"}))
    assert len({d["kind"] for d in docs}) > 15, {d["kind"] for d in docs}
    for d in docs:
        got, is_test = d["metadata"]["labels"], d["metadata"]["name"].endswith("-check")
        assert got["cost/center"] == "7" and got.get("app.kubernetes.io/name") == (None if is_test else OP), d["metadata"]
        assert got["team"] == ("m" if d["kind"] == "PodMonitor" else "rl"), d["metadata"]
    assert one(docs, "ConfigMap")["metadata"]["labels"]["grafana_dashboard"] == "1"
    spec = one(docs, "Deployment")["spec"]
    got = spec["template"]["metadata"]["labels"]
    assert got["team"] == "pods" and got["cost/center"] == "7"
    assert spec["selector"]["matchLabels"].items() <= got.items() and "team" not in spec["selector"]["matchLabels"]


def pod_is_as_wanted():
    spec = deployment(extraEnv=[{"name": "A", "value": "b"}], extraVolumes=[{"name": "v", "emptyDir": {}}],
                      extraVolumeMounts=[{"name": "v", "mountPath": "/v"}], revisionHistoryLimit=3, dnsPolicy="Default",
                      tls__mode="ExistingSecret", tls__existingSecret="mine")
    pod, c = spec["template"]["spec"], spec["template"]["spec"]["containers"][0]
    assert spec["revisionHistoryLimit"] == 3 and pod["dnsPolicy"] == "Default" and "hostNetwork" not in pod
    assert c["env"][-1] == {"name": "A", "value": "b"} and len(c["env"]) > 1
    assert [v["name"] for v in pod["volumes"]] == ["tls", "v"] == [m["name"] for m in c["volumeMounts"]]
    pod = deployment(extraVolumes=[{"name": "v", "emptyDir": {}}])["template"]["spec"]
    assert [v["name"] for v in pod["volumes"]] == ["v"] and "volumeMounts" not in pod["containers"][0]
    assert "volumes" not in deployment()["template"]["spec"] and "dnsPolicy" not in deployment()["template"]["spec"]


def jobs_pods_are_as_wanted():
    """Labels of the user's on everything, and none in place of those that choose; DNS as the network wants it, or he."""
    common = {"team": "rl", "cost/center": "7", "app": "mine", "weightbridge.io/role": "both"}
    sidecar = {"by": "library", "weightbridge.io/name": "x"}
    docs = render(JOB, *sets({"commonLabels": common, "weightbridge.commonLabels": sidecar, "networkPolicy.enabled": True}),
                  release="grpo")
    assert {d["kind"] for d in docs} == {"NetworkPolicy", "WeightTransfer", "Service", "StatefulSet"}
    for d in docs:
        assert d["metadata"]["labels"] == common, d["metadata"]
        if d["kind"] == "StatefulSet":
            got, name = d["spec"]["template"]["metadata"]["labels"], d["metadata"]["name"]
            assert got == {"team": "rl", "cost/center": "7", "by": "library", "app": name, "weightbridge.io/name": "grpo",
                           "weightbridge.io/role": name.removeprefix("grpo-")}, got
            assert d["spec"]["selector"]["matchLabels"] == {"app": name}
    for values, policy in (({}, None), ({"hostNetwork": True}, "ClusterFirstWithHostNet"), ({"dnsPolicy": "Default"}, "Default"),
                           ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, "ClusterFirst")):
        for p in helm.pods(render(JOB, *sets(values))):
            assert p["spec"].get("dnsPolicy") == policy, (values, p["spec"])


def hosts_network():
    """Two replicas on two nodes could never be replaced by a third."""
    spec = deployment(hostNetwork=True)
    pod = spec["template"]["spec"]
    assert pod["hostNetwork"] is True and pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment()["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment(hostNetwork=True, dnsPolicy="Default")["template"]["spec"]["dnsPolicy"] == "Default"


def probes():
    """Field by field; another handler takes the place of the chart's."""
    handlers = {"exec", "httpGet", "tcpSocket", "grpc"}
    def check(was, got):
        for p in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert len(handlers & set(got[p])) == 1, got[p]
        assert got["startupProbe"] == was["startupProbe"]
        assert got["livenessProbe"] == {**was["livenessProbe"], "periodSeconds": 33}
        assert {k: v for k, v in got["readinessProbe"].items() if k in handlers} == {"tcpSocket": {"port": 1}}
        assert {k: v for k, v in got["readinessProbe"].items() if k not in handlers} == \
            {k: v for k, v in was["readinessProbe"].items() if k not in handlers}
    new = {"probes.liveness": {"periodSeconds": 33}, "probes.readiness": {"tcpSocket": {"port": 1}}}
    container = lambda v: one(render(OP, *sets(v)), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    check(container({}), container(new))
    agent = lambda v: helm.pods(render(JOB, *sets(v)))[0]["spec"]["initContainers"][0]
    check(agent({}), agent({"weightbridge." + k: v for k, v in new.items()}))
    for c in container({}), agent({}):
        ready, live = c["readinessProbe"], c["livenessProbe"]
        assert ready["failureThreshold"] >= 2, ready  # one miss, beside attackers or on a busy node, says nothing
        assert live["periodSeconds"] * live["failureThreshold"] >= 30, live
    for bad in ({"probes.liveness": {"period": 3}}, {"weightbridge.probes.ready": {}}, {"weightbridge.extraEnv": [{"value": "x"}]},
                {"dnsPolicy": "None"}, {"metrics.objects": 129}, {"commonLabels": {"a": 1}}, {"networkPolicy.jobs.namespaces": ["A"]}):
        assert template(OP, *sets(bad), check=False).returncode != 0, bad


def sidecar_gets_more():
    """By the library chart and by the policy."""
    more = {"weightbridge.extraEnv": [{"name": "A", "value": "b"}], "weightbridge.extraVolumes": [{"name": "v", "emptyDir": {}}],
            "weightbridge.extraVolumeMounts": [{"name": "v", "mountPath": "/v"}]}
    for p in helm.pods(render(JOB, *sets(more))):
        agent = p["spec"]["initContainers"][0]
        assert agent["env"][-1] == {"name": "A", "value": "b"} and agent["volumeMounts"][-1]["name"] == "v", agent
        assert [v["name"] for v in p["spec"]["volumes"]].count("v") == 1
    text = json.dumps(one(render(OP, *ALL, *sets(more)), "MutatingAdmissionPolicy"))
    for part in (r'\"name\": dyn(\"A\")', r'\"mountPath\": dyn(\"/v\")', r'\"name\": dyn(\"v\")'):
        assert part in text, (part, text)


def service_monitor():
    assert not [d for d in render(OP, *ALL) if d["kind"] == "ServiceMonitor"]
    docs = render(OP, *ALL, *sets({"serviceMonitor.enabled": True, "serviceMonitor.labels": {"release": "prom"},
                                   "serviceMonitor.namespace": "monitoring"}))
    m = one(docs, "ServiceMonitor")
    assert m["metadata"]["labels"]["release"] == "prom" and m["metadata"]["namespace"] == "monitoring"
    assert m["spec"]["namespaceSelector"] == {"matchNames": ["system"]}
    want, port = m["spec"]["selector"]["matchLabels"], m["spec"]["endpoints"][0]["port"]
    found = [d for d in docs if d["kind"] == "Service" and want.items() <= d["metadata"]["labels"].items()]
    assert [[p["name"] for p in d["spec"]["ports"]] for d in found] == [[port]], found
    # Not asked twice; the agents have no Service.
    assert [d["metadata"]["name"] for d in docs if d["kind"] == "PodMonitor"] == ["wb-weightbridge-operator-agents"]
    # Whether the kind is known or not: helm says what is missing.
    assert one(render(OP, *sets({"serviceMonitor.enabled": True})), "ServiceMonitor")


# ---- network policies: what the rules say of a connection ----

AGENT, OTHER_AGENT, STRANGER = {"weightbridge.io/name": "grpo"}, {"weightbridge.io/name": "ppo"}, {"app": "x"}


def selects(selector, labels):
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and \
        all(e["key"] in labels for e in selector.get("matchExpressions", []) if e["operator"] == "Exists")


def allowed(rules, way, port, peer, protocol="TCP", namespace="rl"):
    """Whether one of the rules lets a connection to a port pass; peer: labels of the pod at its other end."""
    for r in rules:
        if not any(p.get("protocol", "TCP") == protocol and p["port"] <= port <= p.get("endPort", p["port"]) for p in r["ports"]):
            continue
        peers = r.get(way)
        if peers is None or any(
                selects(p["podSelector"], peer) and (namespace == "rl" if "namespaceSelector" not in p else
                                                     selects(p["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}))
                for p in peers):
            return True
    return False


def policies_of_jobs():
    assert not [d for d in render(OP) if d["kind"] == "NetworkPolicy" and d["metadata"]["name"].endswith("-jobs")]
    assert not [d for d in render(JOB) if d["kind"] == "NetworkPolicy"]
    prometheus = {"app": "prometheus"}
    base = {"networkPolicy.jobs.namespaces": ["rl", "rl-2"], "networkPolicy.jobs.egress": True}
    docs = [d for d in render(OP, *sets(base)) if d["metadata"]["name"] == "system-wb-weightbridge-operator-jobs"]
    assert [d["metadata"]["namespace"] for d in docs] == ["rl", "rl-2"]
    spec = docs[0]["spec"]
    assert selects(spec["podSelector"], AGENT) and not selects(spec["podSelector"], STRANGER)
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    into, out = spec["ingress"], spec["egress"]
    for port, peer, want in ((7444, AGENT, True), (7444, OTHER_AGENT, True), (7444, STRANGER, False), (9402, STRANGER, True),
                             (1, STRANGER, True), (7443, STRANGER, True), (7445, STRANGER, True), (9401, STRANGER, True),
                             (9403, STRANGER, True), (65535, STRANGER, True)):
        assert allowed(into, "from", port, peer) is want, (port, peer)
    assert not allowed(into, "from", 7444, AGENT, namespace="elsewhere") and allowed(into, "from", 4791, STRANGER, "UDP")
    operator = one(render(OP), "Deployment")["spec"]["template"]["metadata"]["labels"]
    for port, peer, ns, want in ((7443, operator, "system", True), (7443, operator, "elsewhere", False), (7443, STRANGER, "rl", False),
                                 (7444, AGENT, "rl", True), (7444, STRANGER, "rl", False), (53, STRANGER, "kube-system", True),
                                 (443, STRANGER, "x", True)):
        assert allowed(out, "to", port, peer, namespace=ns) is want, (port, peer, ns)
    spec = one(render(OP, *sets({"networkPolicy.jobs.namespaces": ["rl"], "networkPolicy.jobs.otherPorts": False,
                                 "networkPolicy.jobs.metricsFrom": [{"podSelector": {"matchLabels": prometheus}}]})),
               "NetworkPolicy", "-jobs")["spec"]
    assert spec["policyTypes"] == ["Ingress"] and "egress" not in spec
    for port, peer, want in ((7444, AGENT, True), (9402, prometheus, True), (9402, STRANGER, False), (22, AGENT, False)):
        assert allowed(spec["ingress"], "from", port, peer) is want, (port, peer)
    # The job's own chart: of one object.
    spec = one(render(JOB, *sets({"networkPolicy.enabled": True}), release="grpo"), "NetworkPolicy")["spec"]
    assert selects(spec["podSelector"], AGENT) and not selects(spec["podSelector"], OTHER_AGENT)
    assert allowed(spec["ingress"], "from", 7444, AGENT) and not allowed(spec["ingress"], "from", 7444, OTHER_AGENT)
    assert allowed(spec["ingress"], "from", 29500, OTHER_AGENT)


def no_policy_names_an_operator_that_it_cannot_match():
    """Labels of a pod on the host's network match nothing: agents would be cut off from it."""
    closed = {"networkPolicy.jobs.namespaces": ["rl"], "networkPolicy.jobs.egress": True}
    r = helm.template(OP, *sets({**closed, "hostNetwork": True}), check=False)
    assert r.returncode != 0 and "networkPolicy.jobs.egress: false" in r.stderr and "host's network" in r.stderr, r.stderr
    for values in (closed, {**closed, "hostNetwork": True, "networkPolicy.jobs.egress": False},
                   {**closed, "hostNetwork": True, "networkPolicy.jobs.namespaces": []}):
        assert render(OP, *sets(values)), values


def nothing_is_printed_but_what_was_asked_for():
    """helm.run fails when a command writes to stderr, as helm's warnings are."""
    for c in (OP, LIB, JOB):
        assert "[WARNING]" not in helm.run("lint", "--strict", os.path.join(CHARTS, c))
    found = subprocess.run(["find", CHARTS, "-type", "l"], check=True, capture_output=True, text=True).stdout
    assert not found, f"helm warns of links: {found}"


def main():
    helm.need()
    for step in (every_value_is_read, every_value_is_described, labels_are_everywhere, pod_is_as_wanted, jobs_pods_are_as_wanted, hosts_network, probes,
                 sidecar_gets_more, service_monitor, policies_of_jobs, no_policy_names_an_operator_that_it_cannot_match,
                 nothing_is_printed_but_what_was_asked_for):
        step()
        print(step.__name__, flush=True)


if __name__ == "__main__":
    sys.exit(main())
