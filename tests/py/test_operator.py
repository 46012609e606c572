# SPDX-License-Identifier: Apache-2.0
"""weightbridge-operator as a user starts it: pages, signals, refusals.  Standard library only."""
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = os.environ.get("WB_TOP", ".")
BIN = os.path.join(os.environ["WB_BUILD"], "bin", "weightbridge-operator")
GOOD = """apiVersion: weightbridge.io/v1alpha1
kind: WeightTransfer
metadata: {name: demo}
spec:
  trainer: {workers: 4}
  rollout: {workersPerEngine: 2}
"""


def write(path, text, mode=0o644):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def wait_for(path, proc):
    end = time.monotonic() + 20
    while not os.path.exists(path):
        assert proc.poll() is None, proc.stderr.read()
        assert time.monotonic() < end, "no port file"
        time.sleep(0.01)
    return dict(line.split() for line in open(path))


def get(port, path, want=200):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as r:
            assert r.status == want, (path, r.status)
            return r.read()
    except urllib.error.HTTPError as e:
        assert e.code == want, (path, e.code)
        return e.read()


def refused(args, want=1, **env):
    p = subprocess.run([BIN] + args, capture_output=True, text=True, timeout=20, env={**os.environ, **env})
    assert p.returncode == want, (args, p.returncode)
    return p.stderr


def check_refusals(d, key, port):
    spec, bad = os.path.join(d, "transfer.yaml"), os.path.join(d, "bad.yaml")
    write(bad, GOOD.replace("workersPerEngine", "workersPerEngin"))
    text = refused(["--file", bad, "--psk-file", key])
    assert f"{bad}:6: spec.rollout.workersPerEngin: unknown field, did you mean workersPerEngine?" in text
    assert "spec.rollout.workersPerEngine: is required" in text
    for name, sentence in (("none", "No such file"), ("", "Is a directory"), ("empty", "no object in this file"),
                           ("zeros", "not YAML")):
        open(os.path.join(d, "empty"), "w").close()
        write(os.path.join(d, "zeros"), "\0" * 4096)
        path = os.path.join(d, name)
        text = refused(["--file", path, "--psk-file", key])
        assert path in text and sentence in text and len(text.splitlines()) == 1, text
    text = refused(["--file", spec, "--psk-file", key, "--listen", f"127.0.0.1:{port}"])
    assert f"listen on 127.0.0.1:{port}: another process has the port" in text, text
    text = refused(["--file", spec, "--psk-file", key, "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}"])
    assert f"http on 127.0.0.1:{port}: another process has the port" in text, text
    text = refused(["--file", spec, "--psk-file", key, "--listen", "192.0.2.1:0"])
    assert "192.0.2.1:0: this machine has no such address" in text, text
    os.chmod(key, 0o640)
    text = refused(["--file", spec, "--psk-file", key, "--listen", "127.0.0.1:0"])
    assert "chmod 600" in text, text
    os.chmod(key, 0o600)
    for args, sentence in (([], "--file FILE is missing"), (["--listen", "x"], "--listen x: expected HOST:PORT"),
                           (["--file", ""], "--file '': expected a file name"),
                           (["--budget", "agents=4/8"], "--budget agents=4/8: expected objects, agents, connections"),
                           (["--memory", "much"], "--memory much: expected a size as 1Gi"),
                           (["--nonsense"], "unknown option --nonsense"), (["--file", spec], "--psk-file FILE is missing")):
        assert sentence in refused(args, want=2), args
    assert "WB_FAULT rule 'nonsense'" in refused(["--file", spec, "--psk-file", key], WB_FAULT="nonsense")
    text = refused(["--file", spec, "--psk-file", key], WB_FAULT="kill=commit")
    assert "rule for commit, which the operator does not have: its places are plan ready activate" in text, text
    text = refused(["--file", spec, "--file", spec, "--psk-file", key])
    assert "default/demo is in an earlier file" in text, text


def check_pipe(d, key):
    """A pipe that nobody writes to does not make the operator deaf."""
    os.mkfifo(os.path.join(d, "pipe"))
    p = subprocess.Popen([BIN, "--file", os.path.join(d, "pipe"), "--psk-file", key])
    while open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "S":
        assert p.poll() is None
    p.send_signal(signal.SIGTERM)
    assert p.wait(timeout=20) == -signal.SIGTERM


