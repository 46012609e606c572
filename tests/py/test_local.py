# SPDX-License-Identifier: Apache-2.0
"""`weightbridge local` and the examples of the Python package, as a newcomer runs them."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("WB_BUILD", os.path.join(TOP, "build", "release"))
PACKAGE = os.path.join(TOP, "agent", "python")
EXAMPLES = os.path.join(PACKAGE, "examples")
BOUND = 120


def environment(**more):
    return {**os.environ, "PYTHONPATH": PACKAGE, "WB_BUILD": BUILD, "PYTHONUNBUFFERED": "1", **more}


def command(folder, *args):
    return [sys.executable, "-m", "weightbridge", "local", "--dir", folder, *args]


def ends(p):
    """The exit status; what does not end is killed and fails."""
    try:
        return p.wait(BOUND)
    except subprocess.TimeoutExpired:
        p.kill()
        raise


def alive(folder):
    """Daemons of the folder: pid to command line."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
            line = f.read().replace(b"\0", b" ").decode()
            if folder in line and "bin/weightbridge-" in line:
                found[int(pid)] = line
    return found


class Local:
    """The command, until its last line is out."""

    def __init__(self, *args, folder=None):
        self.keep = None if folder else tempfile.TemporaryDirectory(dir="/tmp")  # sockets: short
        self.folder = folder or self.keep.name
        self.p = subprocess.Popen(command(self.folder, *args), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=environment())
        self.text, self.whole = "", threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.whole.wait(BOUND), self.text
        self.socket = dict(re.findall(r"(\S+) +export WEIGHTBRIDGE_SOCKET=(\S+)", self.text))
        self.http = re.search(r"OPERATOR_HTTP=(\S+)", self.text)

    def _read(self):
        for line in self.p.stdout:
            self.text += line
            if "wbctl verify" in line:
                break
        self.whole.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGINT)
        ends(self.p)
        if self.keep:
            self.keep.cleanup()


def it_prints_what_to_run_and_ctrl_c_ends_all():
    with Local("--trainers", "2", "--rollouts", "2", "--engines", "2") as x:
        assert sorted(x.socket) == ["engine-0", "engine-1", "trainer"], x.text
        assert all(os.path.exists(s) for s in x.socket.values())
        wbctl = [os.path.join(BUILD, "bin", "wbctl")]
        env = environment(WEIGHTBRIDGE_OPERATOR_HTTP=x.http[1])
        said = subprocess.run([*wbctl, "describe"], capture_output=True, text=True, env=env,
                              check=True, timeout=BOUND).stdout
        assert "waiting for 2 of 2 trainer workers" in said and "2 engines of 2 workers" in said, said
        assert len(alive(x.folder)) == 4
        again = subprocess.run(command(x.folder), capture_output=True, text=True,
                               env=environment(), check=False, timeout=BOUND)
        assert again.returncode == 1 and "another `weightbridge local` runs in" in again.stderr, again
        x.p.send_signal(signal.SIGINT)
        assert ends(x.p) == 0, x.p.stderr.read()
        assert not alive(x.folder)


def a_daemon_that_ends_ends_all_and_is_named():
    with Local() as x:
        [pid] = [p for p, line in alive(x.folder).items() if "/engine-0.sock" in line]
        os.kill(pid, signal.SIGKILL)
        assert ends(x.p) == 1
        assert re.search(r"weightbridge: engine-0 ended \(.*engine-0.log\): ", x.p.stderr.read())
        assert not alive(x.folder)


def nothing_is_left_when_it_is_killed():
    with Local() as x:
        x.p.kill()
        x.p.wait()
        end = time.monotonic() + BOUND
        while alive(x.folder):
            assert time.monotonic() < end, alive(x.folder)
            time.sleep(0.02)


def bad_input_is_one_sentence():
    with tempfile.TemporaryDirectory(dir="/tmp") as d:
        bad = os.path.join(d, "bad.yaml")
        with open(bad, "w", encoding="ascii") as f:
            f.write("kind: WeightTransfer\n")
        deep = os.path.join(d, "x" * 100)
        for args, status, sentence in (
                (["--trainers", "0"], 2, "invalid count of 1 to 64 value"),
                (["--train", "1"], 2, "unrecognized arguments: --train"),
                (["--file", bad], 1, "operator ended"),
                (["--file", os.path.join(d, "none.yaml")], 1, "No such file"),
                (["--dir", deep], 1, "is too long for sockets")):
            r = subprocess.run(command(d, *args), capture_output=True, text=True, check=False,
                               env=environment(), timeout=BOUND)
            assert r.returncode == status and sentence in r.stderr, (args, r)
            assert "Traceback" not in r.stderr and not alive(d), r
        env = {k: v for k, v in environment(PATH="/nowhere").items() if k != "WB_BUILD"}
        # As pip installs it: away from the tree.
        os.symlink(os.path.join(PACKAGE, "weightbridge"), os.path.join(d, "weightbridge"))
        r = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); "
                            "from weightbridge.__main__ import main; sys.exit(main())", d, "local",
                            "--dir", d], capture_output=True, text=True, check=False, timeout=BOUND,
                           env={**env, "PYTHONPATH": ""})
        assert r.returncode == 1 and "weightbridge-operator is not found" in r.stderr, r


def example(kind, python=sys.executable):
    """Both processes of an example, started as the README says."""
    folder = os.path.join(EXAMPLES, kind)
    with Local("--file", os.path.join(folder, "transfer.yaml")) as x:
        run = {who: subprocess.Popen(
            [python, os.path.join(folder, program)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env=environment(WEIGHTBRIDGE_SOCKET=x.socket[who],
                            WB_LIB=os.path.join(BUILD, "lib", "libweightbridge.so.0")))
            for who, program in (("engine-0", "rollout.py"), ("trainer", "trainer.py"))}
        try:
            said = {who: p.communicate(timeout=BOUND)[0] for who, p in run.items()}
        finally:
            for p in run.values():
                p.kill()
        assert all(p.returncode == 0 for p in run.values()), said
        assert re.findall(r"runs version (\d)", said["engine-0"]) == list("12345"), said
        assert re.findall(r"sent version (\d)", said["trainer"]) == list("12345"), said
        return said


def the_numpy_example_runs():
    assert "{'engine-0': 'Committed'}" in example("numpy")["trainer"]


def main():
    for test in (it_prints_what_to_run_and_ctrl_c_ends_all, a_daemon_that_ends_ends_all_and_is_named,
                 nothing_is_left_when_it_is_killed, bad_input_is_one_sentence,
                 the_numpy_example_runs):
        test()
        print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
