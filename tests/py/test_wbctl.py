# SPDX-License-Identifier: Apache-2.0
"""wbctl against canned pages: columns as in the CRD, tables, JSON, sentences.  Standard library only."""
import glob
import http.server
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

TOP = os.environ.get("WB_TOP", ".")
BIN = os.path.join(os.environ["WB_BUILD"], "bin", "wbctl")


def stamp(ago):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago))


def an_object(name, **status):
    base = {"conditions": [{"type": "Ready", "status": "True", "reason": "Idle", "message": "",
                            "lastTransitionTime": stamp(60)}]}
    return {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": stamp(3 * 3600 + 12 * 60)},
            "spec": {"trainer": {"workers": 4}, "transport": {"protocols": ["Verbs", "TCP"]}},
            "status": {**base, **status},
            "detail": {"operator": "op", "agents": [{"name": "a-0", "node": "n", "host": "h", "port": 7444,
                                                     "workers": 2, "build": "t"}],
                       "members": [], "transfers": [
                           {"transfer": 412, "version": 412, "result": "Succeeded", "endToEndMilliseconds": 187.5,
                            "endToEndUncertaintyMilliseconds": 0.25, "averageStallMilliseconds": 138.25,
                            "resentChunks": 0, "bytes": {"receive": 1190, "external": 0, "internal": 10}}]}}


FULL = an_object(
    "grpo-30b", version=412, transfer=412, updatedEngines=4, engineCount=4, connectedWorkers=64,
    lastTransfer={"endToEndMilliseconds": 188, "completionTime": stamp(6), "averageStallMilliseconds": 138,
                  "throughputGigabitsPerSecond": 10400},
    plan={"lowerBoundMilliseconds": 153, "rounds": 4},
    engines=[{"name": "e0", "state": "Committed", "workers": 8, "version": 412, "transfer": 412}])
NEW = an_object("new")
PAGES = {"/objects": {"kind": "WeightTransferList", "items": [FULL, NEW]}, "/status?object=grpo-30b": FULL,
         "/trace?object=grpo-30b": {"traceEvents": []}, "/status?object=default%2Fgrpo-30b": FULL}
