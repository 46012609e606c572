# SPDX-License-Identifier: Apache-2.0
"""A whole deployment on this machine: operator, agents, toy workers, each a process.

    with Cluster() as c:
        c.operator(trainers=2, per_engine=1)
        c.agent("train")
        w = c.worker("train", "trainer", index=0, of=2)
        w.expect("planned")

Ports are free ones, files live in a temporary folder, everything ends with the `with` block.
"""
import concurrent.futures
import contextlib
import glob
import json
import os
import pty
import queue
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref

BUILD = os.environ.get("WB_BUILD", os.path.join(os.path.dirname(__file__), "../../build/release"))
SANITIZED = BUILD.endswith(("asan", "tsan", "cov"))
# How much longer than on a quiet machine a thing may take before a test calls it missing. Deadlines of the programs
# under test are not multiplied: what is late because of other work is late, not wrong.
SLOW = (4 if SANITIZED else 1) * max(1, round(os.getloadavg()[0] / (os.cpu_count() or 1)))
# And less than run.sh gives to all of a test: what is missing is to be named before that.
TIMEOUT = min(30.0 * SLOW, 0.7 * float(os.environ.get("T_LIMIT", 300)))


class Failed(AssertionError):
    """Something did not come, or came wrong."""


class Proc:
    """A child process; its lines come through a queue and are kept.  `family`: it starts others, which end with it."""

    def __init__(self, name, argv, env=None, stdin=False, out=None, family=False):
        self.name, self.lines, self.seen, self.family = name, queue.Queue(), [], family
        self.p = subprocess.Popen(
            argv, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if out is None else out, text=True, bufsize=1,
            errors="replace",  # a reader that dies would hide what was said
            env={**os.environ, **(env or {})}, start_new_session=family)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.p.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def say(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()

    def expect(self, pattern, timeout=None, reject=r"^error |bad"):
        """Next line that matches; lines in between are kept.  Fails at the end or at a line that
        matches `reject`."""
        end = time.monotonic() + (timeout or TIMEOUT)
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise Failed(f"{self.name}: no /{pattern}/; last: {self.seen[-12:]}") from None
            if line is None:
                self.lines.put(None)
                raise Failed(f"{self.name} ended (exit {self.p.wait()}) before /{pattern}/; last: "
                             f"{self.seen[-12:]}")
            self.seen.append(line)
            m = re.search(pattern, line)
            if m:
                return m
            if reject and re.search(reject, line):
                raise Failed(f"{self.name}: {line} (waiting for /{pattern}/)")

    def drain(self):
        """Lines that have come so far."""
        out = []
        while not self.lines.empty():
            line = self.lines.get()
            if line is None:
                self.lines.put(None)
                break
            self.seen.append(line)
            out.append(line)
        return out

    def kill(self):
        self.p.kill()
        self.p.wait()

    def end_family(self):
        """Those that it started and left."""
        if self.family:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.p.pid, signal.SIGKILL)

    def stop(self, timeout=None):
        """SIGTERM; its exit status."""
        self.p.terminate()
        return self.p.wait(timeout or TIMEOUT)

    def wait(self, timeout=None):
        return self.p.wait(timeout or TIMEOUT)


class OnTerminal:
    """A program whose standard error is a terminal, where it says more."""

    def __init__(self, name, argv, env):
        self.name, self.seen = name, ""
        self.terminal, slave = pty.openpty()
        self.p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=slave, env=env)
        os.close(slave)

    def expect(self, pattern):
        end = time.monotonic() + 30 * SLOW
        while not re.search(pattern, self.seen):
            ready = select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]
            try:
                more = os.read(self.terminal, 4096).decode() if ready else ""
            except OSError:
                more = ""  # it has ended
            assert more, f"{self.name}: no /{pattern}/ in {self.seen!r}"
            self.seen += more

    def end(self):
        self.p.kill()
        self.p.wait()
        os.close(self.terminal)


