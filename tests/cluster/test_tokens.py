# SPDX-License-Identifier: Apache-2.0
"""Agents show tokens of their pods: the right one is let in, every other one is refused with a sentence."""
import os
import re
import socket
import ssl
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, free_ports, patience, wait_for  # noqa: E402
from op import BIN, Operator, Program, Worker, status, transfer_object  # noqa: E402

PODS = "/api/v1/namespaces/{}/pods"


def make_pod(c, name, label="t", ns="default"):
    return c.post(PODS.format(ns), {
        "metadata": {"name": name, "labels": {"weightbridge.io/name": label} if label else {}},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "app", "image": "none"}]}})


def make_token(c, pod, audience="weightbridge.io/default/t"):
    meta = pod["metadata"]
    ref = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    r = c.post(f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/default/token",
               {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": ref}})
    return r["status"]["token"]


def auth(c, name, token):
    file = c.path(name + ".token")
    with open(file, "w") as f:
        f.write(token)
    return ["--token-file", file, "--ca-file", getattr(c, "agent_ca", c.path("pki", "ca.crt")), "--operator-name", "operator.test"]


class Stranger(Program):
    """An agent without a worker, that is to be refused."""
    n = 0

    def __init__(self, c, port, name, token, object_="default/t", more=()):
        Stranger.n += 1
        super().__init__(c, f"stranger{Stranger.n}", [
            os.path.join(BIN, "weightbridge-agent"), "--name", name, "--operator", f"127.0.0.1:{port}", "--socket",
            c.path(f"stranger{Stranger.n}.sock"), "--listen", "127.0.0.1:0", "--object", object_,
            *auth(c, f"stranger{Stranger.n}", token), *more])

    def hears(self, text):
        try:
            wait_for(lambda: text in self.text(), 10)
        finally:
            self.stop(9)
            self.said = self.text()
            assert text in self.said, (text, self.said[-1500:])


def refused(c, port, pods):
    good = pods["train-0"]
    other = make_pod(c, "other-0", "another")
    plain = make_pod(c, "plain-0", None)
    Stranger(c, port, "train-0", make_token(c, good, "weightbridge.io/default/x")).hears("not valid for audience")
    Stranger(c, port, "train-0", make_token(c, pods["roll-0"])).hears("but the agent calls itself train-0")
    Stranger(c, port, "other-0", make_token(c, other)).hears("has label weightbridge.io/name: another, not t")
    Stranger(c, port, "plain-0", make_token(c, plain)).hears("is not there (any more) with label")
    Stranger(c, port, "train-0", "not.a.token").hears("not valid for audience")
    Stranger(c, port, "train-0", make_token(c, good), "default/none").hears("not valid for audience weightbridge.io/default/none")
    # What a pod has proved to be the cause of is told there too; a stranger's name is not enough for that.
    wait_for(lambda: "but the agent calls itself train-0" in c.kubectl("describe", "pod", "roll-0"), 20, 0.5)
    assert "AuthenticationRejected" not in c.kubectl("describe", "pod", "train-0")
    # A token of no pod.
    t = c.post("/api/v1/namespaces/default/serviceaccounts/default/token",
               {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": ["weightbridge.io/default/t"]}})["status"]["token"]
    Stranger(c, port, "train-0", t).hears("not bound to a pod")
    # A person with a certificate of the cluster, but another namespace's pod.
    c.post("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    c.post("/api/v1/namespaces/elsewhere/serviceaccounts", {"metadata": {"name": "default"}})
    far = make_pod(c, "train-0", "t", "elsewhere")
    Stranger(c, port, "train-0", make_token(c, far)).hears("is of namespace elsewhere")
    # A pod that was deleted: its token is no longer good.
    gone = make_pod(c, "gone-0")
    token = make_token(c, gone)
    c.raw(PODS.format("default") + "/gone-0?gracePeriodSeconds=0", "DELETE")
    Stranger(c, port, "gone-0", token).hears("not valid for audience")
    # No token and no certificate: not even a channel.
    assert "belong together" in no_ca(c, port)


def no_ca(c, port):
    p = Program(c, "noca", [os.path.join(BIN, "weightbridge-agent"), "--name", "x", "--operator", f"127.0.0.1:{port}",
                            "--object", "default/t", "--token-file", c.path("train-0.token")])
    p.p.wait(timeout=patience(20))
    return p.text()


def read_frame(s):
    """Header and body of one frame, None at the end."""
    data = b""
    while len(data) < 16 or len(data) < 16 + struct.unpack_from("<I", data, 8)[0]:
        got = s.recv(65536)
        if not got:
            return None
        data += got
    return data


def record_hello(c, name, token):
    """What an agent says first, to somebody with the operator's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(c.path("pki", "operator.crt"), c.path("pki", "operator.key"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = Stranger(c, listener.getsockname()[1], name, token)
        listener.settimeout(20)
        with context.wrap_socket(listener.accept()[0], server_side=True) as s:
            hello = read_frame(s)
        agent.stop(9)
    assert token.encode() in hello and b'"binding"' in hello
    return hello


def replay(c, port, hello):
    """The answer to a HELLO that is sent as it is on a new connection."""
    context = ssl.create_default_context(cafile=c.path("pki", "ca.crt"))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="operator.test") as s:
        s.settimeout(20)
        s.sendall(hello)
        return (read_frame(s) or b"")[16:].decode()


def rejected(op):
    return op.metric('wb_refused_total{what="token"}')


def replayed(c, op, port, pods):
    """A recorded HELLO, before its agent is connected, while it is and after."""
    hello = record_hello(c, "train-0", make_token(c, pods["train-0"]))
    n = rejected(op)
    assert "made for another connection" in replay(c, port, hello)
    assert rejected(op) == n + 1
    # Nothing proves who sent it: it is counted, and written nowhere.
    assert op.metric('wb_claims_unproved_total{reason="connection"}') == 1
    assert "made for another connection" in op.text()
    assert "made for another connection" not in c.kubectl("describe", "wt", "t")
    return hello


def twice(c, op, port, worker, token, hello):
    """The token of a pod whose agent is connected; that agent does not notice."""
    name = worker.name
    n = rejected(op)
    Stranger(c, port, name, token).hears(f"agent {name} is connected already, from 127.0.0.1")
    assert "made for another connection" in replay(c, port, hello)
    assert rejected(op) >= n + 2
    wait_for(lambda: "was used a second time" in c.kubectl("describe", "wt", "t"), 10, 0.5)
    worker.say("send 3")
    assert "Committed" in worker.until("sent 3")
    assert "operator not reached" not in worker.agent.text()
    # Its own agent, started again with the same token, is let in.
    worker.agent.stop(9)
    p = Stranger(c, port, name, token)
    wait_for(lambda: re.search("operator connected", p.text()), 20)
    assert "connected already" not in p.text()
    p.stop(9)
    assert "made for another connection" in replay(c, port, hello)


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        c.certificate("operator", "/CN=operator", "DNS:operator.test")
        port = free_ports(1)[0]
        op = Operator(c, port, args=["--tls-cert", c.path("pki", "operator.crt"),
                                     "--tls-key", c.path("pki", "operator.key")])
        wait_for(op.is_ready, 20)
        c.kubectl("apply", "-f", "-", stdin=transfer_object())
        pods = {n: make_pod(c, n) for n in ("train-0", "roll-0")}
        wait_for(lambda: status(c), 20)
        refused(c, port, pods)
        hello = replayed(c, op, port, pods)
        tokens = {n: make_token(c, pods[n]) for n in pods}
        workers = [Worker(c, port, n, r, 0, 1, e, auth(c, n, tokens[n]))
                   for n, r, e in (("train-0", "trainer", None), ("roll-0", "rollout", "e0"))]
        c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")
        for v in (1, 2):
            workers[0].say(f"send {v}")
            assert "Committed" in workers[0].until(f"sent {v}")
        wait_for(lambda: status(c).get("version") == 2, 20)
        twice(c, op, port, workers[0], tokens["train-0"], hello)
        # The pod goes: its agent is let go at once, and cannot come back.
        t = time.monotonic()
        c.raw(PODS.format("default") + "/roll-0?gracePeriodSeconds=0", "DELETE")
        wait_for(lambda: "the pod of this agent was deleted" in workers[1].agent.text(), 20, 0.005)
        print(f"agent told {1000 * (time.monotonic() - t):.0f} ms after its pod was deleted")
        wait_for(lambda: "not valid for audience" in workers[1].agent.text(), 20)
        # Tokens are in no log and no event.
        text = op.text() + c.kubectl("get", "events", "-o", "yaml")
        assert "eyJ" not in text
        assert "AuthenticationRejected" in c.kubectl("describe", "wt", "t")
        for w in workers:
            w.end()
        assert op.stop() == 0


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