AGENT = {"agent": "a-0", "transport": "tcp", "operator": {"up": True, "trouble": ""},
         "workers": [{"name": "a-0/1", "role": "rollout", "engine": "e0", "rank": -1, "version": 3}]}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.server.leader:
            self.send_response(307)
            self.send_header("Location", f"http://{self.server.leader}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        page = AGENT if self.path == "/status" and self.server.agent else PAGES.get(self.path)
        body = (json.dumps(page) if page else "no").encode()
        self.send_response(200 if page else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(agent, leader=None):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.agent, s.leader = agent, leader
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return f"127.0.0.1:{s.server_port}"


def run(*args, want=0):
    p = subprocess.run([BIN, *args], capture_output=True, text=True, timeout=60, check=False)
    assert p.returncode == want, (args, p.returncode, p.stdout, p.stderr)
    return p.stdout if want == 0 else p.stderr


def crd_columns():
    """(name, wide) of the printer columns, read from the YAML by its shape."""
    text = open(os.path.join(TOP, "crds", "weighttransfer.yaml")).read()
    block = re.search(r"additionalPrinterColumns:\n(.*?)\n      schema:", text, re.S)[1]
    return [(re.search(r"name: (\S+)", item)[1], "priority: 1" in item)
            for item in re.split(r"\n\s+- (?=name:)", "\n" + block) if "name:" in item]


def check_get(addr):
    cols = crd_columns()
    assert len(cols) == 14, cols
    out = run("get", "--operator", addr).splitlines()
    assert out[0].split() == ["NAME"] + [n for n, wide in cols if not wide], out[0]
    assert re.match(r"grpo-30b +True +412 +4 +4 +188 +[67]s +3h12m$", out[1]), out[1]
    assert out[1].index("True") == out[0].index("READY"), out
    assert out[2].split() == ["new", "True", "3h12m"], out[2]
    out = run("get", "wt", "grpo-30b", "-o", "wide", "--operator", addr).splitlines()
    assert out[0].split() == ["NAME"] + [n for n, wide in cols if not wide] + [n for n, wide in cols if wide]
    assert out[1].split()[8:] == ["Idle", "412", "138", "153", "10400", "4", "64"], out[1]
    assert len(out) == 2
    assert json.loads(run("get", "--json", "--operator", addr))["items"][0] == FULL
    assert "no object nothing" in run("get", "nothing", "--operator", addr, want=1)


def check_others(addr, agent):
    out = run("describe", "grpo-30b", "--operator", addr)
    for part in ("Name:                   grpo-30b", "protocols: Verbs, TCP", "Last / bound:           1.23",
                 "e0     Committed   8", "187.500    0.250", "Idle"):
        assert part in out, (part, out)
    assert json.loads(run("trace", "grpo-30b", "--operator", addr)) == {"traceEvents": []}
    out = run("status", "--agent", agent)
    assert "Operator connected:     true" in out and re.search(r"a-0/1 +rollout +e0", out), out
    err = run("get", "--operator", "127.0.0.1:1", want=1)
    assert "nobody answers at 127.0.0.1:1" in err and len(err.splitlines()) == 1, err
    assert "unknown command 'gte'" in run("gte", want=1)
    assert "expected wide or json" in run("get", "-o", "yaml", want=1)
    assert "--object" in run("plan", "explain", "grpo-30b.none", want=1)
    assert run("--version").startswith("wbctl ")


def check_inside(addr, agent):
    """In the container of an agent nothing has to be named; elsewhere it is the operator."""
    with tempfile.NamedTemporaryFile("w", suffix=".ports") as f:
        f.write(f"listen 1\nhttp {agent.split(':')[1]}\n")
        f.flush()
        env = {**os.environ, "WEIGHTBRIDGE_AGENT_PORTS": f.name, "TOKEN": "hidden-token"}
        r = subprocess.run([BIN, "status"], env=env, capture_output=True, text=True, timeout=30)
        assert "a-0/1" in r.stdout, r
        files = bundle(env)
        assert json.loads(files["agent-status.json"]) == AGENT and set(files) == {"agent-status.json", "about.txt"}
    files = bundle({**os.environ, "WEIGHTBRIDGE_OPERATOR_HTTP": addr})
    assert json.loads(files["operator-objects.json"])["items"][0] == FULL
    assert json.loads(files["object-0-grpo-30b-status.json"]) == FULL
    assert b"operator-metrics.txt: " in files["about.txt"]
    r = subprocess.run([BIN, "support-bundle", "--operator", "127.0.0.1:1"], capture_output=True, timeout=30)
    assert r.returncode == 1 and b"nothing was reached" in r.stderr
    # A standby sends on.
    assert "grpo-30b" in run("get", "--operator", serve(False, addr))


def bundle(env):
    r = subprocess.run([BIN, "support-bundle"], env=env, capture_output=True, timeout=30)
    assert r.returncode == 0, r.stderr
    assert b"hidden-token" not in r.stdout
    with tarfile.open(fileobj=io.BytesIO(r.stdout)) as t:
        return {os.path.basename(m.name): t.extractfile(m).read() for m in t.getmembers()}


MANIFEST = """# a comment
kind: Job
metadata: {name: j%s}
spec:
  template:
    metadata:
      labels: {weightbridge.io/inject: enabled, %s}
    spec:
      containers: [{name: a, image: "1", env: [{name: X, value: 'on'}]}]
---
kind: ConfigMap
data: {a: "true", b: yes}
"""


def inject(text, *args, want=0):
    p = subprocess.run([BIN, "inject", "-f", "-", *args], input=text, capture_output=True, text=True, timeout=30)
    assert p.returncode == want, p
    assert want == 0 or (not p.stdout and len(p.stderr.strip().splitlines()) == 1), p
    return p.stderr if want else p.stdout


def check_inject():
    labels = "weightbridge.io/name: wt, weightbridge.io/role: trainer"
    good = MANIFEST % (", namespace: rl", labels)
    out = inject(good)
    for part in ("weightbridge-agent", "weightbridge.io/rl/wt", "value: 'on'", 'a: "true", b: yes', 'memory: "2Gi"',
                 "kubernetes.io/serviceaccount"):
        assert part in out, (part, out)
    assert inject(out) == out  # a second time changes nothing
    assert "weightbridge.io/elsewhere/wt" in inject(MANIFEST % ("", labels), "-n", "elsewhere")
    assert "example/agent:7" in inject(good, "--image", "example/agent:7")
    # Without the label nothing is added, and what is there keeps its words.
    plain = good.replace("weightbridge.io/inject: enabled, ", "")
    assert "weightbridge-agent" not in inject(plain) and "value: 'on'" in inject(plain)
    for text, sentence in ((MANIFEST % ("", labels), "give --namespace"),
                           (MANIFEST % ("", "weightbridge.io/role: trainer"), "label weightbridge.io/name is missing"),
                           (MANIFEST % ("", "weightbridge.io/name: wt"), "label weightbridge.io/role is missing"),
                           (good.replace("trainer", "chief"), "is chief: it has to be trainer, rollout or both"),
                           ("a: [1", "stdin:"), ("a: &a\n  b: *b\n", "stdin:"), ("[" * 100 + "]" * 100, "nested more than")):
        assert sentence in inject(text, want=1), (sentence, inject(text, want=1))
    assert "No such file" in run("inject", "-f", "/nonexistent", want=1)


def check_plan():
    plans = sorted(glob.glob(os.path.join(TOP, "tests", "golden", "plan-*.bin")))
    assert plans, "no golden plan"
    for p in plans:
        assert "receive" in run("plan", "explain", p).lower()
        assert json.loads(run("plan", "explain", p, "--json"))
    err = run("plan", "explain", os.path.join(TOP, "LICENSE"), want=1)
    assert len(err.splitlines()) == 1, err


def main():
    addr, agent = serve(False), serve(True)
    check_get(addr)
    check_others(addr, agent)
    check_inside(addr, agent)
    check_inject()
    check_plan()


if __name__ == "__main__":
    sys.exit(main())
