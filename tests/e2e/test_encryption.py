# SPDX-License-Identifier: Apache-2.0
"""Somebody listens on the network between the agents: the weights are read there when spec.transport.encryption is
None, and are not when it is TLS.  In a network namespace of its own: what others send is not heard."""
import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading

from cluster import Cluster, run

ROWS, COLS = 512, 512
WINDOW = 16  # elements of 4 bytes in a row
OLD_AGENT = "tools/agent-v1-1"


def alone():
    """Into a namespace with a loopback and nothing else; why not, or None."""
    libc = ctypes.CDLL(None, use_errno=True)
    newns, newuser = 0x40000000, 0x10000000
    if libc.unshare(newns) and libc.unshare(newns | newuser):
        return f"no network namespace of its own: {os.strerror(ctypes.get_errno())}"
    with socket.socket() as s:
        request = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
        try:
            import fcntl
            fcntl.ioctl(s, 0x8914, request)  # SIOCSIFFLAGS
        except OSError as e:
            return f"the loopback of the namespace does not come up: {e}"
    return None


def mixed(x):
    m = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & m
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & m
    x = (x ^ x >> 27) * 0x94D049BB133111EB & m
    return x ^ x >> 31


def weights(version, tensor, at):
    """What the toy worker's parameters hold from element `at` on."""
    return b"".join(struct.pack("<I", mixed(version << 48 ^ tensor << 40 ^ k) & 0xFFFFFFFF)
                    for k in range(at, at + WINDOW))


def shown(c, what):
    """A part of the object's status, or None."""
    return json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"].get(what)


class Sniffer:
    """All that goes over the loopback, as a raw socket hears it."""

    def __init__(self):
        self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.s.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self.s.bind(("lo", 0))
        self.s.settimeout(0.2)
        self.heard, self.is_over = [], False
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while True:
            try:
                self.heard.append(self.s.recv(1 << 17))
            except TimeoutError:
                if self.is_over:
                    return

    def stop(self):
        """Frames, once nothing more comes."""
        self.is_over = True
        self.thread.join()
        self.s.close()
        return self.heard


def deploy(c, **transport):
    c.operator(trainers=1, per_engine=1, engines=2, transport=transport)
    for name in ("t", "r0", "r1"):
        c.agent(name)
    size = {"rows": ROWS, "cols": COLS, "tensors": 2}
    t = c.worker("t", "trainer", **size)
    rs = [c.worker(f"r{i}", "rollout", engine=f"e{i}", **size) for i in range(2)]
    for w in (t, *rs):
        w.expect("planned")
    return t, rs


def weights_are_heard(c, t, rs, version, encryption):
    """Moves a version and listens: weights are heard in the clear and not in TLS."""
    sniffer = Sniffer()
    t.say(f"send {version}")
    t.expect(f"sent {version} .*e0=Committed.*e1=Committed")
    for r in rs:
        r.expect(f"update {version} ok")  # every element compared: sums and contents are of the plaintext
    heard = sniffer.stop()
    known = [weights(version, x, at) for x in range(2) for at in range(0, ROWS * COLS, 8191 * 2)]
    seen = sum(any(k in f for k in known) for f in heard)
    print(f"{encryption}: {seen} of {len(heard)} frames show weights")
    over = "tcp+tls" if encryption == "TLS" else "tcp"
    c.until(f"engines reached by {over}", lambda: {x["transport"] for x in shown(c, "engines") or ()} == {over})
    if encryption == "TLS":
        assert seen == 0 and len(heard) > 50, (seen, len(heard))
    else:
        assert seen >= 16, (seen, len(heard))  # this way of listening finds them


def weights_are_heard_without_encryption_and_not_in_tls():
    for encryption in ("None", "TLS"):
        with Cluster() as c:
            t, rs = deploy(c, protocols=["TCP"], encryption=encryption)
            weights_are_heard(c, t, rs, 1, encryption)


def a_change_of_the_object_changes_it_under_way():
    with Cluster() as c:
        t, rs = deploy(c, protocols=["TCP"])
        for version, encryption in ((1, "None"), (2, "TLS"), (3, "None")):
            if version > 1:
                c.spec(1, 1, 2, transport={"protocols": ["TCP"], "encryption": encryption})
                c.op.p.send_signal(signal.SIGHUP)
                for a in c.agents.values():
                    a.expect(f"plan active .*number={version}", reject=None)
            weights_are_heard(c, t, rs, version, encryption)


def an_agent_that_cannot_encrypt_is_refused_by_name():
    with Cluster() as c:
        c.operator(transport={"protocols": ["TCP"], "encryption": "TLS"})
        c.agent("new")
        old = c.agent("old", program=OLD_AGENT, wait=False)
        line = old.expect("refused by the operator", reject=None).string
        for part in ("agent old speaks protocol version 1", "cannot encrypt", "default/toy is TLS", "upgrade"):
            assert part in line, line

        def said():
            return [x for x in shown(c, "conditions") if "agent old speaks protocol version 1" in x["message"]]
        assert c.until("a condition that names it", said)[0]["reason"] == "ProtocolVersionMismatch"


if __name__ == "__main__":
    WHY = alone()
    if WHY:
        print(WHY)
        sys.exit(77)
    run(weights_are_heard_without_encryption_and_not_in_tls, a_change_of_the_object_changes_it_under_way,
        an_agent_that_cannot_encrypt_is_refused_by_name)
