# SPDX-License-Identifier: Apache-2.0
"""Strangers at every listening socket of real daemons: garbage, frames that lie about their length,
halves of frames, other versions, wrong keys, silence.  Each is refused with a sentence in the log,
costs neither descriptors nor memory, and the next transfer commits."""
import array
import json
import os
import random
import re
import socket
import struct
import time

from cluster import BUILD, Cluster, Failed, Proc, SLOW, run

KEY = "a7" * 32
OPERATOR_ID = "weightbridge"
MIB = 1 << 20
APP_HELLO, APP_SEND, HELLO, WORKERS = 0x101, 0x108, 0x201, 0x205
rng = random.Random(7)


def frame(kind, body=b"", length=None, version=1, flags=0, magic=b"WBP1"):
    return magic + struct.pack("<BBHII", version, flags, kind,
                               len(body) if length is None else length, 0) + body


def junk(n):
    return bytes(rng.randrange(256) for _ in range(n))


def fds(p):
    return len(os.listdir(f"/proc/{p.p.pid}/fd"))


def rss(p):
    with open(f"/proc/{p.p.pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) << 10


def heard(c, proc, *patterns, timeout=20.0):
    """All of these have been logged, in any order."""
    def missing():
        proc.drain()
        return [p for p in patterns if not any(re.search(p, line) for line in proc.seen)]
    try:
        c.until("", lambda: not missing(), timeout * SLOW)
    except Failed:
        raise Failed(f"{proc.name} did not say {missing()}") from None


def tcp(port, data=b"", leave=False):
    s = socket.create_connection(("127.0.0.1", port), timeout=5)
    if data:
        s.sendall(data)
    if leave:
        s.close()
        return None
    return s


def is_closed(s):
    """The other side ended it; what it said first."""
    s.settimeout(20 * SLOW)
    said = b""
    try:
        while part := s.recv(65536):
            said += part
    except ConnectionResetError:
        pass
    s.close()
    return said


class Deployed:
    """A trainer and a rollout that have had one version; the processes must be as they were."""

    def __init__(self, c, *args):
        self.c, self.version = c, 0
        c.operator()
        c.agent("t", *args)
        c.agent("r", *args)
        self.t, self.r = c.worker("t", "trainer"), c.worker("r", "rollout", engine="e")
        self.t.expect("planned")
        self.r.expect("planned")
        self.transfer()
        self.transfer()
        self.daemons = [c.op, *c.agents.values()]
        self.before = {p.name: (fds(p), rss(p)) for p in self.daemons}

    def transfer(self):
        self.version += 1
        self.t.say(f"send {self.version}")
        self.t.expect(f"sent {self.version} .*Committed")
        self.r.expect(f"update {self.version} ok")

    def check(self):
        for p in self.daemons:
            n, bytes_ = self.before[p.name]
            assert p.p.poll() is None, p.name
            self.c.until(f"{p.name} has {n} descriptors again", lambda p=p, n=n: fds(p) <= n)
            grown = rss(p) - bytes_
            assert grown <= 8 * MIB or SLOW > 1, f"{p.name} grew by {grown >> 10} KiB"
        self.transfer()


# ---- the workers' socket


def app(path, *datagrams, passed=0):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    for d in datagrams:
        null = [os.open("/dev/null", os.O_RDONLY) for _ in range(passed)]
        s.sendmsg([d], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", null))]
                  if null else [])
        for fd in null:
            os.close(fd)
    return s


def the_workers_socket():
    with Cluster() as c:
        d = Deployed(c)
        a = c.agents["t"]
        hello = struct.pack("<II", 7, 9) + struct.pack("<I", 1) + b"x" + struct.pack("<I", 1)
        socks = [app(a.socket, x) for x in (
            junk(500), junk(3), frame(APP_HELLO, hello, magic=b"HTTP"),
            frame(APP_HELLO, junk(50), length=5000), frame(APP_HELLO, length=0x7fffffff),
            frame(APP_HELLO, hello), frame(0x7777), frame(APP_HELLO, hello, flags=0x80),
            frame(APP_SEND, bytes(12)), frame(APP_HELLO, b"\xff" * 400))]
        socks.append(app(a.socket, junk(200), passed=20))
        socks.append(app(a.socket, junk(200), passed=200))
        said = [is_closed(s) for s in socks]
        assert b"upgrade" in said[5], said[5]  # it is told, too
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(a.socket)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
        s.send(junk(150 << 10))  # above what a datagram may have
        is_closed(s)
        silent = app(a.socket)
        heard(c, a, "refused.*not a WeightBridge", "refused.*truncated|refused.*bytes",
              "refused.*(above|at most|cap)", "refused.*upgrade", "refused.*flag",
              "refused.*out of place", "refused.*a datagram above the limit",
              "refused.*descriptors did not fit", "refused.*did not say who it is")
        assert is_closed(silent)
        d.check()


# ---- the agents' port: TLS and bulk


def bulk(kind, body=b"", version=1, length=None):
    return b"WBLK" + struct.pack("<BBH", version, kind, length or len(body) + 8) + body


def bulk_hello(object_, term, number, dialer=b"t", acceptor=b"r", count=1, over=1):
    return bulk(1, struct.pack("<QQQQHHHHQ", object_, term, number, 77, 0, count, 4, over, 0) +
                junk(32) + dialer.ljust(64, b"\0") + acceptor.ljust(64, b"\0"))


def peer(c, port, id_=OPERATOR_ID, key=KEY):
    p = Proc("peer", [f"{BUILD}/tools/tls_peer", "127.0.0.1", str(port), id_, key], stdin=True)
    c.procs.append(p)
    return p


def epoch_of(c):
    """Object, term and number of the plan in force, as a stranger on the network sees them."""
    def look():
        for a in c.agents.values():
            a.drain()
            for line in a.seen:
                m = re.search(r"peer up .*epoch=([0-9a-f]+)/(\d+)/(\d+)", line)
                if m:
                    return m[1], int(m[2]), int(m[3])
        return None
    return c.until("an epoch in the log", look)


def the_agents_port():
    with Cluster() as c:
        d = Deployed(c)
        a = c.agents["r"]
        uid, term, number = epoch_of(c)
        port = int(re.search(r"port=(\d+)", next(x for x in a.seen if "agent: started" in x))[1])
        obj = int(Proc("object", [f"{BUILD}/tools/tls_peer", "object", uid]).expect(r"\d+")[0])
        stay = [tcp(port, x) for x in (
            b"GET / HTTP/1.0\r\n\r\n", b"\x16" + junk(400), b"\x16\x03\x01\x40\x00" + junk(50),
            junk(1) + b"\x00" * 600, bulk(1, junk(208)), bulk(1, junk(208), version=2),
            bulk(9, junk(56)), bulk(12, junk(100), length=0xffff),
            bulk_hello(obj, term, number + 5), bulk_hello(obj, term, number, acceptor=b"z"),
            bulk_hello(obj, term, number, count=99),
            bulk_hello(obj, term, number) + bulk(3, junk(32)))]
        slow = [tcp(port), tcp(port, b"\x16\x03"), tcp(port, b"WBLK\x01\x01"),
                tcp(port, bulk_hello(obj, term, number)[:100])]
        for x in (b"\x16\x03\x01", b"WBLK", bulk_hello(obj, term, number)[:60], b""):
            tcp(port, x, leave=True)
        other = peer(c, port, f"{uid}/{term}/{number + 7}", KEY)
        wrong = peer(c, port, f"{uid}/{term}/{number}", KEY)
        t0 = time.monotonic()
        while time.monotonic() - t0 < 4:  # a byte now and then
            for s in slow[1:]:
                try:
                    s.send(b"\0")
                except OSError:
                    pass
            time.sleep(0.5)
        other.expect("closed .*key", reject=None)
        wrong.expect("closed .*key", reject=None)
        for s in stay + slow:
            is_closed(s)
        heard(c, a, "refused.*not a frame", "refused.*another version of the protocol",
              "refused.*does not know epoch", "refused.*looks for agent z here",
              "refused.*does not hold our key of epoch", "refused.*damaged frame",
              "refused.*closed the connection", "refused.*did not finish the challenge in time",
              "refused.*said nothing", "refused.*no answer within|refused.*TLS",
              "refused.*key")
        d.check()


def a_bulk_socket_of_shared_memory():
    with Cluster() as c:
        d = Deployed(c, "--transport", "shm")
        a = c.agents["r"]
        mine = set()
        for fd in os.listdir(f"/proc/{a.p.pid}/fd"):
            try:
                mine.add(os.readlink(f"/proc/{a.p.pid}/fd/{fd}"))
            except OSError:
                pass
        with open("/proc/net/unix", encoding="utf-8") as f:
            rows = [line.split() for line in f]
        names = {r[7] for r in rows if len(r) > 7 and r[7].startswith("@") and
                 f"socket:[{r[6]}]" in mine and r[3] == "00010000"}
        assert names, "no abstract socket"
        for name in names:
            for data in (junk(300), b"WBLK\x01\x01\xd8\x00" + junk(208), bulk(1, junk(208), 2),
                         bulk_hello(1, 2, 3, over=2)):
                s = socket.socket(socket.AF_UNIX)
                s.connect("\0" + name[1:])
                s.sendall(data)
                is_closed(s)
        heard(c, a, "refused.*not a frame", "refused.*damaged frame", "refused.*another version",
              "refused.*epoch")
        d.check()


# ---- the operator's port


def hello(**change):
    body = {"version_min": 1, "version_max": 1, "build": "x", "agent": "mallory", "objects": [],
            "node": "n", "host": "127.0.0.1", "port": 1, "bulk": "", "transports": ["tcp"],
            "instance": 5, **change}
    return frame(HELLO, json.dumps(body).encode())


def the_operators_port():
    with Cluster() as c:
        d = Deployed(c)
        op = c.op
        c.write_key(c.path("other"), "b8" * 32)
        for data in (b"GET / HTTP/1.0\r\n\r\n", junk(64), b"\x16" + junk(300)):
            is_closed(tcp(op.port, data))
        slow = [tcp(op.port), tcp(op.port, b"\x16\x03\x01\x02\x00\x01")]
        for x in (b"", b"\x16\x03\x01"):
            tcp(op.port, x, leave=True)
        peer(c, op.port, key="b8" * 32).expect("closed .*key", reject=None)
        peer(c, op.port, id_="nobody").expect("closed .*key", reject=None)
        said = []
        for data in (junk(64), frame(HELLO, length=0x7fffffff), frame(WORKERS, b"{}"),
                     frame(HELLO, b"{}"), frame(HELLO, b"[" * 60000), frame(HELLO, junk(300)),
                     hello(version_min=7, version_max=9), hello(agent=""),
                     hello(nonsense=1), hello(agent="x" * 5000), hello(instance=-1),
                     hello(objects=["default/nope"])):
            p = peer(c, op.port)
            p.expect("open")
            p.say(data.hex())
            p.expect("closed", reject=None)
            said += p.seen
        text = "".join(bytes.fromhex(x.split()[2]).decode(errors="replace") for x in said
                       if x.startswith("frame"))
        for words in ("upgrade", "must be first", "no object default/nope", "name and instance"):
            assert words in text, (words, text)
        cut = peer(c, op.port)
        cut.expect("open")
        cut.say(hello()[:-10].hex())
        cut.say("close")
        silent = peer(c, op.port)
        silent.expect("open")
        again = peer(c, op.port)  # an agent that is known, then talks nonsense
        again.expect("open")
        again.say(hello().hex())
        again.expect("frame")
        again.say(frame(WORKERS, b'{"object": 5}').hex())
        again.expect("closed", reject=None)
        for s in slow:
            is_closed(s)
        silent.expect("closed", reject=None, timeout=25 * SLOW)
        heard(c, op, "refused.*does not speak TLS", "refused.*TLS|refused.*not a",
              "refused.*key", "refused.*said nothing", "refused.*no answer within",
              "(bad message|refused).*not a WeightBridge", "refused.*(above|at most|cap)",
              "bad message.*must be first", "refused.*middle of a frame", "agent is silent")
        d.check()


# ---- the pages


END = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
BAD_REQUESTS = [
    junk(500), b"GET /" + b"a" * 60000 + END + b"\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /" + END + b"X: " + b"b" * 60000 + b"\r\n\r\n",
    b"POST /status" + END + b"Content-Length: 5\r\n\r\nhello",
    b"POST /" + END + b"Content-Length: 99999999999999999999\r\n\r\n",
    b"GET /../../etc/passwd" + END + b"\r\n",
    b"GET /trace?transfer=-1%00%ff" + END + b"\r\n"]


def the_pages():
    with Cluster() as c:
        d = Deployed(c)
        open_ = {}
        for p in (c.op, c.agents["t"]):
            open_[p] = [tcp(p.http, x) for x in BAD_REQUESTS]
            open_[p] += [tcp(p.http, b"GET / HT") for _ in range(20)]
        for p, socks in open_.items():
            assert c.get(p, "/healthz")[0] == 200
            said = [is_closed(s) for s in socks]
            assert b"405" in said[4], said[4]
            assert b"404" in said[6], said[6]
            for path in ("/healthz", "/metrics"):
                assert c.get(p, path)[0] == 200
        d.check()


if __name__ == "__main__":
    import sys
    tests = [the_workers_socket, the_agents_port, a_bulk_socket_of_shared_memory,
             the_operators_port, the_pages]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]], together=5)
