# SPDX-License-Identifier: Apache-2.0
"""What a tenant may try against an operator, from a pod without rights: each attack runs until it is told to end.

    attack.py KIND --seconds N [options]

connects to a real operator, wherever that is: a process beside the test (tests/e2e/test_attacks.py) or the Service of a
cluster (tests/cluster/test_attacks.py).  It prints one JSON line a second with what it achieved, so that a test can hold
that there was an attack, and what share of a processor it took itself ("cpu"), so that a test can compare with `busy`,
which takes as much and touches nobody.  It runs at the lowest priority, with --first as soon as it has counted that much:
what its victim notices is the operator's work, not the attacker's own.  `busy` in place of a program that is no
attacker has that program's priority (--as-it-is).  Standard library only: it also runs in a pod whose image has nothing else.

  slow_headers  --http HOST:PORT  sockets that send one byte of a request each second, made again when they are closed
  idle          --listen HOST:PORT  connections that never say a word
  uploads       --listen --ca --object --agent --token  source maps of 1 GiB that are never finished, as many as are wanted
  readers       --http --page PATH --token  a large page asked for again and again and taken slowly
  chatter       --listen --ca --object --agent --token  messages as long as may be, each another one, without end
  names         --listen --ca --object [--token]  HELLOs under random names for the given object, which may be a stranger's
  busy          --cpu SHARE  no attack at all: so many processors' time, 1.5 is one and a half
"""
import argparse
import collections
import hashlib
import json
import math
import os
import secrets
import socket
import ssl
import struct
import sys
import threading
import time

FRAME = 16
HELLO, REJECT, WORKERS, WANT, CONTENT, REPORT, HEARTBEAT = 0x201, 0x203, 0x205, 0x206, 0x207, 0x20d, 0x20e
GIB, PART = 1 << 30, 4 << 20


def frame(kind, body, version=1):
    return b"WBP1" + struct.pack("<BBHII", version, 0, kind, len(body), 0) + body


def say(kind, **body):
    return frame(kind, json.dumps(body).encode())


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Attack:
    """Counts what was achieved; runs until `seconds` have passed."""

    def __init__(self, o):
        self.o, self.begun = o, time.monotonic()
        self.end, self.cpu_begun = self.begun + o.seconds, time.process_time()
        self.count, self.lock = collections.Counter(), threading.Lock()
        self.first = o.first.split("=") if o.first else None  # until then it may hurry

    def add(self, what, n=1):
        with self.lock:
            self.count[what] += n
            if self.first and self.count[self.first[0]] >= int(self.first[1]):
                self.first = None
                lowest_priority()

    def is_on(self):
        return time.monotonic() < self.end

    def dial(self, to):
        self.add("tried")
        s = socket.create_connection(address(to), timeout=5, source_address=(self.o.source, 0) if self.o.source else None)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a HELLO after its handshake waits 40 ms
        self.add("opened")
        return s

    def secure(self, s):
        context = ssl.create_default_context(cafile=self.o.ca) if self.o.ca else ssl._create_unverified_context()
        context.check_hostname = False
        s = context.wrap_socket(s, server_hostname=self.o.name)
        self.add("tls")
        return s

    def used(self):
        """Seconds of a processor, of all threads."""
        return time.process_time() - self.cpu_begun

    def report(self):
        share = self.used() / max(0.01, time.monotonic() - self.begun)
        print(json.dumps({**self.count, "cpu": round(share, 3)}), flush=True)

    def run(self):
        threads = [threading.Thread(target=self.keep_on, daemon=True) for _ in range(self.o.threads)]
        for t in threads:
            t.start()
        while self.is_on():
            time.sleep(min(1, max(0.01, self.end - time.monotonic())))
            self.report()

    def keep_on(self):
        while self.is_on():
            try:
                self.once()
            except (OSError, ValueError, StopIteration) as e:
                self.add("ended by the other side: " + type(e).__name__)
                time.sleep(0.02)


class Crowd(Attack):
    """So many sockets at once from one thread: they say what step() says, and are made again when they end."""

    def run(self):
        socks, shown = [], 0
        while self.is_on():
            while len(socks) < self.o.sockets and self.is_on():
                try:
                    socks.append(self.dial(self.to()))
                    socks[-1].setblocking(False)
                    self.begin(socks[-1])
                except OSError as e:
                    self.add("refused: " + type(e).__name__)
                    break
            socks = [s for s in socks if self.lives(s)]
            self.count["held"] = len(socks)
            if time.monotonic() >= shown + 1:
                shown = time.monotonic()
                self.report()
            time.sleep(0.2)
        self.report()

    def lives(self, s):
        try:
            if s.recv(4096) == b"":
                raise ConnectionResetError
        except BlockingIOError:
            pass
        except OSError:
            self.add("closed")
            s.close()
            return False
        return self.step(s)

    def begin(self, s):
        pass

    def step(self, s):
        return True


