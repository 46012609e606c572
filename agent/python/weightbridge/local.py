# SPDX-License-Identifier: Apache-2.0
"""`weightbridge local`: an operator and its agents on this machine, in one command.

One agent for the trainer workers and one for each engine, as pods would have them.  Everything ends
with this process, however it ends.
"""
import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import programs
from .errors import WeightBridgeError

_PROGRAMS = "weightbridge-operator", "weightbridge-agent", "wbctl"
_START = 20.0  # seconds for a daemon to listen
_STOP = 30.0  # for running transfers to end
_SOCKET_MAX = 107  # bytes of a socket's path


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--trainers", type=_count, default=1, metavar="N",
                        help="trainer workers to wait for (default: 1)")
    parser.add_argument("--rollouts", type=_count, default=1, metavar="N",
                        help="workers of each engine (default: 1)")
    parser.add_argument("--engines", type=_count, default=1, metavar="N",
                        help="engines, each with an agent (default: 1)")
    parser.add_argument("--file", metavar="YAML",
                        help="the WeightTransfer to serve, instead of one made of --trainers and "
                             "--rollouts")
    parser.add_argument("--dir", metavar="DIR",
                        help="for sockets, key and logs; made when it is not there (default: "
                             f"{_default_dir()})")


def _count(text):
    n = int(text)
    if not 1 <= n <= 64:
        raise ValueError
    return n


_count.__name__ = "count of 1 to 64"


def _default_dir():
    return os.path.join(tempfile.gettempdir(), f"weightbridge-local-{os.getuid()}")


def _find(program):
    """Of the build that is named, packed with this package, of this tree's build, or on the PATH."""
    tree = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "build",
                                         "release"))
    named = os.environ.get("WB_BUILD")
    for folder in ([os.path.join(named, "bin")] if named else []) + [programs.FOLDER, os.path.join(tree, "bin")]:
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK):
            return path
    path = shutil.which(program)
    if path:
        return path
    raise WeightBridgeError(
        f"{program} is not found: run `make` in the source tree, and put its build/release/bin on "
        "the PATH (or `make install`)")


def _end_with_parent():
    """In the child: the kernel ends it when its parent is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class _Daemon:
    def __init__(self, name, argv, folder):
        self.name, self.log = name, os.path.join(folder, name + ".log")
        self.ports = os.path.join(folder, name + ".ports")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.ports)
        with open(self.log, "wb") as log:
            # Its own session: Ctrl-C is for us, who end it in order.
            self.p = subprocess.Popen([*argv, "--port-file", self.ports, "--log-format", "text"],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      start_new_session=True, preexec_fn=_end_with_parent)

    def wait(self):
        """Until it listens; {what: port}."""
        end = time.monotonic() + _START
        while time.monotonic() < end:
            self.check()
            with contextlib.suppress(FileNotFoundError), open(self.ports, encoding="ascii") as f:
                ports = dict(line.split() for line in f.read().splitlines())
                if ports:
                    return ports
            time.sleep(0.02)
        raise WeightBridgeError(f"{self.name} does not listen after {_START:.0f} s: see {self.log}")

    def check(self):
        if self.p.poll() is None:
            return
        with open(self.log, encoding="utf-8", errors="replace") as f:
            last = f.readlines()[-1:] or ["(its log is empty)"]
        raise WeightBridgeError(f"{self.name} ended ({self.log}): {last[0].strip()}")

    def end(self):
        if self.p.poll() is None:
            self.p.terminate()


class _Local:
    """The folder, and who runs in it."""

    def __init__(self, args):
        self.args, self.daemons, self.sockets = args, [], {}
        self.dir = os.path.abspath(args.dir or _default_dir())
        self.names = ["trainer", *(f"engine-{i}" for i in range(args.engines))]
        self.programs = {p: _find(p) for p in _PROGRAMS}
        longest = os.path.join(self.dir, max(self.names, key=len) + ".sock")
        if len(os.fsencode(longest)) > _SOCKET_MAX:
            raise WeightBridgeError(f"{self.dir} is too long for sockets (at most {_SOCKET_MAX} "
                                    "bytes with their names): give a shorter --dir")
        os.makedirs(self.dir, 0o700, exist_ok=True)
        if os.stat(self.dir).st_uid != os.getuid():
            raise WeightBridgeError(f"{self.dir} belongs to somebody else: give another --dir")
        self.lock = open(os.path.join(self.dir, "lock"), "w", encoding="ascii")  # noqa: SIM115
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise WeightBridgeError(f"another `weightbridge local` runs in {self.dir}: end it, or "
                                    "give another --dir") from e

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(os.open(self.path(name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w",
                  encoding="ascii") as f:
            f.write(text)
        return self.path(name)

    def object_file(self):
        if self.args.file:
            return self.args.file
        return self.write("transfer.yaml", f"""apiVersion: weightbridge.io/v1alpha1
kind: WeightTransfer
metadata:
  name: local
spec:
  trainer:
    workers: {self.args.trainers}
  rollout:
    workersPerEngine: {self.args.rollouts}
    engines: {self.args.engines}
""")

    def run(self, program, name, *options):
        d = _Daemon(name, [self.programs[program], *options], self.dir)
        self.daemons.append(d)
        return d

    def start(self):
        key = self.write("key", secrets.token_hex(32) + "\n")
        ports = self.run("weightbridge-operator", "operator", "--file", self.object_file(),
                         "--psk-file", key, "--listen", "127.0.0.1:0", "--http",
                         "127.0.0.1:0").wait()
        self.http = "127.0.0.1:" + ports["http"]
        for name in self.names:
            self.sockets[name] = self.path(name + ".sock")
            self.run("weightbridge-agent", name, "--name", name, "--node", name, "--socket",
                     self.sockets[name], "--operator", "127.0.0.1:" + ports["listen"],
                     "--psk-file", key, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        self.agents = ["127.0.0.1:" + d.wait()["http"] for d in self.daemons[1:]]

    def say(self):
        print(f"An operator and {len(self.sockets)} agents run on this machine; Ctrl-C ends them.\n"
              f"Their logs are in {self.dir}.\n")
        print("Start each worker with the socket of its agent:")
        for name, path in self.sockets.items():
            print(f"  {name:<10} export WEIGHTBRIDGE_SOCKET={path}")
        print("\nLook at them from another terminal:\n"
              f"  export WEIGHTBRIDGE_OPERATOR_HTTP={self.http}\n"
              "  wbctl describe        what the operator waits for\n"
              "  wbctl plan explain    once all workers are there\n"
              "  wbctl get             after a transfer\n"
              f"  wbctl verify --agent {','.join(self.agents)}", flush=True)

    def stop(self):
        # Agents first: the operator hears that they leave.
        for d in self.daemons[1:]:
            d.end()
        end = time.monotonic() + _STOP
        for d in [*self.daemons[1:], *self.daemons[:1]]:
            d.end()
            try:
                d.p.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                d.p.kill()
                d.p.wait()
        self.lock.close()


def _interrupt(*_):
    raise KeyboardInterrupt


def main(args):
    """Until Ctrl-C; the exit status."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    local = _Local(args)
    try:
        local.start()
        local.say()
        while True:
            for d in local.daemons:
                d.check()
            time.sleep(0.2)
    except KeyboardInterrupt:
        print("weightbridge: ending the operator and its agents", file=sys.stderr)
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C: it is under way
        local.stop()
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
