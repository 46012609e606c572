# SPDX-License-Identifier: Apache-2.0
"""What a pod without any credentials can do to others: nothing that they notice."""
import contextlib
import json
import re
import socket
import subprocess
import threading
import time

from cluster import BUILD, SLOW, Cluster, run

ATTACKER, SCRAPER = "127.0.0.66", "127.0.0.77"  # addresses of two other pods; 127.0.0.1 is one's own


def dial(port, source, timeout=10):
    """A connection as from another pod."""
    return socket.create_connection(("127.0.0.1", port), timeout=timeout * SLOW, source_address=(source, 0))


def get(port, path, source="127.0.0.1", timeout=10, headers=()):
    """(status, text) of a page, asked from `source`."""
    with contextlib.closing(dial(port, source, timeout)) as s:
        s.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode())
        text = b""
        while part := s.recv(65536):
            text += part
    head, _, body = text.decode(errors="replace").partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def probe(which, sock):
    """Exit status of an exec probe, as kubelet runs it."""
    return subprocess.run([f"{BUILD}/bin/weightbridge-agent", f"--probe={which}", f"--socket={sock}"], timeout=20,
                          capture_output=True, check=False).returncode


class SlowHeaders(threading.Thread):
    """So many sockets that send a header's byte now and then, and are opened again when they are closed."""

    def __init__(self, port, source, n=40):
        super().__init__(daemon=True)
        self.port, self.source, self.n, self.done, self.opened = port, source, n, threading.Event(), 0

    def run(self):
        socks = []
        while not self.done.is_set():
            with contextlib.suppress(OSError):
                while len(socks) < self.n:
                    s = dial(self.port, self.source)
                    s.setblocking(False)
                    s.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
                    socks.append(s)
                    self.opened += 1
            for s in list(socks):
                try:
                    s.sendall(b"a")
                    if s.recv(65536) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    s.close()
                    socks.remove(s)
            self.done.wait(0.2)
        for s in socks:
            s.close()

    def __enter__(self):
        self.start()
        while self.opened < self.n:
            assert self.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()


def within(seconds, fn):
    t0 = time.monotonic()
    got = fn()
    took = time.monotonic() - t0
    assert took < seconds * SLOW, f"{got} came after {took:.2f} s"
    return got


def slow_headers_delay_no_probe_and_no_page():
    with Cluster() as c:
        op, a = c.operator(args=["--probes", "127.0.0.1:0"]), c.agent("a")
        with SlowHeaders(op.http, ATTACKER), SlowHeaders(op.probes, ATTACKER), SlowHeaders(a.http, ATTACKER), \
                SlowHeaders(op.http, "127.0.0.67"), SlowHeaders(op.probes, "127.0.0.67"):
            end = time.monotonic() + 8  # longer than any deadline of a connection
            while time.monotonic() < end:
                for path in ("/healthz", "/readyz"):
                    for source in ("127.0.0.1", SCRAPER):
                        assert within(1, lambda p=path, s=source: get(op.probes, p, s))[0] == 200
                        assert within(1, lambda p=path, s=source: get(op.http, p, s))[0] == 200
                for which in ("startup", "live", "ready"):
                    assert within(1, lambda w=which: probe(w, a.socket)) == 0
                assert within(1, lambda: get(a.http, "/metrics", SCRAPER))[0] == 200
                time.sleep(0.2)


def hardly_a_probe_is_lost_beside_a_hundred_addresses():
    """Each has fewer places than it may have, and takes another as soon as it has lost one.  The chart restarts an
    operator that misses six probes in a row: of those here one in twenty may be lost, where more than a third were."""
    with Cluster() as c:
        op = c.operator(args=["--probes", "127.0.0.1:0"])
        with IdleFlood(op.probes, [f"127.0.1.{i}" for i in range(1, 101)], 400):
            got, end = [], time.monotonic() + 4
            while time.monotonic() < end:
                got.append(within(5, lambda: get(op.probes, "/readyz", SCRAPER)[0]))
        print(f"{got.count(200)} of {len(got)} probes were answered")
        assert 20 * got.count(200) >= 19 * len(got) >= 20 * 19, got


