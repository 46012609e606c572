# SPDX-License-Identifier: Apache-2.0
"""Charts without a cluster: what they render, that it is always the same, that typos are caught, and that
dashboard and alerts ask for what daemons show."""
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from helm import CHARTS, MONITORING, MUTATING, TOP, apis, render, template  # noqa: E402

BUILD = os.environ.get("WB_BUILD", "build/release")
if BUILD.rstrip("/").rsplit("/", 1)[-1] != "release":
    # Charts are the same whatever the programs were built with, and a preloaded sanitizer breaks helm's shell.
    print("charts are rendered once, with release programs")
    sys.exit(77)
OP, LIB, JOB = "weightbridge-operator", "weightbridge", os.path.join("examples", "rl-job")
BIN = os.path.join(BUILD, "bin")
ALL = apis(MUTATING, *MONITORING)
VALUES = [[], ALL, ["--set", "watchNamespace=rl"], ["--set", "watchNamespaces={rl,rl-2}"], ["--set", "tls.mode=CertManager"],
          ["--set", "tls.mode=ExistingSecret,tls.existingSecret=mine"]]


def one(docs, kind, end=""):
    found = [d for d in docs if d["kind"] == kind and d["metadata"]["name"].endswith(end)]
    assert len(found) == 1, (kind, end, [d["metadata"]["name"] for d in found])
    return found[0]


def lint():
    for c in (OP, LIB, JOB):
        helm.run("lint", "--strict", os.path.join(CHARTS, c))


def same_bytes():
    for v in VALUES:
        assert template(OP, *v) == template(OP, *v)
    assert template(JOB) == template(JOB)


