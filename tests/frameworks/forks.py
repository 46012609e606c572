# SPDX-License-Identifier: Apache-2.0
"""Workers of a framework by fork: one process imports it, and each worker is a copy of that process as it was then.

To import vLLM or SGLang takes ten seconds of a processor, and what a worker does afterwards takes one.  Nothing is started
before the fork but imports: no thread, no process group, no model.

Run as a program, `forks.py KIND FD`, it is that process: FD is a socket over which it is told what to fork, and it ends, with
all that it forked, when the other end is closed.  KIND is a class of frameworks.py."""
import atexit
import json
import os
import signal
import socket
import subprocess
import sys


class Forker:
    """The process, as tests have it: one for each environment, as its classes import the same."""

    made = {}

    def __init__(self, python, kind, env):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(["nice", "-n", "2", python, os.path.abspath(__file__), kind, str(theirs.fileno())],
                                        pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL)
        theirs.close()
        atexit.register(self.end)

    def end(self):
        self.socket.close()
        self.process.wait()

    @classmethod
    def of(cls, python, kind, env):
        if python not in cls.made:
            cls.made[python] = cls(python, kind, env)
        return cls.made[python]

    def fork(self, said):
        """A worker that is told `said`."""
        return Forked(self, json.dumps(said).encode())


class Forked:
    """What subprocess.Popen is for a program, for a worker: the same names, as far as tests use them.  wait() and poll() give
    -N for signal N, too."""

    def __init__(self, forker, said):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, end = os.pipe()
        lines, say = os.pipe()
        self.socket, self.stdin, self.stdout, self.status = ours, os.fdopen(say, "w"), os.fdopen(out, errors="replace"), None
        socket.send_fds(forker.socket, [said], [theirs.fileno(), end, lines])
        theirs.close()
        os.close(end)
        os.close(lines)
        self.pid = self._hear(None)  # after the imports
        if self.pid is None:
            raise RuntimeError("the process that imports the framework ended")

    def _hear(self, timeout):
        self.socket.settimeout(timeout)
        said = self.socket.recv(64)
        return int(said) if said else None

    def wait(self, timeout=None):
        if self.status is None:
            try:
                self.status = self._hear(timeout)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            if self.status is None:
                self.status = 1
        return self.status

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    terminate = kill


class Server:
    """The process from inside."""

    def __init__(self, fd):
        self.control, self.living = socket.socket(fileno=fd), {}  # pid -> socket of its Forked
        self.ended, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self.wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self):
        import select

        while True:
            ready = select.select([self.control, self.ended], [], [])[0]
            if self.ended in ready:
                os.read(self.ended, 4096)
                self.reap()
            if self.control in ready:
                said, fds, _, _ = socket.recv_fds(self.control, 1 << 16, 3)
                if not said:
                    break
                self.fork(json.loads(said), *fds)
        for pid in self.living:
            os.killpg(pid, signal.SIGKILL)

    def reap(self):
        while self.living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with self.living.pop(pid) as heard:
                tell(heard, os.waitstatus_to_exitcode(status))

    def fork(self, said, heard, out, lines):
        pid = os.fork()
        if pid:
            os.close(out)
            os.close(lines)
            self.living[pid] = socket.socket(fileno=heard)
            return
        os.setsid()
        with socket.socket(fileno=heard) as s:  # now it can be ended with all that it starts
            tell(s, os.getpid())
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for s in (self.control, *self.living.values()):
            s.close()
        for fd in (self.ended, self.wake):
            os.close(fd)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(lines, 0)
        os.close(out)
        os.close(lines)
        worker.run(said)


def tell(heard, number):
    try:
        heard.send(str(number).encode())
    except OSError:
        pass  # the test has ended


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import frameworks
    import worker

    getattr(frameworks, sys.argv[1]).imports()
    assert len(os.listdir("/proc/self/task")) == 1, "to import it starts a thread, which a fork leaves behind"
    Server(int(sys.argv[2])).serve()
    os._exit(0)  # to take all modules down again takes long, and whoever made this waits