class SlowHeaders(Crowd):
    def __init__(self, o):
        super().__init__(o)
        self.next = {}  # socket -> when its next byte is due

    def to(self):
        return self.o.http

    def begin(self, s):
        s.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        self.next[s] = time.monotonic() + 1

    def step(self, s):
        if time.monotonic() < self.next[s]:
            return True
        self.next[s] = time.monotonic() + 1
        try:
            s.send(b"a")
        except OSError:
            return False
        return True


class Idle(Crowd):
    def to(self):
        return self.o.listen


class Readers(Crowd):
    """A reader takes some KiB of his page a second, and asks for it again when he is cut."""

    def to(self):
        return self.o.http

    def begin(self, s):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.send(f"GET {self.o.page} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {open(self.o.token).read().strip()}\r\n\r\n".encode())


class Talker(Attack):
    """One that speaks the protocol."""

    def hello(self, agent):
        return say(HELLO, version_min=1, version_max=1, build="x", agent=agent, token=self.token(), objects=[self.o.object],
                   node="n", host="127.0.0.1", port=1, bulk="", transports=["tcp"], instance=secrets.randbits(62) + 1)

    def token(self):
        if self.o.token:
            return open(self.o.token).read().strip()
        return secrets.token_urlsafe(24)

    def is_let_in(self, s):
        s.settimeout(20)
        s.sendall(self.hello(self.o.agent))
        if next(Frames(s).come(20))[0] != REJECT:
            return True
        self.add("rejected")
        time.sleep(0.2)
        return False


class Frames:
    """Whole frames from a socket; what has come of the next one is kept."""

    def __init__(self, s):
        self.s, self.data = s, b""

    def come(self, seconds):
        """Those that are there, or the first that comes in so many seconds."""
        while True:
            n = FRAME + struct.unpack_from("<I", self.data, 8)[0] if len(self.data) >= FRAME else FRAME
            if len(self.data) >= FRAME and len(self.data) >= n:
                whole, self.data = self.data[:n], self.data[n:]
                yield struct.unpack_from("<H", whole, 6)[0], whole[FRAME:]
                seconds = 0.001
                continue
            self.s.settimeout(seconds)
            try:
                got = self.s.recv(1 << 20)
            except (TimeoutError, ssl.SSLWantReadError):
                return
            if not got:
                raise ConnectionResetError
            self.data += got


class Names(Talker):
    """Each HELLO has another name; every second one a token that is none."""

    def once(self):
        s = self.secure(self.dial(self.o.listen))
        with s:
            s.settimeout(5)
            s.sendall(self.hello("agent-" + secrets.token_hex(8)))
            kind = next(Frames(s).come(5))[0]
            self.add("rejected" if kind == REJECT else "answered")


class Uploads(Talker):
    """A tenant with a token, whose object counts one worker in an engine and the others as trainers: nobody has their
    maps, each is a GiB, and all but its end is sent."""

    def once(self):
        s = self.secure(self.dial(self.o.listen))
        with s:
            if not self.is_let_in(s):
                return
            digests = ["xxh128:" + secrets.token_hex(16) for _ in range(self.o.maps + 1)]
            s.sendall(say(WORKERS, object=self.o.object, workers=[
                {"id": i, "name": f"w{i}", "role": 1 if i else 2, "engine": "" if i else "e", "rank": max(0, i - 1),
                 "manifest": digests[0], "map": digests[i + 1], "mem_kind": 0, "version": -1} for i in range(self.o.maps)]))
            self.feed(s, digests[0])

    def feed(self, s, manifest):
        """Parts of all wanted content in turn, the last of each never."""
        wanted, data, frames = {}, bytes(PART), Frames(s)
        while self.is_on():
            for kind, body in frames.come(0.01 if wanted else 1):
                if kind == REJECT:
                    self.add("rejected")
                elif kind == WANT:
                    for d in json.loads(body)["digests"]:
                        wanted.setdefault(d, 0)
            self.count["wanted"] = max(self.count["wanted"], len(wanted))
            s.settimeout(20)
            for d, sent in wanted.items():
                total = self.o.manifest_mib << 20 if d == manifest else GIB
                if sent + PART >= total or not self.is_on():
                    continue
                name, hi, lo = self.o.object.encode(), int(d[7:23], 16), int(d[23:], 16)
                head = struct.pack("<I", len(name)) + name + struct.pack(
                    "<IQQQQI", 1 if d == manifest else 2, hi, lo, total, sent, len(data))
                s.sendall(frame(CONTENT, head + data))
                wanted[d] = sent + PART
                self.add("mib", PART >> 20)


