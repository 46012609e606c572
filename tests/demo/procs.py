# SPDX-License-Identifier: Apache-2.0
"""Processes of a small deployment: operator, agents, workers; started, spoken to, ended by pid."""
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# Large arrays come and go while a loader is probed.  Kept in the heap they are not given back to
# the kernel and faulted in again each time, which costs more than all the rest on some machines.
HEAP = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}


class Failed(Exception):
    """A sentence for the user."""


class Daemon:
    """A program with a log file."""

    def __init__(self, name, argv, folder, env=None):
        self.name, self.log = name, os.path.join(folder, name + ".log")
        with open(self.log, "ab") as log:
            self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      env={**os.environ, **(env or {})})

    def tail(self, n=15):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-n:])

    def wait_file(self, path, seconds=10):
        """The content of a file that the program writes when it is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.p.poll() is not None:
                raise Failed(f"{self.name} ended with {self.p.returncode}:\n{self.tail()}")
            try:
                with open(path, encoding="ascii") as f:
                    text = f.read().strip()
                if text:
                    return text
            except FileNotFoundError:
                pass
            time.sleep(0.02)
        raise Failed(f"{self.name} did not come up in {seconds} s:\n{self.tail()}")

    def stop(self, seconds=10):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.p.returncode

    def kill(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGKILL)
        self.p.wait()


class Worker:
    """tests/demo/worker.py: commands in, events out."""

    def __init__(self, name, spec, folder, env=None):
        self.name, self.events, self.seen = name, queue.Queue(), []
        path = os.path.join(folder, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "ab") as log:
            self.p = subprocess.Popen([sys.executable, os.path.join(TOP, "tests/demo/worker.py"),
                                       path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=log, text=True,
                                      env={**os.environ, **HEAP, **(env or {})})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.p.stdout:
            try:
                self.events.put(json.loads(line))
            except ValueError:
                self.events.put({"event": "noise", "text": line})
        self.events.put({"event": "gone"})

    def send(self, **command):
        self.p.stdin.write(json.dumps(command) + "\n")
        self.p.stdin.flush()

    def wait(self, event, seconds=120, **match):
        """The next event of that kind; others are kept in .seen."""
        end = time.monotonic() + seconds
        while True:
            try:
                e = self.events.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                last = [x.get("text") for x in self.seen if x["event"] == "progress"][-1:]
                raise Failed(f"{self.name}: no '{event}' within {seconds} s; last news: "
                             f"{last or 'none'}") from None
            self.seen.append(e)
            if e["event"] == event and all(e.get(k) == v for k, v in match.items()):
                return e
            if e["event"] in ("error", "gone"):
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    tail = "".join(f.readlines()[-8:])
                raise Failed(f"{self.name}: {e.get('error', 'ended')}\n{tail}")

    def kill(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGKILL)
        self.p.wait()

    def stop(self, seconds=20):
        if self.p.poll() is None:
            try:
                self.send(do="exit")
                self.p.wait(seconds)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()
        return self.p.returncode


class Deployment:
    """An operator, agents and workers of one WeightTransfer in one folder."""

    def __init__(self, build, folder, spec, name="demo"):
        self.build, self.folder, self.object = build, folder, f"default/{name}"
        self.agents, self.workers, self.extra = {}, {}, {}
        self.psk = os.path.join(folder, "psk")
        with open(os.open(self.psk, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
            f.write(secrets.token_hex(32) + "\n")
        self.yaml = os.path.join(folder, "transfer.yaml")
        with open(self.yaml, "w", encoding="utf-8") as f:
            f.write("apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
                    f"metadata: {{name: {name}, namespace: default}}\nspec:\n{spec}")
        self.operator = None

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def start_operator(self, listen="127.0.0.1:0", env=None):
        port = os.path.join(self.folder, "operator.port")
        if os.path.exists(port):
            os.unlink(port)
        self.operator = Daemon("operator", [
            self.program("weightbridge-operator"), "--file", self.yaml, "--listen", listen,
            "--psk-file", self.psk, "--http", "127.0.0.1:0", "--port-file", port,
            "--log-format", "text"], self.folder, env)
        ports = dict(x.split() for x in self.operator.wait_file(port).splitlines())
        self.operator_port, self.operator_http = ports["listen"], ports["http"]

    def start_agent(self, name, env=None, *options):
        ports = os.path.join(self.folder, name + ".port")
        if os.path.exists(ports):
            os.unlink(ports)
        a = Daemon(name, [
            self.program("weightbridge-agent"), "--name", name, "--node", name,
            "--socket", self.socket(name), "--operator", "127.0.0.1:" + self.operator_port,
            "--psk-file", self.psk, "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1",
            "--http", "127.0.0.1:0", "--port-file", ports, "--log-format", "text",
            *options], self.folder, env)
        self.agents[name] = a
        a.http = dict(x.split() for x in a.wait_file(ports).splitlines())["http"]
        return a

    def socket(self, agent):
        return os.path.join(self.folder, agent + ".sock")

    def start_worker(self, agent, name, role, rank, spec, checkpoint, engine=None, env=None, **more):
        w = Worker(name, {"role": role, "engine": engine, "rank": rank, "spec": spec,
                          "socket": self.socket(agent), "object": self.object,
                          "checkpoint": checkpoint, "python": os.path.join(TOP, "agent/python"),
                          **more}, self.folder,
                   {"WB_LIB": os.path.join(self.build, "lib/libweightbridge.so"), **(env or {})})
        w.agent, w.spec = agent, spec
        self.workers[name] = w
        return w

    def send(self, trainers, version):
        """A step of the trainers: new values everywhere, then send_weights on all at once."""
        for w in trainers:
            w.send(do="set", version=version)
        for w in trainers:
            w.wait("set", version=version)
        for w in trainers:
            w.send(do="send", version=version)

    def metrics(self, agent):
        """Counters of an agent: dict 'name{labels}' -> value."""
        url = f"http://127.0.0.1:{self.agents[agent].http}/metrics"
        with urllib.request.urlopen(url, timeout=5) as r:
            lines = r.read().decode().splitlines()
        return {x.rsplit(" ", 1)[0]: float(x.rsplit(" ", 1)[1])
                for x in lines if x and not x.startswith("#")}

    def trace(self, agent):
        """Events that an agent keeps."""
        url = f"http://127.0.0.1:{self.agents[agent].http}/trace"
        with urllib.request.urlopen(url, timeout=5) as r:
            return json.load(r)["traceEvents"]

    def status(self):
        url = f"http://127.0.0.1:{self.operator_http}/status"
        with urllib.request.urlopen(url, timeout=5) as r:
            return json.load(r)

    def stop(self):
        for w in self.workers.values():
            w.kill() if w.p.poll() is not None else w.stop(5)
        for a in self.agents.values():
            a.stop(5)
        if self.operator:
            self.operator.stop(5)

    def kill(self):
        for x in [*self.workers.values(), *self.agents.values(), self.operator]:
            if x:
                x.kill()