def crd():
    text = open(os.path.join(TOP, "crds", "weighttransfer.yaml")).read()
    assert text == open(os.path.join(CHARTS, OP, "files", "weighttransfer.yaml")).read(), "copy crds/weighttransfer.yaml"
    want = helm.load(text)[0]
    got = one(render(OP), "CustomResourceDefinition")
    assert got["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    got["metadata"].pop("labels")
    assert got == want
    assert "annotations" not in one(render(OP, "--set", "crds.keep=false"), "CustomResourceDefinition")["metadata"]
    assert not [d for d in render(OP, "--set", "crds.enabled=false") if d["kind"] == "CustomResourceDefinition"]


def flat(rules):
    """{(group, resource, names): verbs}"""
    return {(g, r, tuple(x.get("resourceNames", []))): sorted(x["verbs"]) for x in rules for g in x["apiGroups"]
            for r in x["resources"]}


def rights():
    """What a test proves to be needed, and nothing else; in one namespace all but one rule are a Role's."""
    role = helm.load(open(os.path.join(TOP, "operator-shim", "role.yaml")).read())
    want = {d["kind"]: flat(d["rules"]) for d in role}
    got = {}
    docs = render(OP, "--set", "fullnameOverride=weightbridge-operator,rbac.aggregate=false,metrics.auth=true")
    for d in docs:
        if d["kind"] in ("Role", "ClusterRole") and not d["metadata"]["name"].endswith("-metrics"):
            got.setdefault(d["kind"], {}).update(flat(d["rules"]))
    assert got == want, (got, want)
    scrape = [d for d in docs if d["kind"] == "ClusterRole" and d["metadata"]["name"].endswith("-metrics")]
    assert sorted(u for d in scrape for r in d["rules"] for u in r["nonResourceURLs"]) == ["/metrics", "/metrics/weightbridge"], scrape
    flags = [d["spec"]["template"]["spec"]["containers"][0]["args"] for d in docs if d["kind"] == "Deployment"]
    assert "--metrics-auth" in flags[0], flags
    docs = render(OP, "--set", "rbac.aggregate=false")  # not asked for: nothing of it
    assert "--metrics-auth" not in str(docs)
    docs = render(OP, "--set", "watchNamespace=rl,rbac.aggregate=false")
    assert "subjectaccessreviews" not in str(docs)
    cluster = [d for d in docs if d["kind"] == "ClusterRole"]
    assert [flat(d["rules"]) for d in cluster] == [{("authentication.k8s.io", "tokenreviews", ()): ["create"]}]
    assert {d["metadata"]["namespace"] for d in docs if d["kind"] == "Role"} == {"rl", "system"}
    docs += render(OP, "--set", "watchNamespaces={rl-1,rl-2},rbac.aggregate=false", release="some")
    assert {d["metadata"]["namespace"] for d in docs if d["kind"] == "Role"} == {"rl", "rl-1", "rl-2", "system"}
    roles = {(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in docs if d["kind"].endswith("Role")}
    for b in docs:
        if b["kind"].endswith("Binding"):
            ref = b["roleRef"]
            assert (ref["kind"], b["metadata"].get("namespace"), ref["name"]) in roles, b
            assert [(x["kind"], x["namespace"]) for x in b["subjects"]] == [("ServiceAccount", "system")], b
            assert b["subjects"][0]["name"] in ("wb-weightbridge-operator", "some-weightbridge-operator"), b


def metrics_with_a_token():
    """One value: operator and injected agents ask for one, and each monitor names a Secret of an account with that right alone."""
    docs = render(OP, "--set", "metrics.auth=true", *ALL)
    by = {(d["kind"], d["metadata"]["name"]): d for d in docs}
    asked = 0
    for what, path in (("metrics", "/metrics"), ("agent-metrics", "/metrics/weightbridge")):
        name, cluster = f"wb-weightbridge-operator-{what}", f"system-wb-weightbridge-operator-{what}"
        secret, account = by["Secret", name], by["ServiceAccount", name]
        assert secret["type"] == "kubernetes.io/service-account-token"
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == account["metadata"]["name"]
        assert by["ClusterRole", cluster]["rules"] == [{"nonResourceURLs": [path], "verbs": ["get"]}]
        own = [d for d in docs if d["kind"].endswith("Binding") and name in str(d.get("subjects"))]
        assert [d["roleRef"]["name"] for d in own] == [cluster], own
        for d in docs:
            if d["kind"] in ("PodMonitor", "ServiceMonitor"):
                ends = d["spec"].get("podMetricsEndpoints") or d["spec"]["endpoints"]
                named = [e["authorization"]["credentials"] for e in ends]
                is_agents = d["metadata"]["name"].endswith("-agents")
                if is_agents == (what == "agent-metrics"):
                    assert named == [{"name": name, "key": "token"}] and d["metadata"]["namespace"] == secret["metadata"]["namespace"], d
                    asked += 1
    assert asked >= 2, asked
    policy = [d for d in docs if d["kind"] == "MutatingAdmissionPolicy"]
    assert policy and "--metrics-auth" in str(policy)
    own = "metrics.auth=true,metrics.authorization.credentials.name=a,metrics.agentsAuthorization.credentials.name=b"
    docs = render(OP, "--set", own, *ALL)
    assert not [d for d in docs if d["kind"] == "Secret" and d.get("type") == "kubernetes.io/service-account-token"]
    assert "--metrics-auth" in str(render(JOB, "--set", "weightbridge.metricsAuth=true"))
    assert "--no-bench" in str(render(JOB, "--set", "weightbridge.bench=false"))
    policy = [d for d in render(OP, "--set", "weightbridge.bench=false", *ALL) if d["kind"] == "MutatingAdmissionPolicy"]
    assert policy and "--no-bench" in str(policy)
    for docs in (render(OP, *ALL), render(JOB)):  # not asked for: nothing of it
        assert "--no-bench" not in str(docs)
        assert "--metrics-auth" not in str(docs) and "service-account-token" not in str(docs)


TYPOS = ["replica=3", "image.pullpolicy=Never", "tls.mode=operator", "injection.memory.rolout=1Gi", "replicas=two",
         "podMonitor.interval=30", "weightbridge.profile=IPCLock", "weightbridge.rdma.resourceName=hca", "weightbridge.image.tga=1", "weightbridge.bench=never", "watchNamespace=Rl", "watchNamespaces={Rl}", "watchNamespaces={a,a}", "watchNamespaces=a",
         "image.digest=sha256:12", "networkPolicy.enable=false", "weightbridge.runAsUser=0",
         "service.ipFamilyPolicy=DualStack", "service.ipFamilies[0]=IPv5", "service.ipFamily=IPv4"]


def typos():
    for t in TYPOS:
        r = template(OP, "--set", t, check=False)
        assert r.returncode != 0 and "schema" in r.stderr, (t, r.stderr[-300:])
    for t in ("trainer.replica=2", "rolout.replicas=1", "weightbridge.cpuu=1"):
        assert template(JOB, "--set", t, check=False).returncode != 0, t
    r = template(OP, "--set", "tls.mode=ExistingSecret", check=False)
    assert "tls.existingSecret is needed" in r.stderr
    r = template(OP, "--set", "watchNamespaces={a},watchNamespace=b", check=False)
    assert r.returncode != 0 and "give watchNamespace or watchNamespaces, not both" in r.stderr, r.stderr


def identity(d):
    return d["apiVersion"], d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]


def no_collisions():
    """Two releases, also of one name, each for a namespace of its own."""
    def things(release, ns, watch):
        docs = render(OP, "--set", f"watchNamespace={watch}", *ALL, release=release, ns=ns)
        return {identity(d) for d in docs if d["kind"] != "CustomResourceDefinition"}
    a = things("wb", "one", "rl-1")
    for other in (things("wb", "two", "rl-2"), things("wb2", "one", "rl-1"), things("wb", "one-x", "rl-1")):
        assert not a & other, a & other
    for d in render(OP, "--set", "watchNamespace=rl-1", *ALL):
        if d["kind"].endswith("AdmissionPolicyBinding"):
            assert d["spec"]["matchResources"]["namespaceSelector"] == {
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["rl-1"]}]}
    # One object once; every name one that Kubernetes takes.
    for v in VALUES:
        ids = [identity(d) for d in render(OP, *v)]
        assert len(ids) == len(set(ids))
        assert all(re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", i[3]) and len(i[3]) < 254 for i in ids), ids


def images():
    digest = "sha256:" + "a" * 64
    for args, want in (([], "localhost/weightbridge/operator:0.1.0"),
                       (["--set", "image.tag=7"], "localhost/weightbridge/operator:7"),
                       (["--set", "global.imageRegistry=r.example:5000"], "r.example:5000/weightbridge/operator:0.1.0"),
                       (["--set", f"image.tag=7,image.digest={digest}"], f"localhost/weightbridge/operator@{digest}")):
        docs = render(OP, *args, "--set", "global.imagePullSecrets={a},imagePullSecrets={b}", *apis(MUTATING))
        for p in helm.pods(docs):
            assert [c["image"] for c in p["spec"]["containers"]] == [want], p
            assert p["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        text = json.dumps(one(docs, "MutatingAdmissionPolicy"))
        assert f"{'r.example:5000' if 'r.example' in want else 'localhost'}/weightbridge/agent:0.1.0" in text
    p = helm.pods(render(JOB, "--set", "global.imageRegistry=r.example,weightbridge.image.tag=9"))
    assert {x["spec"]["initContainers"][0]["image"] for x in p} == {"r.example/weightbridge/agent:9"}


def restricted(pod):
    """What Pod Security's restricted profile asks for."""
    spec = pod["spec"]
    outer = spec.get("securityContext", {})
    for c in spec["containers"] + spec.get("initContainers", []):
        s = {**outer, **c.get("securityContext", {})}
        assert s["runAsNonRoot"] and s["runAsUser"] > 0 and not s["allowPrivilegeEscalation"], c["name"]
        assert s["capabilities"] == {"drop": ["ALL"]} and s["seccompProfile"]["type"] == "RuntimeDefault"
        assert s["readOnlyRootFilesystem"] and c["resources"]["requests"] and c["resources"].get("limits", {"memory"})
    assert not spec.get("hostPID") and not any("hostPath" in v for v in spec.get("volumes", []))


def options_of(program):
    return set(re.findall(r"^  (--[a-z-]+)", subprocess.run([os.path.join(BIN, program), "--help"], check=True,
                                                            capture_output=True, text=True).stdout, re.M))


def families():
    """The Services' families are values, and agents announce every address of their pod."""
    services = lambda *v: [d["spec"] for d in render(OP, *v) if d["kind"] == "Service"]
    assert {s["ipFamilyPolicy"] for s in services()} == {"PreferDualStack"}
    assert not any("ipFamilies" in s for s in services())
    for s in services("--set", "service.ipFamilyPolicy=SingleStack,service.ipFamilies={IPv6}"):
        assert (s["ipFamilyPolicy"], s["ipFamilies"]) == ("SingleStack", ["IPv6"]), s
    for p in helm.pods(render(JOB)):
        agent = next(c for c in p["spec"]["initContainers"] if c["name"] == "weightbridge-agent")
        assert "--advertise=$(POD_IPS)" in agent["args"]
        assert [e["valueFrom"]["fieldRef"]["fieldPath"] for e in agent["env"] if e["name"] == "POD_IPS"] == ["status.podIPs"]


def pods_run():
    """Pods are restricted, and give daemons options that these have."""
    known = {"operator": options_of("weightbridge-operator"), "weightbridge-agent": options_of("weightbridge-agent")}
    n = 0
    for docs in [render(OP, *v) for v in VALUES] + [render(JOB)]:
        for p in helm.pods(docs):
            restricted(p)
            for c in p["spec"]["containers"] + p["spec"].get("initContainers", []):
                words = c.get("args", []) + [w for k in ("startupProbe", "livenessProbe", "readinessProbe")
                                             for w in c.get(k, {}).get("exec", {}).get("command", [])]
                got = {w.split("=")[0] for w in words if w.startswith("--")}
                assert got <= known.get(c["name"], got), (c["name"], got - known[c["name"]])
                n += len(got)
    assert n > 80


def rdma():
    """A device of the plugin for the sidecar alone, without privilege; to lock memory only where it is asked for."""
    device = "rdma/hca_shared_devices_a"
    for p in helm.pods(render(JOB, "--set", f"weightbridge.rdma.resourceName={device}")):
        restricted(p)
        for c in p["spec"]["containers"] + p["spec"]["initContainers"]:
            n = int(c["name"] == "weightbridge-agent")
            for r in c["resources"].get("requests", {}), c["resources"].get("limits", {}):
                assert int(r.get(device, 0)) == n, (c["name"], c["resources"])
    for p in helm.pods(render(JOB, "--set", "weightbridge.rdma.ipcLock=true")):
        s = p["spec"]["initContainers"][0]
        assert s["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}, s["securityContext"]
        assert s["command"] == ["/usr/bin/weightbridge-agent-ipclock"] and s["securityContext"]["privileged"] is False
    policy = json.dumps(one(render(OP, *ALL, "--set", f"weightbridge.rdma.resourceName={device}"), "MutatingAdmissionPolicy"))
    assert policy.count(device) == 2, "pods that the policy injects into ask for it, too"
    assert "'Hardened') == 'IPCLock'" in policy.replace('\\"', "'"), policy


def gates():
    kinds = {d["kind"] for d in render(OP)}
    assert not kinds & {"PodMonitor", "PrometheusRule", "MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}
    assert {"PodMonitor", "PrometheusRule", "MutatingAdmissionPolicy"} <= {d["kind"] for d in render(OP, *ALL)}
    kinds = {d["kind"] for d in render(OP, *ALL, "--set", "injection.mode=None,podMonitor.enabled=false,"
                                       "prometheusRule.enabled=false,dashboard.enabled=false,networkPolicy.enabled=false")}
    assert not kinds & {"PodMonitor", "PrometheusRule", "MutatingAdmissionPolicy", "NetworkPolicy"}
    docs = render(OP)
    assert one(docs, "Deployment")["spec"]["replicas"] == 2 and one(docs, "PodDisruptionBudget")
    policy = one(docs, "NetworkPolicy")["spec"]
    labels = one(docs, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items() and policy["podSelector"]["matchLabels"]
    for s in (d for d in docs if d["kind"] == "Service"):
        assert s["spec"]["selector"].items() <= labels.items()
    check = one(docs, "Pod", "-check")
    assert not one(docs, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= check["metadata"]["labels"].items()


MEMORY = [  # role, workers, bufferSize, staging -> Mi; 256 Mi beside
    ("trainer", 1, None, None, 1024 + 256), ("rollout", 1, None, None, 4096 + 256), ("rollout", 8, "512Mi", None, 4096 + 256),
    ("trainer", 2, "1.5Gi", "2Gi", 2 * 3584 + 256), ("rollout", 3, "1G", "0", 3 * 1000000000 / 2**20 + 256),
]


def memory():
    for role, workers, buffer, staging, want in MEMORY:
        args = [f"{role}.workersPerPod={workers}", f"{role}.bufferSize={buffer or ''}", f"{role}.staging={staging or '0'}"]
        if not buffer:
            args[1] = f"{role}.bufferSize={'1Gi' if role == 'trainer' else '4Gi'}"
        pod = one(render(JOB, *[x for a in args for x in ("--set-string" if "staging" in a else "--set", a)]),
                  "StatefulSet", role)["spec"]["template"]
        r = pod["spec"]["initContainers"][0]["resources"]
        assert r["limits"]["memory"] == r["requests"]["memory"] == f"{-int(-want // 1)}Mi", (role, r, want)


def generated():
    r = subprocess.run([os.path.join(CHARTS, "generate.sh"), helm.need(), "--check"], capture_output=True, text=True)
    assert r.returncode == 0, "run charts/generate.sh HELM\n" + r.stdout + r.stderr


# ---- metrics ----

def scraped():
    """Names of the metrics that an operator and an agent show."""
    names = set()
    with tempfile.TemporaryDirectory() as d:
        key, files = os.path.join(d, "key"), [os.path.join(d, n) for n in ("op", "agent")]
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(secrets.token_hex(32))
        common = ["--psk-file", key, "--http", "127.0.0.1:0", "--log-level", "error"]
        programs = [
            subprocess.Popen([os.path.join(BIN, "weightbridge-operator"), "--file",
                              os.path.join(TOP, "crds", "examples", "minimal.yaml"), "--listen", "127.0.0.1:0",
                              "--port-file", files[0], *common]),
            subprocess.Popen([os.path.join(BIN, "weightbridge-agent"), "--name", "a", "--operator", "127.0.0.1:1",
                              "--socket", os.path.join(d, "s"), "--listen", "127.0.0.1:0", "--port-file", files[1],
                              *common])]
        try:
            for p, file in zip(programs, files):
                end = time.monotonic() + 20
                while not os.path.exists(file):
                    assert p.poll() is None and time.monotonic() < end
                    time.sleep(0.02)
                port = dict(line.split() for line in open(file))["http"]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as r:
                    for line in r.read().decode().splitlines():
                        if line.startswith("# TYPE "):
                            name, kind = line.split()[2:4]
                            names |= {name} if kind != "histogram" else {name + s for s in ("_bucket", "_sum", "_count")}
        finally:
            for p in programs:
                p.kill()
                p.wait()
    return names


def asked(text):
    return set(re.findall(r"\bwb_[a-z_]+", text))


def metrics(docs, rules):
    names = scraped()
    board = json.loads(one(docs, "ConfigMap", "-dashboard")["data"]["weightbridge.json"])
    asks = [t["expr"] for p in board["panels"] for t in p["targets"]]
    assert len(asks) > 20 and all(asked(a) for a in asks)
    queries = asks + [json.dumps(board["templating"])] + [r["expr"] for g in rules["groups"] for r in g["rules"]]
    for q in queries:
        assert asked(q) <= names, (q, asked(q) - names)
    # Nothing that daemons show is looked at by nobody without a reason: at least two thirds are.
    shown = {re.sub(r"_(bucket|sum|count)$", "", n) for n in names}
    used = {re.sub(r"_(bucket|sum|count)$", "", n) for q in queries for n in asked(q)}
    assert len(used & shown) * 2 > len(shown), sorted(shown - used)


def promtool():
    """promtool of Debian's prometheus: installed, or taken out of the package, which is kept."""
    for d in [*os.environ.get("PATH", "").split(":"), os.path.join(helm.cache(), "promtool", "usr", "bin")]:
        if os.access(os.path.join(d, "promtool"), os.X_OK):
            return os.path.join(d, "promtool")
    to = os.path.join(helm.cache(), "promtool")
    with tempfile.TemporaryDirectory() as d:
        try:
            subprocess.run(["apt-get", "download", "prometheus"], cwd=d, check=True, capture_output=True, timeout=120)
            subprocess.run(["dpkg-deb", "-x", os.path.join(d, os.listdir(d)[0]), to], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError, IndexError):
            return None
    return os.path.join(to, "usr", "bin", "promtool")


def series(name, values, **labels):
    inside = ",".join(f'{k}="{v}"' for k, v in {"namespace": "system", "pod": "wb-weightbridge-operator-1", **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": re.sub(r"(\d)x", r"\1+0x", values)}


A_DAY = "x1440"
# What one object shows for a day -> the alerts that then fire.
FIRE = [
    ("ready", [series("wb_object_state", "1" + A_DAY, object_namespace="rl", object="a", state="Ready"),
               series("wb_object_state", "0" + A_DAY, object_namespace="rl", object="a", state="NotReady")], set()),
    ("not ready", [series("wb_object_state", "1" + A_DAY, object_namespace="rl", object="a", state="NotReady")],
     {("WeightBridgeObjectsNotReady", "rl", "a")}),
    ("suspended", [series("wb_object_state", "0" + A_DAY, object_namespace="rl", object="a", state="NotReady"),
                   series("wb_object_state", "1" + A_DAY, object_namespace="rl", object="a", state="Suspended"),
                   series("wb_object_engines", "0" + A_DAY, object_namespace="rl", object="a", state="Behind"),
                   series("wb_object_engines", "2" + A_DAY, object_namespace="rl", object="a", state="Suspended")], set()),
    ("behind", [series("wb_object_engines", "1" + A_DAY, object_namespace="rl", object="a", state="Behind")],
     {("WeightBridgeEnginesBehind", "rl", "a")}),
    ("a transfer fails", [series("wb_object_transfers_total", "0x1195 1x244", object_namespace="rl", object="a", result="Torn")],
     {("WeightBridgeTransfersFail", "rl", "a")}),
    ("one is superseded", [series("wb_object_transfers_total", "0x1195 1x244", object_namespace="rl", object="a", result="Superseded")],
     set()),
    ("another release's", [series("wb_object_state", "1" + A_DAY, namespace="elsewhere", object="a", state="NotReady")], set()),
]
BY_OBJECT = ("WeightBridgeObjectsNotReady", "WeightBridgeEnginesBehind", "WeightBridgeTransfersFail")


def fires(tool, folder, rules):
    """promtool plays a day of each; every alert by object that must not fire is asked about, too."""
    file = os.path.join(folder, "rules.yaml")
    tests = []
    for name, shown, want in FIRE:
        tests.append({"name": name, "interval": "1m", "input_series": [{**x, "values": x["values"]} for x in shown],
                      "alert_rule_test": []})
        for alert in BY_OBJECT:
            rule = next(r for g in rules["groups"] for r in g["rules"] if r["alert"] == alert)
            got = [{"exp_labels": {"object_namespace": n, "object": o, **rule["labels"]},
                    "exp_annotations": {k: v.replace("{{ $labels.object_namespace }}", n).replace("{{ $labels.object }}", o)
                                        .replace("{{ $value }}", "1") for k, v in rule["annotations"].items()}}
                   for a, n, o in want if a == alert]
            tests[-1]["alert_rule_test"].append({"eval_time": "20h", "alertname": alert, "exp_alerts": got})
    test = os.path.join(folder, "test.yaml")
    with open(test, "w") as f:
        json.dump({"rule_files": [file], "tests": tests}, f)
    r = subprocess.run([tool, "test", "rules", test], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]


def alerts(docs, rules):
    tool = promtool()
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "rules.yaml")
        with open(file, "w") as f:
            json.dump(rules, f)
        if not tool:
            print("no promtool: alerts and queries were not parsed")
            return
        r = subprocess.run([tool, "check", "rules", file], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and f"{len(rules['groups'][0]['rules'])} rules found" in r.stdout, r.stdout + r.stderr
        fires(tool, d, rules)
        # Queries of the dashboard parse too, as rules.
        board = json.loads(one(docs, "ConfigMap", "-dashboard")["data"]["weightbridge.json"])
        asks = [t["expr"].replace("$__rate_interval", "5m").replace("$namespace", "x").replace("$object_namespace", "y")
                .replace("$object", "z") for p in board["panels"]
                for t in p["targets"]]
        with open(file, "w") as f:
            json.dump({"groups": [{"name": "g", "rules": [{"record": f"r{i}", "expr": q} for i, q in enumerate(asks)]}]}, f)
        r = subprocess.run([tool, "check", "rules", file], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stdout + r.stderr


def main():
    helm.need()
    for step in (lint, same_bytes, crd, rights, metrics_with_a_token, typos, families, no_collisions, images, pods_run, rdma, gates, memory, generated):
        t = time.monotonic()
        step()
        print(f"{step.__name__}: {time.monotonic() - t:.1f} s", flush=True)
    docs = render(OP, *ALL)
    rules = one(docs, "PrometheusRule")["spec"]
    metrics(docs, rules)
    alerts(docs, rules)


if __name__ == "__main__":
    sys.exit(main())