def the_port_of_probes_has_nothing_else():
    with Cluster() as c:
        op = c.operator(args=["--probes", "127.0.0.1:0"])
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 404), ("/status", 404), ("/objects", 404)):
            assert get(op.probes, path)[0] == status, path


def a_request_that_trickles_is_ended_within_seconds():
    with Cluster() as c:
        op = c.operator()
        with contextlib.closing(dial(op.http, ATTACKER)) as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            t0, s_closed = time.monotonic(), False
            s.settimeout(0.2)
            while not s_closed and time.monotonic() - t0 < 20 * SLOW:
                try:
                    s.sendall(b"a")
                    s_closed = s.recv(100) == b""
                except TimeoutError:
                    continue
                except OSError:
                    s_closed = True
            assert s_closed and 4 < time.monotonic() - t0 < 8 * SLOW, time.monotonic() - t0


# What a pod without credentials is told, of (page, status): a page that tells of objects says how to ask.
OPERATOR_PAGES = [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/status", 401), ("/objects", 401), ("/plan", 401),
                  ("/manifest", 401), ("/trace", 401), ("/status?object=default/toy", 401), ("/objects?ticket=1.ab", 401),
                  ("/nothing", 404)]
AGENT_PAGES = [("/healthz", 200), ("/readyz", 200), ("/serving", 200), ("/metrics", 200), ("/status", 401), ("/digest", 401),
               ("/trace", 401), ("/nothing", 404)]


def tensors(manifest):
    """Names in it."""
    return {n for n in re.findall(r"[A-Za-z][\w.]{5,}", manifest) if "." in n}


def what_tells_of_objects_is_not_for_strangers():
    with Cluster() as c:
        op, a = c.operator(), c.agent("a")
        w = [c.worker("a", "trainer"), c.worker("a", "rollout", engine="e")]
        for x in w:
            x.expect("planned")
        names = tensors(get(op.http, "/manifest")[1])
        for port, pages in ((op.http, OPERATOR_PAGES), (a.http, AGENT_PAGES)):
            for path, status in pages:
                for headers in ((), ("Authorization: Bearer nonsense",), ("X-Forwarded-For: 127.0.0.1",)):
                    got, said = get(port, path, SCRAPER, headers=headers)
                    assert got == status, (path, got, said)
                    if status == 401:  # a sentence with what to do, and nothing of what it guards
                        assert "ask" in said and len(said.splitlines()) == 1 and "toy" not in said.replace(path, ""), said
                    elif path == "/metrics":
                        assert names and not [n for n in names if n in said], names
                # From within nothing is asked.
                assert get(port, path)[0] == {401: 200}.get(status, status), path
        wbctl = f"{BUILD}/bin/wbctl"
        for argv in (["get", "--operator", f"127.0.0.1:{op.http}"], ["status", "--agent", f"127.0.0.1:{a.http}"],
                     ["status", "--agent", f"{a.socket}.http"], ["trace", "--agent", f"{a.socket}.http"],
                     ["verify", "--agent", f"{a.socket}.http"]):
            r = subprocess.run([wbctl, *argv], capture_output=True, text=True, timeout=60, check=False)
            assert r.returncode == 0 and r.stdout, (argv, r)
        r = subprocess.run([wbctl, "status"], capture_output=True, text=True, timeout=60, check=False,
                           env={"WEIGHTBRIDGE_AGENT_PAGES": f"{a.socket}.http"})
        assert r.returncode == 0 and "worker" in r.stdout.lower(), r