class Chatter(Talker):
    """A tenant with a token, who says something else at each breath, as long as a message may be: all workers anew, with maps
    that nobody has, and reports of engines and transfers that there never were."""
    N, M = 1000, 400

    def once(self):
        s = self.secure(self.dial(self.o.listen))
        with s:
            if not self.is_let_in(s):
                return
            threading.Thread(target=self.drain, args=(s,), daemon=True).start()
            messages = [self.of_workers(i) for i in range(8)] + [self.of_transfers(i) for i in range(8)]
            while self.is_on():
                for m in messages:
                    s.sendall(m)
                    self.add("messages")
                    self.add("mib", len(m) / (1 << 20))

    def drain(self, s):
        try:
            while s.recv(1 << 20):
                pass
        except (OSError, ValueError):
            pass

    def of_workers(self, n):
        return say(WORKERS, object=self.o.object, workers=[
            {"id": i, "name": f"w{i}" + "x" * 180, "role": 1 + (i + n) % 2, "engine": f"e{n}-{i}" + "y" * 180, "rank": i, "mem_kind": 0,
             "manifest": "xxh128:" + secrets.token_hex(16), "map": "xxh128:" + secrets.token_hex(16), "version": -1} for i in range(self.N)])

    def of_transfers(self, n):
        return say(REPORT, object=self.o.object, epoch={"term": 1, "number": n}, transfer=n + 1, version=n, state="Workers",
                   engines=[{"engine": f"e{n}-{i}", "state": "Committed", "version": n, "transfer": n + 1, "sentence": "z" * 500}
                            for i in range(self.M)],
                   workers=[{"worker": n * 1024 + i, "stop_ns": 1, "resume_ns": 2, "sent_bytes": 0, "received_bytes": 0, "phases": [
                       {"name": f"p{k}", "start_ns": k, "end_ns": k + 1} for k in range(8)]} for i in range(self.N)])


class Busy(Attack):
    """The control of an attack: takes the processor time that it took, and nothing else of anybody."""

    def __init__(self, o):
        super().__init__(o)
        o.threads = max(1, math.ceil(o.cpu))
        self.data = bytes(1 << 18)  # hashed without Python's lock, so that several threads are several processors' work

    def once(self):
        if self.used() < self.o.cpu * (time.monotonic() - self.begun):
            hashlib.sha256(self.data).digest()
        else:
            time.sleep(0.002)


KINDS = {"slow_headers": SlowHeaders, "idle": Idle, "readers": Readers, "uploads": Uploads, "names": Names, "chatter": Chatter, "busy": Busy}


def lowest_priority():
    """All threads run when nobody else wants to."""
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        os.nice(19)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=KINDS)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--http", help="where the operator's pages are")
    p.add_argument("--listen", help="where agents connect")
    p.add_argument("--source", help="address to connect from, where the machine has several")
    p.add_argument("--name", default="operator.test", help="of the operator's certificate")
    p.add_argument("--ca")
    p.add_argument("--object")
    p.add_argument("--agent")
    p.add_argument("--token", help="file; without it each HELLO has a token that is none")
    p.add_argument("--page", help="path and query")
    p.add_argument("--sockets", type=int, default=400)
    p.add_argument("--cpu", type=float, default=1, help="processors whose time `busy` takes")
    p.add_argument("--threads", type=int, default=4)
    p.add_argument("--maps", type=int, default=512, help="workers of an upload, each with a map of its own")
    p.add_argument("--manifest-mib", type=int, default=64, help="what is said of the manifest's size")
    p.add_argument("--as-it-is", action="store_true", help="of the priority that it was started with")
    p.add_argument("--first", help="WHAT=N: of the lowest priority when it has counted N of WHAT, and not before")
    o = p.parse_args()
    if not o.first and not o.as_it_is:
        lowest_priority()
    KINDS[o.kind](o).run()


if __name__ == "__main__":
    sys.exit(main())
