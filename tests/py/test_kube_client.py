# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client against a server that misbehaves: frames cut at every byte, 410, stalls, token swaps, 429."""
import os
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
from kubefake import Client, Server, event, kubeconfig, make_certificate, thing  # noqa: E402

PATH = "/api/v1/things"
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
D = CERT = None


class Case:
    """A server with its client; handler(request, conn, number of the request)."""

    def __init__(self, handler, user=None, cluster=None, config=None, path=PATH, **options):
        self.n = 0

        def handle(rq, conn):
            self.n += 1
            handler(rq, conn, self.n)
        self.server = Server(CERT, handle)
        self.server.mute = options.pop("mute", False)
        url = f"https://127.0.0.1:{self.server.port}"
        config = config(self.server.port) if config else kubeconfig(os.path.join(D, "config"), url, CERT[0], user,
                                                                      cluster)
        self.client = Client(config, path, **options)

    def __enter__(self):
        return self.server, self.client

    def __exit__(self, *exc):
        self.server.close()
        self.client.p.stdin.close() if exc[0] else self.client.close()
        if not exc[0]:
            assert not self.server.errors, self.server.errors


def hold(conn, seconds=20):
    """Keep the connection open and silent until the other side goes."""
    conn.sock.settimeout(seconds)
    try:
        conn.sock.recv(1)
    except OSError:
        pass
    conn.cut()


def pages_and_every_byte():
    stream = b"".join(event(k, o) for k, o in [
        ("ADDED", thing("c", 11)), ("MODIFIED", thing("a", 12)), ("BOOKMARK", {"metadata": {"resourceVersion": "13"}}),
        ("FUTURE", {}), ("DELETED", thing("b", 14)), ("ADDED", thing("\u00e9" * 3, 15))])

    def handler(rq, conn, n):
        assert rq.path == PATH and rq.headers["authorization"] == "Bearer secret"
        if n == 1:
            assert rq.query == {"limit": "1"}, rq.query
            conn.listing([thing("a", 5)], "10", "next/1 &=?")
        elif n == 2:
            assert rq.query == {"limit": "1", "continue": "next/1 &=?"}, rq.query
            conn.listing([thing("b", 6)], "10")
        elif n == 3:
            assert rq.query["watch"] == "1" and rq.query["resourceVersion"] == "10", rq.query
            assert rq.query["allowWatchBookmarks"] == "true" and 300 <= int(rq.query["timeoutSeconds"]) <= 600
            conn.begin()
            for i in range(len(stream)):
                conn.chunk(stream[i:i + 1])
            conn.end()
        elif n == 4:
            assert rq.query["resourceVersion"] == "15", rq.query
            conn.begin()
            conn.chunk(event("ADDED", thing("d", 16))[:-1])  # a last line without its end
            conn.end()
        else:
            assert rq.query["resourceVersion"] == "16", rq.query
            hold(conn)

    with Case(handler, page=1) as (s, c):
        assert [c.short() for _ in range(8)] == ["+a", "+b", "=2", "+c", "+a", "-b", "+\u00e9\u00e9\u00e9", "+d"]
        st = c.stats()
        assert st["lists"] == 1 and st["bookmarks"] == 1 and st["failures"] == 0, st


def long_objects_come_in_shorter_pages():
    """What tenants write into their objects is as long as they like, and all that the client keeps of it is what it needs."""
    n, limits = 120, []
    things = [{**thing(f"t-{i}", i + 1)} for i in range(n)]
    for t in things:
        t["metadata"]["managedFields"] = [{"manager": "x" * (1 << 18)}]

    def handler(rq, conn, _):
        if "watch" in rq.query:
            conn.begin()
            return hold(conn)
        limits.append(int(rq.query["limit"]))
        at = int(rq.query.get("continue", 0))
        end = at + limits[-1]
        conn.listing(things[at:end], "200", str(end) if end < n else None)

    with Case(handler, page=64) as (s, c):
        assert c.next(180)["name"] == "t-0"
        assert [c.short() for _ in range(n)] == [f"+t-{i}" for i in range(1, n)] + [f"={n}"]
        with open(f"/proc/{c.p.pid}/status", encoding="utf-8") as f:
            most = int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]) >> 10
        assert limits == [64, 32, 32, 32, 32], limits
        print(f"{most} MiB for a list of {n >> 2} MiB")
        assert most < 48, f"{most} MiB for a list of {n >> 2} MiB"
        assert c.stats()["failures"] == 0, c.stats()


