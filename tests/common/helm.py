# SPDX-License-Identifier: Apache-2.0
"""helm for tests: rendered charts as Python objects.  Standard library only: helm itself reads the YAML."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHARTS = os.path.join(TOP, "charts")
MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
MONITORING = [f"monitoring.coreos.com/v1/{k}" for k in ("PodMonitor", "PrometheusRule")]


def cache():
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge")


def find():
    """Path of helm, or nothing; tests/cluster/build.sh builds it."""
    for d in os.environ.get("PATH", "").split(":"):
        if os.access(os.path.join(d, "helm"), os.X_OK):
            return os.path.join(d, "helm")
    built = sorted(glob.glob(os.path.join(cache(), "kube-*", "helm-3*")))
    return built[-1] if built else None


def need():
    h = find()
    if not h:
        print("helm is not here: tests/cluster/build.sh helm builds it")
        sys.exit(77)
    return h


def run(*args, check=True):
    env = {"GOGC": "off", **os.environ}  # it lives for a moment: a fifth of its time would be collecting
    r = subprocess.run([need(), *args], capture_output=True, text=True, timeout=120, env=env, check=False)
    assert not check or r.returncode == 0, (args, r.stdout[-3000:], r.stderr[-3000:])
    assert not check or not r.stderr, f"helm {args[0]} warns: {r.stderr[-3000:]}"
    return r.stdout if check else r


def template(chart, *args, release="wb", ns="system", check=True):
    return run("template", release, os.path.join(CHARTS, chart), "-n", ns, *args, check=check)


def apis(*names):
    return [x for n in names for x in ("--api-versions", n)]


def load(text):
    """The documents of a YAML text."""
    text = re.sub(r"(?m)^--- (?=[^\s#])", "---\n", text)  # content on that line
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(os.path.join(d, "templates"))
        for name, content in (
                ("Chart.yaml", "apiVersion: v2\nname: load\nversion: 0.1.0\n"), ("in.yaml", text),
                ("templates/out.yaml", '{{- range $i, $d := regexSplit "(?m)^---.*$" (.Files.Get "in.yaml") -1 }}\n---\n'
                 'n: {{ $i }}\njson: {{ fromYaml $d | toJson }}\n{{- end }}\n')):
            with open(os.path.join(d, name), "w") as f:
                f.write(content)
        out = run("template", "x", d).splitlines()
    n = [int(line[3:]) for line in out if line.startswith("n: ")]
    docs = [json.loads(line[6:]) for line in out if line.startswith("json: ")]
    docs = [d for _, d in sorted(zip(n, docs), key=lambda x: x[0]) if d]
    for d in docs:
        assert "Error" not in d, d["Error"]
    return docs


def render(chart, *args, **kw):
    return load(template(chart, *args, **kw))


def pods(doc, found=None):
    """All pods and pod templates inside of an object."""
    found = [] if found is None else found
    if isinstance(doc, dict):
        spec = doc.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            found.append(doc)
        for v in doc.values():
            pods(v, found)
    elif isinstance(doc, list):
        for v in doc:
            pods(v, found)
    return found