class Cluster:
    """See the module."""

    living, is_over = weakref.WeakSet(), False  # is_over: no more of them (limited())

    def __init__(self, level="info"):
        if Cluster.is_over:
            raise Failed("no time is left")
        Cluster.living.add(self)
        self.dir = tempfile.mkdtemp(prefix="wb-e2e-")
        self.level, self.procs = level, []
        self.agents = {}
        self.held = []  # sockets, for the ports that operators come back to
        self.host = "127.0.0.1"
        self.op = None
        self.key = self.path("key")
        self.write_key(self.key, "a7" * 32)

    def path(self, name):
        return os.path.join(self.dir, name)

    @staticmethod
    def write_key(path, text):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        left = [p for p in self.procs if p.p.poll() is None]
        if BUILD.endswith("cov"):  # what was run is written by who ends in order
            for p in left:
                p.p.terminate()
            for p in left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.p.wait(3)
        for p in left:
            if p.p.poll() is None:
                p.kill()
        for p in self.procs:
            p.end_family()
        if kind:
            for p in self.procs:
                p.drain()
                print(f"---- {p.name} (exit {p.p.poll()})")
                print("\n".join(p.seen[-60:]))
        for s in self.held:
            s.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        for left in glob.glob(f"/dev/shm/{glob.escape(os.path.basename(self.dir))}*"):  # of killed processes
            os.unlink(left)

    def _port(self, host):
        """A free port that nobody else gets, also while no operator has it: a socket that does not listen
        keeps it, and lets others of SO_REUSEADDR listen there."""
        v6 = host.startswith("[")
        s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET)
        self.held.append(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host.strip("[]"), 0))
        return s.getsockname()[1]

    def _start(self, *args, **kw):
        p = Proc(*args, **kw)
        self.procs.append(p)
        return p

    @staticmethod
    def body(trainers, per_engine, engines=None, name="toy", **extra):
        """An object.  `extra`: top fields of spec, as JSON."""
        rollout = {"workersPerEngine": per_engine}
        if engines:
            rollout["engines"] = engines
        rollout.update(extra.pop("rollout", {}))
        trainer = {"workers": trainers, **extra.pop("trainer", {})}
        return {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
                "metadata": {"name": name},
                "spec": {"trainer": trainer, "rollout": rollout, **extra}}

    def spec(self, *args, more=(), **kw):
        """Write the object's file, and `more` objects into it; returns its path."""
        path = self.path("object.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n---\n".join(json.dumps(x) for x in (self.body(*args, **kw), *more)))
        return path  # JSON is YAML

    def operator(self, trainers=1, per_engine=1, engines=None, settle_ms=100, env=None, port=0,
                 program="bin/weightbridge-operator", host="127.0.0.1", args=(), **extra):
        """Start the operator; `port` 0 = any, else the one of an earlier operator.  `host`: where it and
        its agents' HTTP listen, IPv6 in brackets."""
        self.host = host
        spec = self.spec(trainers, per_engine, engines, **extra)
        ports = self.path("ports")
        if os.path.exists(ports):
            os.unlink(ports)
        self.op = self._start("operator", [
            f"{BUILD}/{program}", "--file", spec, "--psk-file", self.key,
            "--listen", f"{host}:{port or self._port(host)}", "--http", f"{host}:0", "--port-file", ports,
            "--settle-ms", str(settle_ms), "--log-format", "text", "--log-level", self.level, *args],
            env=env)
        end = time.monotonic() + TIMEOUT
        while not os.path.exists(ports):
            if time.monotonic() > end or self.op.p.poll() is not None:
                raise Failed(f"operator does not start: {self.op.drain()}")
            time.sleep(0.01)
        with open(ports, encoding="utf-8") as f:
            got = dict(line.split() for line in f)
        self.op.port, self.op.http = int(got["listen"]), int(got["http"])
        self.op.probes = int(got.get("probes", 0))
        return self.op

    def agent(self, name, *args, env=None, wait=True, key=None, port=None,
              program="bin/weightbridge-agent", prefix=()):
        """Start an agent (a pod).  `prefix`: a command that runs it."""
        sock = self.path(f"{name}.sock")
        # Tests are of one transport; those of several say so (the agents' default is auto).
        if "--transport" not in args and not any(str(a).startswith("--transport=") for a in args):
            args = ("--transport", "tcp", *args)
        a = self._start(name, [
            *prefix, f"{BUILD}/{program}", "--name", name, "--node", name, "--socket", sock,
            "--operator", f"{self.host}:{port or self.op.port}", "--psk-file", key or self.key,
            "--listen", f"{self.host}:0", "--http", f"{self.host}:0", "--log-format", "text",
            "--log-level", self.level, *args], env=env)
        a.socket = sock
        self.agents[name] = a
        if wait:
            a.http = int(a.expect(r"http: listening .*port=(\d+)", reject=None)[1])
            a.expect(r"agent: started", reject=None)
        return a

    def worker(self, pod, role, index=0, of=1, engine=None, cut="rows", heap=False, rows=256,
               cols=256, tensors=3, rank=None, args=(), program="tools/toy_worker", device=None):
        """Start a toy worker in a pod."""
        name = f"{engine or role}-{index}"
        argv = [f"{BUILD}/{program}", "--socket", self.agents[pod].socket, "--role", role,
                "--index", str(index), "--of", str(of), "--cut", cut, "--rows", str(rows),
                "--cols", str(cols), "--tensors", str(tensors)]
        if engine:
            argv += ["--engine", engine]
        if heap:
            argv.append("--heap")
        if device:
            argv += ["--device", device]
        if rank is not None:
            argv += ["--rank", str(rank)]
        argv += args
        return self._start(name, argv, stdin=True)

    def get(self, proc, path):
        """GET from a daemon's HTTP; (status, text)."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{proc.http}{path}", timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def until(self, what, fn, timeout=None):
        """Wait until fn() gives something true; for states that nobody announces."""
        end = time.monotonic() + (timeout or TIMEOUT)
        while True:
            got = fn()
            if got:
                return got
            if time.monotonic() > end:
                raise Failed(f"never: {what}")
            time.sleep(0.02)


@contextlib.contextmanager
def limited(seconds):
    """What runs inside ends after so long: its processes are killed, so that who waits for them fails."""
    def end():
        Cluster.is_over = True
        print(f"more than {seconds:.0f} s: all that runs is killed", flush=True)
        for c in list(Cluster.living):
            for p in list(c.procs):
                p.p.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run(*tests, together=1):
    """Run test functions; exit status for the runner.  `together`: so many at once."""
    def one(t):
        t0 = time.monotonic()
        t()
        print(f"ok {t.__name__} {time.monotonic() - t0:.2f} s", flush=True)
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        done = {t: pool.submit(one, t) for t in tests}
        bad = {t.__name__: f.exception() for t, f in done.items() if f.exception()}
        for name, why in bad.items():
            print(f"FAILED {name}: {why}", flush=True)
        for why in bad.values():
            raise why