def check_pages(port):
    o = json.loads(get(port, "/status"))
    assert o["kind"] == "WeightTransfer" and o["metadata"]["name"] == "demo"
    assert o["spec"]["rollout"]["bufferSize"] == "4Gi"
    c = {x["type"]: x for x in o["status"]["conditions"]}
    assert set(c) == {"Ready", "MembersConnected", "Planned", "UpToDate", "Degraded"}
    assert c["Ready"]["status"] == "False" and "4 of 4 trainer workers" in c["Ready"]["message"]
    assert json.loads(get(port, "/objects"))["items"][0] == json.loads(get(port, "/status?object=default/demo"))
    assert json.loads(get(port, "/trace"))["traceEvents"] == []
    assert get(port, "/healthz") == b"ok\n" and get(port, "/readyz") == b"ok\n"
    text = get(port, "/metrics").decode()
    assert 'wb_budget_limit{budget="agents",scope="all"} 8192\n' in text, text
    assert 'wb_budget_limit{budget="agents",scope="namespace"} 4096\n' in text
    assert 'wb_budget_limit{budget="maps",scope="object"} 3145728\n' in text
    assert 'wb_budget_used{budget="agents",scope="all"} 0\n' in text
    assert "\nwb_agents 0\n" in text and "wb_build_info{version=" in text
    for path in ("/plan", "/status?object=x", "/nothing"):
        get(port, path, 404)


def check_reload(d, proc, port):
    spec = os.path.join(d, "transfer.yaml")
    write(spec, GOOD + "  suspend: true\n")
    proc.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while True:
        o = json.loads(get(port, "/status"))
        ready = next(c for c in o["status"]["conditions"] if c["type"] == "Ready")
        if ready["reason"] == "Suspended":
            break
        assert time.monotonic() < end, ready
        time.sleep(0.01)
    # A bad file changes nothing.
    write(spec, GOOD + "  suspnd: false\n")
    proc.send_signal(signal.SIGHUP)
    assert json.loads(get(port, "/status"))["spec"]["suspend"] is True
    write(spec, GOOD)


def check_reasons():
    """Every reason of a condition or event that the operator can give is explained to its reader."""
    guide = open(os.path.join(TOP, "crds", "README.md")).read()
    given = set()
    for path in ("conditions.c", "pods.c", "epoch.c", "report.c", "feed.c", "status.c", "members.c"):
        code = open(os.path.join(TOP, "operator-shim", "reconcile", path)).read()
        given |= set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]*)+)"', code))
    fine = {"AllAgentsConnected", "AllEnginesAtVersion", "AsExpected", "NoTransferYet", "PlanDistributed",
            "MembersConnected", "UpToDate", "EachEngine", "AllEngines", "HostMemory"}
    missing = sorted(r for r in given - fine if not re.search(rf"\b{r}\b", guide))
    assert given and not missing, missing


def main():
    check_reasons()
    with tempfile.TemporaryDirectory() as d:
        spec, key, ports = (os.path.join(d, n) for n in ("transfer.yaml", "key", "ports"))
        write(spec, GOOD)
        write(key, secrets.token_hex(32), 0o600)
        proc = subprocess.Popen(
            [BIN, "--file", spec, "--psk-file", key, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
             "--port-file", ports, "--log-format", "json", "--memory", "2Gi", "--budget", "maps=64Mi/3Mi"], stderr=subprocess.PIPE, text=True)
        try:
            p = wait_for(ports, proc)
            check_pages(p["http"])
            check_refusals(d, key, p["listen"])
            check_pipe(d, key)
            check_reload(d, proc, p["http"])
            proc.send_signal(signal.SIGTERM)
            log = proc.communicate(timeout=20)[1]
        finally:
            proc.kill()
        assert proc.returncode == 0, (proc.returncode, log)
        for line in log.splitlines():
            json.loads(line)
        assert any(json.loads(line)["msg"] == "stopped" for line in log.splitlines())


if __name__ == "__main__":
    sys.exit(main())
