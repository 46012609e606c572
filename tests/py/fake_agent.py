# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the app protocol for tests, by PROTOCOL.md and nothing of the project.

One thread per script; every wait is bounded and every surprise is an AssertionError, which
Script.join() raises in the test.
"""

import mmap
import os
import socket
import struct
import tempfile
import threading

HELLO, WELCOME, REJECT, ATTACH, ATTACHED, STATUS, PLANNED = range(0x101, 0x108)
SEND, SEND_STATE, RELEASE, GO, WAKE, PARKED, BEGIN, BEGUN = range(0x108, 0x110)
END, RESUMED, DETACH = range(0x110, 0x113)
MEM_RELEASE, MEM_RELEASED, MEM_ACQUIRE, MEM_ACQUIRED = range(0x116, 0x11a)

# Fields in order: I u32, Q u64, q i64, s string, S strings.
FIELDS = {HELLO: "IIsI", WELCOME: "Iss", REJECT: "qs", ATTACH: "ssIsqIIQQQIIIQ", ATTACHED: "IsI",
          STATUS: "s", PLANNED: "QQsqB", SEND: "qI", SEND_STATE: "QqIqsSSQB", RELEASE: "Q", GO: "I",
          WAKE: "I", PARKED: "I", BEGIN: "QqB", BEGUN: "Qqs", END: "QqIsqs", RESUMED: "Qqs",
          DETACH: "I", MEM_RELEASE: "I", MEM_RELEASED: "qs", MEM_ACQUIRE: "QIIB", MEM_ACQUIRED: "Iqs"}

COUNT = 12  # the place of `count` in what ATTACH says

COMMITTED, ABORTED, TORN, TORN_FINAL = 1, 2, 3, 4
E_ABORTED = -4005
HOLD, KEEP = 1, 2  # flags of SEND


def encode(kind, *values):
    body = b""
    values += (0,) * (len(FIELDS[kind]) - len(values))  # fields that came later
    assert len(values) == len(FIELDS[kind])
    for code, v in zip(FIELDS[kind], values):
        if code == "s":
            body += struct.pack("<I", len(v.encode())) + v.encode()
        elif code == "S":
            body += struct.pack("<I", len(v))
            for s in v:
                body += struct.pack("<I", len(s.encode())) + s.encode()
        else:
            body += struct.pack("<" + code, v)
    return struct.pack("<4sBBHII", b"WBP1", 1, 0, kind, len(body), 0) + body


def decode(data):
    magic, version, _, kind, size, _ = struct.unpack_from("<4sBBHII", data)
    assert magic == b"WBP1" and version == 1 and len(data) == 16 + size
    at, out = 16, []
    for code in FIELDS[kind]:
        if code == "s":
            n, = struct.unpack_from("<I", data, at)
            out.append(data[at + 4:at + 4 + n].decode())
            at += 4 + n
        else:
            out.append(struct.unpack_from("<" + code, data, at)[0])
            at += struct.calcsize("<" + code)
    assert at <= len(data)  # a newer library may say more
    return kind, out


class Agent:
    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="wb", dir=None if len(
            tempfile.gettempdir()) < 80 else "/tmp")
        self.path = os.path.join(self.dir.name, "agent.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.listener.settimeout(20)
        self.connection = None
        self.fds = []

    def close(self):
        self.drop()
        self.listener.close()
        self.dir.cleanup()

    def drop(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def send(self, kind, *values, fds=()):
        data = encode(kind, *values)
        if fds:
            socket.send_fds(self.connection, [data], list(fds))
        else:
            self.connection.send(data)

    def recv(self):
        data, fds, _, _ = socket.recv_fds(self.connection, 1 << 17, 32)
        for fd in self.fds:
            os.close(fd)
        self.fds = list(fds)
        return decode(data) if data else (0, [])

    def expect(self, kind):
        got, values = self.recv()
        assert got == kind, f"wants {kind:#x}, gets {got:#x} {values}"
        return values

    def hello(self):
        self.drop()
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(20)
        build = self.expect(HELLO)[2]  # as of the same release
        self.send(WELCOME, 1, build, "agent-x")

    def attached(self):
        fd = os.memfd_create("page", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096)
        self.page = mmap.mmap(fd, 4096)
        self.send(ATTACHED, 7, "worker-x", 0, fds=[fd])
        os.close(fd)

    def up(self):
        """Attach and plan; returns what ATTACH said, and keeps its blobs."""
        self.hello()
        said = self.expect(ATTACH)
        self.blobs = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in self.fds[:3]]
        self.memfds = [os.fstat(fd).st_ino for fd in self.fds[3:]]
        self.attached()
        self.send(PLANNED, 3, 5, "xxh128:" + "1" * 32, -1, 0)
        return said

    def word(self):
        count, stop = struct.unpack_from("<II", self.page)
        return count, stop

    def set_stop(self, stop):
        # Not one atomic step with a look at count: the scripts only use it where the worker
        # stands still, or where any of its polls will do.
        struct.pack_into("<I", self.page, 4, stop)

    def stop_far(self):
        """A stop that a polling worker will reach, whatever it does meanwhile."""
        self.set_stop(self.word()[0] + 100000)

    def end(self, transfer, result, sentence=""):
        self.set_stop(0)
        self.send(END, transfer, transfer * 10, result, "xxh128:" + "2" * 32,
                  0 if result == COMMITTED else E_ABORTED, sentence)

    def state(self, transfer, state, code=0, sentence="", engines=None):
        engines = engines or {}
        self.send(SEND_STATE, transfer, transfer * 10, state, code, sentence, list(engines),
                  list(engines.values()), 1500000)


class Script(threading.Thread):
    """Runs `play(agent)`; join() raises what it raised."""

    def __init__(self, play):
        super().__init__(daemon=True)
        self.play, self.error, self.agent = play, None, Agent()
        self.start()

    def run(self):
        try:
            self.play(self.agent)
        except BaseException as e:
            self.error = e
            self.agent.drop()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.join(30)
            assert not self.is_alive(), "the script is not done"
        if self.error is not None:
            raise self.error
        self.agent.close()
