# SPDX-License-Identifier: Apache-2.0
"""For tests in the guest (guest.sh): what crosses the wire, what goes wrong on it, and perftest beside us.

A pair is a number: rxe_aN on vaN (10.77.N.1), joined to rxe_bN on vbN (10.77.N.2).
"""
import contextlib
import ipaddress
import os
import re
import signal
import socket
import subprocess
import time

if not os.path.exists("/sys/class/infiniband/rxe_a0"):
    print("no soft-RoCE devices here: make check-roce runs this in a virtual machine")
    raise SystemExit(77)


def sh(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


def sent(link):
    """Bytes that a link has sent so far."""
    with open(f"/sys/class/net/{link}/statistics/tx_bytes") as f:
        return int(f.read())


class Crossing:
    """Bytes each link sent while the context was open: c["va0"]."""

    def __enter__(self):
        self.before = {link: sent(link) for link in ("va0", "vb0", "va1", "vb1", "lo")}
        return self

    def __exit__(self, *_):
        self.bytes = {link: sent(link) - n for link, n in self.before.items()}

    def __getitem__(self, link):
        return self.bytes[link]


# ---- faults: each ends with its context, also when the test fails ----

@contextlib.contextmanager
def loss(percent, pair=0):
    """Both directions of a pair lose so many of 100 packets."""
    links = [f"va{pair}", f"vb{pair}"]
    for link in links:
        sh("tc", "qdisc", "replace", "dev", link, "root", "netem", "limit", "20000", "loss", f"{percent}%")
    try:
        yield
    finally:
        for link in links:
            sh("tc", "qdisc", "del", "dev", link, "root")


def up(pair, end="b"):
    """A link that was down lost its routes."""
    own, peer = (1, 2) if end == "a" else (2, 1)
    link = f"v{end}{pair}"
    sh("ip", "link", "set", link, "up")
    sh("ip", "route", "replace", f"10.77.{pair}.{peer}", "dev", link, "src", f"10.77.{pair}.{own}", "table", "77")


@contextlib.contextmanager
def down(pair=0, end="b"):
    sh("ip", "link", "set", f"v{end}{pair}", "down")
    try:
        yield
    finally:
        up(pair, end)


class Removable:
    """A device that may be removed: the kernel does so when nobody has it open any more.  It is here again after the
    context, so who has it open ends within."""

    def __init__(self, device, link):
        self.device, self.link, self.asks = device, link, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.asks:
            self.back()

    def remove(self):
        """The `rdma` that asks; it waits, and cannot be killed."""
        self.asks = subprocess.Popen(["rdma", "link", "delete", self.device])
        return self.asks

    def back(self):
        assert self.asks.wait(20) == 0
        self.asks = None
        sh("rdma", "link", "add", self.device, "type", "rxe", "netdev", self.link)


def readdress(link, before, now, other, far):
    """An end's address becomes another one; one of its device's GIDs, too.  Routes as guest.sh makes them."""
    sh("ip", "addr", "del", f"{before}/24", "dev", link)
    sh("ip", "addr", "add", f"{now}/24", "dev", link)
    sh("ip", "route", "replace", now, "dev", other, "src", far, "table", "77")
    sh("ip", "route", "replace", far, "dev", link, "src", now, "table", "77")


@contextlib.contextmanager
def readdressed(pair, end, last):
    """The end's address is 10.77.PAIR.`last`."""
    (link, own), (other, far) = ((f"v{x}{pair}", f"10.77.{pair}.{i}") for x, i in ("a1", "b2")[::1 if end == "a" else -1])
    new = f"10.77.{pair}.{last}"
    rules = [("pref", "15", "from", new, "to", new, "lookup", "local"), ("pref", "20", "to", new, "iif", "lo", "lookup", "77")]
    for rule in rules:
        sh("ip", "rule", "add", *rule)
    readdress(link, own, new, other, far)
    try:
        yield
    finally:
        readdress(link, new, own, other, far)
        for rule in rules:
            sh("ip", "rule", "del", *rule)
        sh("ip", "route", "del", new, "dev", other, "table", "77")


def gids(device):
    """GIDs of a device that are addresses of IPv4, as agents name them."""
    found = set()
    for i in range(16):
        with contextlib.suppress(OSError), open(f"/sys/class/infiniband/{device}/ports/1/gids/{i}", encoding="ascii") as f:
            raw = ipaddress.IPv6Address(f.read().strip())
            if raw.ipv4_mapped:
                found.add(f"::ffff:{raw.ipv4_mapped}")
    return found


# ---- perftest ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        time.sleep(0.02)


def perftest(tool, size, count, *args, pair=0):
    """One run of a program of perftest from rxe_aN to rxe_bN, five operations at the least; its row of figures."""
    port = free_port()
    usual = ["-x", "1", "-F", "-s", str(size), "-n", str(count), "-p", str(port), *args]
    server = subprocess.Popen([tool, "-d", f"rxe_b{pair}", *usual], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: server.poll() is not None or sh("ss", "-Hltn", f"sport = :{port}"), f"{tool} does not listen")
        r = subprocess.run([tool, "-d", f"rxe_a{pair}", *usual, "127.0.0.1"], capture_output=True, text=True, timeout=60)
        server.wait(20)
    finally:
        server.kill()
        server.wait()
    rows = re.findall(rf"^ {size} .*$", r.stdout, re.M)
    assert r.returncode == 0 and rows, (tool, r.stdout, r.stderr)
    return [float(x) for x in rows[-1].split()]


def bandwidth(tool, size, count, depth=4, pair=0):
    """Average MiB/s of ib_read_bw, ib_write_bw or ib_send_bw."""
    return perftest(tool, size, count, "-t", str(depth), pair=pair)[3]


def latency(tool, size, count, pair=0):
    """Typical microseconds of ib_read_lat, ib_write_lat or ib_send_lat."""
    return perftest(tool, size, count, pair=pair)[4]


# ---- a table of claims ----

def run(cases):
    """Run functions, whose names are claims; exit 1 when one fails."""
    failed = 0
    signal.alarm(int(os.environ.get("T_LIMIT", 240)) - 5)
    for case in cases:
        t = time.monotonic()
        try:
            case()
            print(f"ok {case.__name__} {time.monotonic() - t:.1f} s", flush=True)
        except (AssertionError, subprocess.SubprocessError) as e:
            failed += 1
            print("FAILED", case.__name__, repr(e), flush=True)
    raise SystemExit(1 if failed else 0)