def expired_inside_200():
    def handler(rq, conn, n):
        if n == 1:
            conn.listing([thing("a", 1), thing("b", 2), thing("c", 3)], "3")
        elif n == 2:
            conn.begin()
            conn.chunk(event("ERROR", GONE))
            conn.end()
        elif n == 3:
            assert "resourceVersion" not in rq.query and "watch" not in rq.query, rq.query
            conn.listing([thing("b", 7, "other"), thing("c", 3)], "8")
        else:
            assert rq.query["resourceVersion"] == "8"
            conn.begin()
            hold(conn)

    with Case(handler) as (s, c):
        assert [c.short() for _ in range(4)] == ["+a", "+b", "+c", "=3"]
        # a vanished, b is another object of the same name, c is the same
        assert [c.short() for _ in range(4)] == ["-a", "-b", "+b", "=2"]
        st = c.stats()
        assert st["expired"] == 1 and st["lists"] == 2 and "too old" in st["last"], st


def expired_as_status():
    def handler(rq, conn, n):
        if n == 1:
            conn.listing([thing("a", 1)], "1", "more")
        elif n == 2:  # the second page has expired: the list starts anew
            assert rq.query["continue"] == "more"
            conn.status(410, "Expired")
        elif n == 3:
            assert "continue" not in rq.query
            conn.listing([thing("a", 1)], "1")
        elif n == 4:
            conn.status(410, "Gone")
        elif n == 5:
            assert "watch" not in rq.query
            conn.listing([], "5")
        else:
            conn.begin()
            hold(conn)

    with Case(handler) as (s, c):
        assert [c.short() for _ in range(4)] == ["+a", "=1", "-a", "=0"]
        assert c.stats()["expired"] == 2


def closes_empty():
    def handler(rq, conn, n):
        if "watch" not in rq.query:
            conn.listing([thing("a", 1)], "1")
        else:
            conn.begin()
            conn.end()

    with Case(handler, backoff_ms=100, backoff_max_ms=200) as (s, c):
        assert [c.short() for _ in range(3)] == ["+a", "=1", "=1"]
        c.until("synced")
        st = c.stats()
        assert st["empty"] >= 2 and st["watches"] <= st["lists"], st  # no busy loop on one version
        assert "closed at once" in st["last"]


def half_open():
    """Silence in the middle of an event: given up, and gone on from the last version."""
    def handler(rq, conn, n):
        if n == 1:
            conn.listing([], "1")
        elif n == 2:
            conn.begin()
            conn.chunk(event("ADDED", thing("a", 2)) + event("ADDED", thing("b", 3))[:20])
            hold(conn)
        elif n == 3:
            assert rq.query["resourceVersion"] == "2", rq.query
            conn.begin()
            conn.chunk(event("ADDED", thing("b", 3)))
            conn.cut()  # without the last chunk: the line broke
        else:
            assert rq.query["resourceVersion"] == "3", rq.query
            conn.begin()
            hold(conn)

    with Case(handler, idle_s=1) as (s, c):
        assert [c.short() for _ in range(3)] == ["=0", "+a", "+b"]
        while c.stats()["watches"] < 3:
            time.sleep(0.02)
        assert c.stats()["lists"] == 1


def mute_server():
    """A server that takes connections and says nothing, and one that answers no more."""
    with Case(None, mute=True, connect_ms=300, path="") as (s, c):
        t = time.monotonic()
        r = c.call("GET", "/x")
        assert r["status"] == 0 and r["code"] == -110 and 0.2 < time.monotonic() - t < 10, r
    with Case(lambda rq, conn, n: hold(conn), call_ms=300, path="") as (s, c):
        r = c.call("GET", "/x")
        assert r["status"] == 0 and r["code"] == -110 and "GET /x" in r["error"], r


