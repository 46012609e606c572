# SPDX-License-Identifier: Apache-2.0
"""weightbridge-operator and its agents in a test, as processes beside a real API server."""
import json
import os
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request

from apiserver import die_with_parent, patience, wait_for

BIN = os.path.join(os.environ.get("WB_BUILD", "build/release"), "bin")
TOOLS = os.path.join(os.environ.get("WB_BUILD", "build/release"), "tools")
API = "/apis/weightbridge.io/v1alpha1/namespaces/default/weighttransfers"


def ports_of(path, proc):
    wait_for(lambda: os.path.exists(path) or proc.poll() is not None, 20)
    assert proc.poll() is None, "it ended at once"
    return {k: int(v) for k, v in (line.split() for line in open(path))}


class Program:
    def __init__(self, c, name, args, **popen):
        self.log = c.path(name + ".log")
        with open(self.log, "ab") as f:
            self.p = subprocess.Popen(args, stderr=f, preexec_fn=die_with_parent, **popen)

    def stop(self, how=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(how)
        return self.p.wait(timeout=patience(60))

    def text(self):
        """Its log so far."""
        return open(self.log, errors="replace").read()


class Operator(Program):
    n = 0

    def __init__(self, c, port=0, config=None, args=()):
        Operator.n += 1
        self.n0 = Operator.n
        self.key = c.path("key")
        if not os.path.exists(self.key):
            with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(secrets.token_hex(32))
        file = c.path(f"operator{Operator.n}.ports")
        super().__init__(c, f"operator{Operator.n}", [
            os.path.join(BIN, "weightbridge-operator"), "--kubeconfig", config or c.kubeconfig,
            *(["--psk-file", self.key] if not {"--tls-cert", "--tls-secret"} & set(args) else []), "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--port-file", file, "--settle-ms", "50",
            "--name", f"operator-{Operator.n}", "--log-format", "text",
            *(["--advertise", f"127.0.0.1:{port}"] if port else []), *args])
        self.ports = ports_of(file, self.p)

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=patience(10)) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name):
        for line in self.page("/metrics")[1].splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def is_ready(self):
        return self.page("/readyz")[0] == 200


class Worker(Program):
    """An agent with one toy worker: commands in, lines out."""

    def __init__(self, c, operator_port, name, role, index, of, engine=None, auth=None, program="toy_worker",
                 inside=(), object_="default/t"):
        self.name = name
        sock = c.path(name + ".sock")
        self.agent = Program(c, "agent-" + name, [
            *inside, os.path.join(BIN, "weightbridge-agent"), "--name", name, "--operator", f"127.0.0.1:{operator_port}",
            *(auth or ["--psk-file", c.path("key")]), "--socket", sock, "--listen", "127.0.0.1:0", "--object", object_,
            "--transport", "tcp"])  # as between pods: these share a host, and would share memory
        wait_for(lambda: os.path.exists(sock), 20)
        args = [os.path.join(TOOLS, program), "--socket", sock, "--role", role, "--index", str(index), "--of",
                str(of), "--rows", "64", "--cols", "64", "--tensors", "4"]
        super().__init__(c, "worker-" + name, args + (["--engine", engine] if engine else []), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        self.lines = []

    def say(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def until(self, word, seconds=60):
        end = time.monotonic() + patience(seconds)
        while time.monotonic() < end:
            line = self.p.stdout.readline()
            assert line, f"{self.name} ended: {self.text()[-2000:]} {self.lines[-5:]}"
            self.lines.append(line.strip())
            assert not line.startswith("error"), line
            if line.startswith(word):
                return line.strip()
        raise AssertionError(f"{self.name}: no {word}")

    def end(self):
        self.stop(signal.SIGKILL)
        self.agent.stop(signal.SIGKILL)


def status(c, name="t"):
    return c.get(f"{API}/{name}").get("status", {})


def conditions(st):
    return {x["type"]: x for x in st.get("conditions", [])}


def transfer_object(name="t", trainers=1, per_engine=1, **spec):
    return json.dumps({"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
                       "metadata": {"name": name, "namespace": "default"},
                       "spec": {"trainer": {"workers": trainers}, "rollout": {"workersPerEngine": per_engine}, **spec}})