def agents_of_an_object_may_ask_each_other_for_their_sums():
    """And nobody else, for nothing else, and not for ever: with a ticket that only they can make."""
    with Cluster() as c:
        c.operator()
        c.agent("t")
        c.agent("r", "--http", "0.0.0.0:0")
        w = [c.worker("t", "trainer"), c.worker("r", "rollout", engine="e")]
        for x in w:
            x.expect("planned")
        t, r = (c.agents[n].http for n in "tr")
        ticket = get(t, "/tickets")[1].strip()
        assert get(t, "/tickets", SCRAPER)[0] == 401
        status, said = get(r, "/digest?ticket=" + ticket, SCRAPER)
        assert status == 200 and json.loads(said)["number"] >= 1, said
        until = int(ticket.split(":")[1].split(".")[0])
        for path, forged in (("/status", ticket), ("/trace", ticket), ("/digest", ticket[:-1] + "x"), ("/digest", ticket.replace("/", "/1", 1)),
                             ("/digest", ticket.replace(str(until), str(until + 30))), ("/digest", ":"), ("/digest", "")):
            assert get(r, f"{path}?ticket={forged}", SCRAPER)[0] == 401, (path, forged)
        w[0].say("send 1")
        w[0].expect("sent 1 .*Committed")
        host = own_address()
        if not host:
            return  # this machine has the loopback address alone: there is no "elsewhere" for wbctl
        pages = f"{c.agents['t'].socket}.http"
        verify = [f"{BUILD}/bin/wbctl", "verify", "--agent", f"{pages},{host}:{r}"]
        for env, rc, words in (({"WEIGHTBRIDGE_AGENT_PAGES": pages}, 0, "same as the trainers"), ({}, 1, "answers 401")):
            got = subprocess.run(verify, capture_output=True, text=True, timeout=60 * SLOW, check=False, env=env)
            assert got.returncode == rc and words in got.stdout + got.stderr, got


def own_address():
    """Of this machine, but not loopback; None where there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))
        return s.getsockname()[0]
    return None


class IdleFlood(threading.Thread):
    """So many connections that say nothing, each opened again when it is closed."""

    def __init__(self, port, sources, n=256):
        super().__init__(daemon=True)
        self.port, self.sources, self.n = port, sources, n
        self.done, self.full = threading.Event(), threading.Event()

    def run(self):
        socks, turn = [], 0
        while not self.done.is_set():
            with contextlib.suppress(OSError):
                while len(socks) < self.n:
                    turn += 1
                    s = dial(self.port, self.sources[turn % len(self.sources)])
                    s.setblocking(False)
                    socks.append(s)
            self.full.set()
            for s in list(socks):
                try:
                    s.recv(1)
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                s.close()
                socks.remove(s)
            self.done.wait(0.05)
        for s in socks:
            s.close()

    def __enter__(self):
        self.start()
        assert self.full.wait(20 * SLOW)
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()


def idle_connections_keep_no_agent_out():
    """From one address, from four (256 places, 64 of each), and from the agent's own."""
    for sources in ([ATTACKER], [f"127.0.0.{66 + i}" for i in range(4)], ["127.0.0.1"]):
        with Cluster() as c:
            op = c.operator()
            with IdleFlood(op.port, sources):
                within(6, lambda c=c: c.agent("t").expect("operator connected", reject=None))
                t = c.worker("t", "trainer")
                with IdleFlood(agent_port(c.agents["t"]), sources):  # other agents come to a port of the same kind
                    within(6, lambda c=c: c.agent("r").expect("operator connected", reject=None))
                    r = c.worker("r", "rollout", engine="e")
                    for w in (t, r):
                        w.expect("planned")
                    t.say("send 1")
                    t.expect("sent 1 .*Committed")
                    r.expect("update 1 ok")


def strangers_are_not_all_of_a_log():
    """However many connections without a key come to the port of an operator or an agent, a few of them are told of."""
    with Cluster() as c:
        op = c.operator()
        a = c.agent("t")
        for p, port in ((op, op.port), (a, agent_port(a))):
            begun = time.monotonic()
            for _ in range(200):
                with dial(port, ATTACKER, 30) as s:
                    s.sendall(b"\x16\x03\x01\x00\x05hello")  # begins like TLS
                    while s.recv(4096):
                        pass
            c.until("the first are told", lambda p=p: (p.drain(), lines(p) >= 20)[1])
            most = 20 + (time.monotonic() - begun) / 3 + 1
            assert lines(p) <= most, f"{p.name}: {lines(p)} lines"


def lines(p):
    return sum("connection refused" in x for x in p.seen)


def agent_port(agent):
    return json.loads(get(agent.http, "/status")[1])["port"]


if __name__ == "__main__":
    run(what_tells_of_objects_is_not_for_strangers, agents_of_an_object_may_ask_each_other_for_their_sums,
        idle_connections_keep_no_agent_out, strangers_are_not_all_of_a_log, slow_headers_delay_no_probe_and_no_page,
        hardly_a_probe_is_lost_beside_a_hundred_addresses, the_port_of_probes_has_nothing_else,
        a_request_that_trickles_is_ended_within_seconds, together=3)