def write_account(d, token):
    """As the kubelet does: a folder behind a link that is swapped."""
    now = os.path.join(d, "..data.new")
    real = tempfile.mkdtemp(prefix="..", dir=d)
    for name, text in (("token", token + "\n"), ("namespace", "n"), ("ca.crt", open(CERT[0]).read())):
        with open(os.path.join(real, name), "w") as f:
            f.write(text)
        if not os.path.islink(os.path.join(d, name)):
            os.symlink(os.path.join("..data", name), os.path.join(d, name))
    os.symlink(real, now)
    os.replace(now, os.path.join(d, "..data"))


def token_swap():
    d = os.path.join(D, "account")
    os.mkdir(d)
    write_account(d, "one")
    good = {"token": "one"}

    def handler(rq, conn, n):
        if rq.headers.get("authorization") != "Bearer " + good["token"]:
            conn.status(401, "Unauthorized")
        else:
            conn.reply(200, {"ok": n})

    with Case(handler, config=lambda port: f"{d}:127.0.0.1:{port}", path="") as (s, c):
        assert c.call("GET", "/a")["status"] == 200
        # The server takes the new one only, and the client has looked at the file within a minute.
        write_account(d, "two")
        good["token"] = "two"
        assert c.call("GET", "/b")["status"] == 200
        # Swapped after the client looked: 401, read again, once more.
        good["token"] = "three"
        before = len(s.requests)
        assert c.call("GET", "/c")["status"] == 401
        assert len(s.requests) == before + 2
        write_account(d, "three")
        assert c.call("GET", "/d")["status"] == 200
        # A token that cannot be a header is not taken.
        write_account(d, "x\r\nevil: 1")
        assert c.call("GET", "/e")["status"] == 200
        assert all("evil" not in rq.headers for rq in s.requests)
    shutil.rmtree(d)


def cancelled_second_try():
    """It waits for its turn in the bucket, and leaves its place to others."""
    d = os.path.join(D, "account")
    os.mkdir(d)
    write_account(d, "one")

    def handler(rq, conn, n):
        if n == 1:
            conn.status(401, "Unauthorized")
        else:
            conn.reply(200, {"ok": n})

    with Case(handler, config=lambda port: f"{d}:127.0.0.1:{port}", path="", per_s=1, in_flight=1) as (s, c):
        c.ask("call GET /a")
        while c.stats()["token_reads"] < 2:
            pass
        c.ask("cancel")
        assert c.call("GET", "/b")["status"] == 200
        assert [rq.path for rq in s.requests] == ["/a", "/b"]
    shutil.rmtree(d)


def too_many_requests():
    at = []

    def handler(rq, conn, n):
        at.append(time.monotonic())
        if n == 1:
            conn.status(429, "TooManyRequests", headers=["Retry-After: 1"])
        elif n == 2:
            conn.listing([], "1")
        elif n == 3:
            conn.status(503, "ServiceUnavailable", headers=["Retry-After: 1"])
        else:
            assert rq.query["resourceVersion"] == "1"
            conn.begin()
            hold(conn)

    with Case(handler) as (s, c):
        assert c.short() == "=0"
        while len(at) < 4:
            time.sleep(0.02)
        assert at[1] - at[0] >= 1 and at[3] - at[2] >= 1, at
        assert c.stats()["lists"] == 2


