# SPDX-License-Identifier: Apache-2.0
"""wbctl against canned pages: columns as in the CRD, tables, JSON, sentences.  Standard library only."""
import glob
import http.server
import io
import json
import os
import re
import socket
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
                  "throughputMegabitsPerSecond": 10400},
    plan={"lowerBoundMilliseconds": 153, "rounds": 4},
    engines=[{"name": "e0", "state": "Committed", "workers": 8, "version": 412, "transfer": 412,
              "transport": "shm,verbs"}])
NEW = an_object("new")
PAGES = {"/readyz": "ok\n", "/metrics": "wb_objects 1\n", "/objects": {"kind": "WeightTransferList", "items": [FULL, NEW]}, "/status?object=grpo-30b": FULL,
         "/trace?object=grpo-30b": {"traceEvents": []}, "/status?object=default%2Fgrpo-30b": FULL}
AGENT = {"agent": "a-0", "transport": "tcp", "operator": {"up": True, "trouble": ""},
         "workers": [{"name": "a-0/1", "role": "rollout", "engine": "e0", "rank": -1, "version": 3}]}


ASKED = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ASKED.append(self.path)
        if self.server.leader:
            self.send_response(307)
            self.send_header("Location", f"http://{self.server.leader}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        page, status = AGENT if self.path == "/status" and self.server.agent else self.server.pages.get(self.path), 200
        if self.path.split("?")[0] == "/digest" and self.server.digests:
            page = self.server.digests[0]
            self.server.digests = self.server.digests[1:] or [page]
        elif self.server.busy:
            page, status = self.server.busy + "\n", 503
        body = (page if isinstance(page, str) else json.dumps(page) if page else "no").encode()
        self.send_response(status if page else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(agent, leader=None, busy=None, digests=(), pages=None):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.agent, s.leader, s.busy, s.digests = agent, leader, busy, list(digests)
    s.pages = PAGES if pages is None else pages
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
    cols = [c for c in crd_columns() if c[0] != "CONFIRMED"]  # the operator that answers is alive
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
    assert "there is no object nothing; this operator has " in run("get", "nothing", "--operator", addr, want=1)


def check_yaml(addr):
    """The same as the JSON, to any reader: what looks like a number, a date or a yes is text still."""
    odd = ["yes", "No", "1e3", "0x10", "2026-11-23", "~", "null", "", " x", "a: b", "# c", "- d", "ja", "\u00e4\n\"", "=", "12:30"]
    item = an_object("odd", texts=odd, numbers=[1, -2.5, True, None], empty={}, none=[])
    page = {"kind": "WeightTransferList", "items": [item]}
    text = run("get", "-o", "yaml", "--operator", serve(False, pages={"/objects": page}))
    assert text.startswith("kind: WeightTransferList\nitems:\n"), text
    try:
        import yaml  # noqa: PLC0415 (not of the standard library)
        assert yaml.safe_load(text) == page, text
    except ImportError:
        pass
    for word in odd:
        if word not in ("ja", "null"):
            assert f"- {word}\n" not in text, (word, text)
    assert '- "yes"\n' in text and "- ja\n" in text and "- -2.5\n" in text and text.count("- null\n") == 1, text
    assert "version: 412" in run("get", "grpo-30b", "-o", "yaml", "--operator", addr)


def check_watch():
    """A head once, each object when it is new or changes, and nothing when only its age does."""
    pages = {"/objects": {"items": [an_object("one", version=1), an_object("two", version=1)]}}
    addr = serve(False, pages=pages)
    with subprocess.Popen([BIN, "get", "-w", "--operator", addr], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as p:
        try:
            first = [p.stdout.readline().split()[0] for _ in range(3)]
            assert first == ["NAME", "one", "two"], first
            pages["/objects"] = {"items": [an_object("one", version=1), an_object("two", version=2)]}
            line = p.stdout.readline().split()
            assert line[0] == "two" and "2" in line, line
            del pages["/objects"]
            assert "; asking again" in p.stderr.readline()
            pages["/objects"] = {"items": [an_object("three", version=9)]}
            assert p.stdout.readline().split()[0] == "three"
        finally:
            p.terminate()


def check_others(addr, agent):
    out = run("describe", "grpo-30b", "--operator", addr)
    for part in ("Name:                   grpo-30b", "protocols: Verbs, TCP", "Last / bound:           1.23",
                 "e0     Committed   8", "187.500    0.250", "Idle"):
        assert part in out, (part, out)
    assert re.search(r"^ *NAME .* TRANSPORT\n +e0 .* 412 +shm,verbs$", out, re.M), out
    assert json.loads(run("trace", "grpo-30b", "--operator", addr)) == {"traceEvents": []}
    out = run("status", "--agent", agent)
    assert "Operator connected:     true" in out and re.search(r"a-0/1 +rollout +e0", out), out
    err = run("get", "--operator", "127.0.0.1:1", want=1)
    assert "nobody answers at 127.0.0.1:1" in err and len(err.splitlines()) == 1, err
    assert "--object" in run("plan", "explain", "grpo-30b.none", want=1)
    assert "has no objects: is it an operator?" in run("get", "--operator", serve(False, pages={}), want=1)
    assert "has no digest: is it an agent?" in run("verify", "--agent", addr, want=1)
    operator = serve(False, pages={"/status": FULL})
    assert f"{operator} is not an agent's page" in run("status", "--agent", operator, want=1)
    assert "there is no object x; this operator has " in run("plan", "explain", "--object", "x", "--operator", addr, want=1)
    assert "'localhost' has no port: give HOST:PORT" in run("get", "--operator", "localhost", want=1)
    assert "'[::1]' has no port" in run("status", "--agent", "[::1]", want=1)
    assert "this operator has several objects, name one: " in run("plan", "explain", "--operator", addr, want=1)
    with socket.create_server(("127.0.0.1", 0)) as s:
        threading.Thread(target=lambda: s.accept()[0].close(), daemon=True).start()
        assert "speaks no HTTP: is it the --http" in run("get", "--operator", f"127.0.0.1:{s.getsockname()[1]}", want=1)
    assert run("--version").startswith("wbctl ")
    check_usage()
    check_check(addr)


USAGE = ((["gte"], "unknown command 'gte'"), ([], "no command"), (["plan"], "'plan' is not all: plan explain"),
         (["plan", "explian"], "unknown command 'plan explian'"), (["get", "-o", "xml"], "expected wide, json or yaml"),
         (["trace", "-o", "yaml"], "trace has no YAML: -o json"), (["describe", "-w"], "--watch is of get, not of describe"),
         (["get", "--html", "x"], "--html is of plan explain, trace and simulate, not of get"),
         (["status", "--to", "a:1"], "--to is of bench, not of status"), (["get", "--spin"], "--spin is of bench, not of get"),
         (["bench", "--model", "x"], "--model is of simulate, not of bench"),
         (["get", "--bogus"], "unknown option --bogus"), (["get", "--op", "a:1"], "--operator is to be written out"),
         (["get", "--js"], "--json is to be written out"), (["get", "-x"], "unknown option -x"),
         (["get", "-xn", "a"], "unknown option -x"), (["get", "--operator"], "--operator needs a value"),
         (["get", "-o"], "-o needs a value"), (["get", "a", "b"], "get: unexpected argument 'b'"),
         (["check", "a"], "check: unexpected argument 'a'"), (["inject", "a"], "inject: unexpected argument 'a'"))


def check_usage():
    """A command line that is not understood: one sentence that quotes it, exit status 2."""
    for args, sentence in USAGE:
        err = run(*args, want=2)
        assert sentence in err and len(err.splitlines()) == 1, (args, err)


def check_check(addr):
    assert run("check", "--operator", addr).splitlines()[-1] == "ok  a leader serves objects"
    assert json.loads(run("check", "--operator", addr, "--json"))["passed"] == ["ready", "metrics", "leader"]
    assert "belong together" in run("check", "--operator", addr, "--tls", "x:1", want=1)
    err = run("check", "--operator", serve(False, busy="there is no certificate yet"), want=1)
    assert "answers 503 for /readyz: there is no certificate yet" in err and len(err.splitlines()) == 1, err


def digest_page(engine, lanes, objects=("ns/a",)):
    sums = [[k, f"{v:016x}", f"{v:016x}"] for k, v in enumerate(lanes)]
    worker = {"name": f"{engine}/0", "role": "rollout", "engine": engine, "transfer": 4, "version": 9, "state": "ok",
              "sums": sums}
    return {"done": True, "objects": [{"object": o, "plan": "p", "classes": 2, "workers": [worker]} for o in objects]}


def check_verify():
    """Engines against each other: text, JSON, exit status; an agent that needs a while is asked again."""
    a = serve(True, digests=[{"done": False, "number": 7}, {"done": False, "number": 8}, digest_page("e0", [1, 2])])
    b = serve(True, digests=[digest_page("e1", [1, 2])])
    bad = serve(True, digests=[digest_page("e2", [1, 3])])
    part = serve(True, digests=[digest_page("e3", [1])])
    out = run("verify", "--agent", f"{a},{b}", "--object", "a")
    assert ASKED[-4:] == ["/digest", "/digest?number=7", "/digest?number=7", "/digest"], ASKED
    assert re.search(r"^e0 +9 +1 +2/2 +sum128:0{15}30{15}3 +-$", out, re.M), out
    assert re.search(r"^e1 .* same as e0$", out, re.M), out
    p = subprocess.run([BIN, "verify", "--json", "--agent", f"{a},{bad},{part}"], capture_output=True, text=True,
                       timeout=60)
    groups = {g["engine"]: g for g in json.loads(p.stdout)["groups"]}
    assert p.returncode == 1 and "1 of 3 do not hold" in p.stderr, p
    assert [groups[e]["result"] for e in ("e0", "e2", "e3")] == ["Reference", "Differs", "Unknown"], groups
    assert "first 1 of e2/0" in groups["e2"]["message"]
    two = serve(True, digests=[digest_page("e0", [1, 2], objects=("ns/a", "ns/b"))])
    three = serve(True, digests=[digest_page("e1", [1, 2], objects=("ns/a", "ns/b"))])
    assert "nothing was verified" in run("verify", "a", "--agent", two, want=1)
    assert "serves ns/a and ns/b: name one by --object" in run("verify", "--agent", two, want=1)
    for name in ("a", "ns/b"):
        assert json.loads(run("verify", name, "--json", "--agent", f"{two},{three}"))["object"][-1] == name[-1]
    assert "no plan yet" in run("verify", "c", "--agent", two, want=1)
    assert "--agent HOST:PORT" in run("verify", want=1)


def check_inside(addr, agent):
    """In the container of an agent nothing has to be named; elsewhere it is the operator."""
    with tempfile.NamedTemporaryFile("w", suffix=".ports") as f:
        ASKED.clear()
        f.write(f"listen 1\nhttp {agent.split(':')[1]}\n")
        f.flush()
        env = {**os.environ, "WEIGHTBRIDGE_AGENT_PORTS": f.name, "TOKEN": "hidden-token"}
        r = subprocess.run([BIN, "status"], env=env, capture_output=True, text=True, timeout=30)
        assert "a-0/1" in r.stdout, r
        files = bundle(env)
        assert json.loads(files["agent-status.json"]) == AGENT and "operator-objects.json" not in files
        assert not any("/digest" in x for x in ASKED), "a support bundle makes the agent sum all weights"
    files = bundle({**os.environ, "WEIGHTBRIDGE_OPERATOR_HTTP": addr})
    assert json.loads(files["operator-objects.json"])["items"][0] == FULL
    assert json.loads(files["object-0-grpo-30b-status.json"]) == FULL
    assert b"operator-metrics.txt: taken" in files["about.txt"]
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
    assert "--metrics-auth" in inject(good, "--metrics-auth") and "--metrics-auth" not in out
    # Without the label nothing is added, and what is there keeps its words.
    plain = good.replace("weightbridge.io/inject: enabled, ", "")
    assert "weightbridge-agent" not in inject(plain) and "value: 'on'" in inject(plain)
    assert "weightbridge-agent" not in inject(good.replace("inject: enabled", "inject: disabled"))
    for text, sentence in ((MANIFEST % ("", labels), "give --namespace"),
                           (MANIFEST % ("", "weightbridge.io/role: trainer"), "label weightbridge.io/name is missing"),
                           (MANIFEST % ("", "weightbridge.io/name: wt"), "label weightbridge.io/role is missing"),
                           (good.replace("trainer", "chief"), "is chief: it has to be trainer, rollout or both"),
                           (good.replace("inject: enabled", 'inject: "true"'),
                            "label weightbridge.io/inject is true: it has to be enabled, or disabled"),
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
    assert len(err.splitlines()) == 1 and "LICENSE: not a plan" in err, err


def main():
    addr, agent = serve(False), serve(True)
    check_get(addr)
    check_yaml(addr)
    check_watch()
    check_others(addr, agent)
    check_inside(addr, agent)
    check_inject()
    check_plan()
    check_verify()


if __name__ == "__main__":
    sys.exit(main())