def escaping_and_caps():
    def handler(rq, conn, n):
        if rq.path == "/big":
            conn.reply(200, body=b'{"a":"' + b"x" * (5 << 20) + b'"}')
        elif rq.path == "/list":
            conn.reply(200, body=b"[]")
        elif rq.path == "/moved":
            conn.reply(302, {}, ["Location: https://127.0.0.1:1/"])
        elif rq.method == "PATCH":
            assert rq.headers["content-type"] == "application/apply-patch+yaml" and rq.body == b'{"a":"\xc3\xa9"}', rq.body
            conn.reply(200, {"got": rq.target})
        elif "watch" in rq.query:
            assert rq.query["labelSelector"] == "a in (b,c),!d,e=f&g%"
            conn.begin()
            hold(conn)
        else:
            assert rq.query["labelSelector"] == "a in (b,c),!d,e=f&g%", rq.query
            conn.listing([], "we ird/&rv")

    with Case(handler, selector="a in (b,c),!d,e=f&g%") as (s, c):
        assert c.short() == "=0"
        r = c.call("GET", "/big")
        assert r["code"] == -7 and "longer than" in r["error"], r
        assert c.call("GET", "/list")["error"].endswith("not JSON")
        assert c.call("GET", "/moved")["status"] == 302  # not followed
        r = c.call("PATCH", "/x/y?z=1", "application/apply-patch+yaml", {"a": "\u00e9"})
        assert r["status"] == 200 and r["body"] == {"got": "/x/y?z=1"}, r
        for _ in range(30):
            c.ask("call GET /list")
        for _ in range(30):
            c.until("reply")


def identity_of_the_server():
    other = make_certificate(D, "other", "DNS:other.example")
    s = Server(other, lambda rq, conn: conn.reply(200, {}))
    url = f"https://127.0.0.1:{s.port}"

    def ask(ca, **cluster):
        c = Client(kubeconfig(os.path.join(D, "other"), url, ca, None, cluster), "")
        r = c.call("GET", "/x")
        c.close()
        return r
    assert ask(CERT[0])["status"] == 0  # another authority
    r = ask(other[0])
    assert r["status"] == 0 and "name" in r["error"], r  # another name
    assert ask(other[0], **{"tls-server-name": "other.example"})["status"] == 200
    assert ask(CERT[0], **{"insecure-skip-tls-verify": True})["status"] == 200
    s.close()


def garbage_and_stop():
    def handler(rq, conn, n):
        if "watch" not in rq.query:
            conn.listing([thing("a", n)], str(n))
        elif n == 2:
            conn.begin()
            conn.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"b"}}}\n{"type":"ADDED","type":"x"}\n')
            hold(conn)
        elif n == 4:
            conn.begin()
            conn.chunk(event("ADDED", thing("stop", 9)) + event("ADDED", thing("never", 10)))
            hold(conn)

    with Case(handler, stop_at="stop") as (s, c):
        assert [c.short() for _ in range(6)] == ["+a", "=1", "+b", "-b", "+a", "=1"]
        assert c.short() == "+stop"  # stopped from inside: nothing comes after
        assert c.call("GET", "/things")["status"] == 200 and c.lines.empty()


def refused_kubeconfigs():
    def refused(user=None, cluster=None, server="https://127.0.0.1:1"):
        c = Client(kubeconfig(os.path.join(D, "bad"), server, CERT[0], user, cluster), "")
        assert c.p.wait(timeout=20) == 1
        time.sleep(0.05)
        return "".join(c.log)
    assert "user u logs in by a program (exec), which is not supported" in refused({"exec": {"command": "aws"}})
    assert "auth-provider" in refused({"auth-provider": {"name": "oidc"}})
    assert "password" in refused({"username": "a", "password": "b"})
    assert "together" in refused({"client-certificate": "x"})
    assert "base64" in refused({"client-key-data": "x", "client-certificate-data": "y"})
    assert "https://" in refused(server="http://127.0.0.1:1")


def main():
    global D, CERT
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as D:
        CERT = make_certificate(D, "server", "IP:127.0.0.1,DNS:localhost")
        for case in (pages_and_every_byte, long_objects_come_in_shorter_pages, expired_inside_200, expired_as_status, closes_empty, half_open, mute_server,
                     token_swap, cancelled_second_try, too_many_requests, escaping_and_caps, identity_of_the_server,
                     garbage_and_stop, refused_kubeconfigs):
            if only and case.__name__ not in only:
                continue
            t = time.monotonic()
            case()
            print(f"{case.__name__}: {time.monotonic() - t:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
