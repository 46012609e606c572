# SPDX-License-Identifier: Apache-2.0
"""tls.mode Operator: the leader makes authority and certificate in a Secret, agents find the authority in a
ConfigMap that their WeightTransfers own, both are repaired and renewed, and no transfer notices."""
import base64
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, HttpError, free_ports, patience, wait_for  # noqa: E402
from op import Operator, Worker, status, transfer_object  # noqa: E402
from test_tokens import make_pod, make_token  # noqa: E402

SECRET = "/api/v1/namespaces/system/secrets/weightbridge-operator-tls"
MAP = "/api/v1/namespaces/{}/configmaps/weightbridge-ca"
NAME = "weightbridge-operator.system.svc"
ARGS = ["--lease", "system/weightbridge-operator", "--tls-secret", "weightbridge-operator-tls",
        "--tls-name", NAME, "--tls-name", "weightbridge-operator"]


def secret(c):
    try:
        data = c.get(SECRET).get("data", {})
    except HttpError:
        return {}
    return {k: base64.b64decode(v).decode() for k, v in data.items()}


def ca_of(c, ns="default"):
    try:
        return c.get(MAP.format(ns))
    except HttpError as e:
        assert e.code == 404
        return None


def shown(c, port, ca):
    """The certificate that an agent would accept at this port, or nothing."""
    file = c.path("shown.ca")
    with open(file, "w") as f:
        f.write(ca)
    r = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", NAME, "-verify_hostname",
                        NAME, "-CAfile", file, "-verify_return_error"], input="", capture_output=True, text=True,
                       timeout=patience(20))
    return r.stdout[r.stdout.index("-----BEGIN"):r.stdout.index("-----END")] if r.returncode == 0 else None


def is_shown(c, port, s):
    return shown(c, port, s["ca.crt"]) == s["tls.crt"][:s["tls.crt"].index("-----END")]


class Files:
    """What a kubelet does: the authority and the token of a pod as files, kept up to date."""

    def __init__(self, c, pod):
        self.c, self.name = c, pod["metadata"]["name"]
        self.token, self.ca = c.path(self.name + ".token"), c.path(self.name + ".ca")
        with open(self.token, "w") as f:
            f.write(make_token(c, pod))
        self.update()

    def update(self):
        m = ca_of(self.c)
        if m:
            with open(self.ca + ".new", "w") as f:
                f.write(m["data"]["ca.crt"])
            os.rename(self.ca + ".new", self.ca)

    def args(self):
        return ["--token-file", self.token, "--ca-file", self.ca, "--operator-name", NAME]


def owners(m):
    return {(o["kind"], o["name"], o["uid"]) for o in m["metadata"].get("ownerReferences", [])} if m else set()


def maps_are_owned_and_repaired(c):
    wts = {n: c.get(f"/apis/weightbridge.io/v1alpha1/namespaces/default/weighttransfers/{n}")["metadata"]["uid"]
           for n in ("t", "u")}
    wait_for(lambda: owners(ca_of(c)) == {("WeightTransfer", n, u) for n, u in wts.items()}, 20)
    assert ca_of(c)["data"]["ca.crt"] == secret(c)["ca.crt"]
    assert ca_of(c, "system") is None and ca_of(c, "empty") is None
    # Another namespace has its own.
    o = json.loads(transfer_object("v"))
    o["metadata"]["namespace"] = "empty"
    c.post("/apis/weightbridge.io/v1alpha1/namespaces/empty/weighttransfers", o)
    wait_for(lambda: ca_of(c, "empty"), 20)
    # Edited, and deleted: as before at once (0.1 s on an idle machine), not with the next look at everything.
    for change in (lambda: c.raw(MAP.format("default"), "PATCH", {"data": {"ca.crt": "mine"}},
                                 "application/merge-patch+json"),
                   lambda: c.raw(MAP.format("default"), "PATCH", {"metadata": {"ownerReferences": None}},
                                 "application/merge-patch+json"),
                   lambda: c.raw(MAP.format("default"), "DELETE")):
        t = time.monotonic()
        change()
        wait_for(lambda: ca_of(c) and ca_of(c)["data"]["ca.crt"] == secret(c)["ca.crt"] and len(owners(ca_of(c))) == 2,
                 20)
        assert time.monotonic() - t < 10, time.monotonic() - t
    # One owner goes, and is forgotten at the next writing.
    c.kubectl("delete", "wt", "u")
    c.raw(MAP.format("default"), "DELETE")
    wait_for(lambda: owners(ca_of(c)) == {("WeightTransfer", "t", wts["t"])}, 20)


def renewed(c, ports, drop):
    """Take keys of the Secret away, as a user does to have new ones: every replica shows the new certificate."""
    old = secret(c)
    c.raw(SECRET, "PATCH", {"data": {k: None for k in drop}}, "application/merge-patch+json")
    wait_for(lambda: secret(c).get("tls.crt", old["tls.crt"]) != old["tls.crt"], 30)
    new = secret(c)
    for p in ports:
        wait_for(lambda: is_shown(c, p, new), 30, 0.2)
    return old, new


def files_of_others(c):
    """Modes CertManager and ExistingSecret: certificate and authority in files, which somebody else renews."""
    c.certificate("theirs", "/CN=theirs", "DNS:" + NAME)
    ca = c.path("theirs.ca")
    with open(ca, "w") as f:
        f.write(open(c.path("pki", "ca.crt")).read())
    op = Operator(c, 0, args=["--lease", "system/weightbridge-operator", "--tls-cert", c.path("pki", "theirs.crt"),
                              "--tls-key", c.path("pki", "theirs.key"), "--tls-ca", ca])
    wait_for(op.is_ready, 30)
    wait_for(lambda: ca_of(c)["data"]["ca.crt"] == open(ca).read(), 30)
    with open(ca, "a") as f:
        f.write(open(c.path("pki", "ca.crt")).read())  # another one beside it
    wait_for(lambda: ca_of(c)["data"]["ca.crt"] == open(ca).read(), 30)
    op.stop()


def main():
    with ApiServer() as c:
        c.install_crd()
        for ns in ("system", "empty"):
            c.post("/api/v1/namespaces", {"metadata": {"name": ns}})
        c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        ports = free_ports(2)
        ops = [Operator(c, p, args=ARGS) for p in ports]
        t = time.monotonic()
        for op in ops:
            wait_for(op.is_ready, 20)
        print(f"both replicas ready {time.monotonic() - t:.1f} s after the start")
        s = secret(c)
        assert set(s) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        for p in ports:
            assert is_shown(c, p, s)
        for n in ("t", "u"):
            c.kubectl("apply", "-f", "-", stdin=transfer_object(n))
        maps_are_owned_and_repaired(c)

        pods = {n: make_pod(c, n) for n in ("train-0", "roll-0")}
        files = {n: Files(c, pod) for n, pod in pods.items()}
        workers = [Worker(c, ports[0], n, r, 0, 1, e, files[n].args())
                   for n, r, e in (("train-0", "trainer", None), ("roll-0", "rollout", "e0"))]
        c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")

        def send(v):
            workers[0].say(f"send {v}")
            assert "Committed" in workers[0].until(f"sent {v}")
        send(1)
        # A new certificate: of the same authority, so agents that come back know it.
        old, new = renewed(c, ports, ["tls.crt"])
        assert new["ca.crt"] == old["ca.crt"]
        send(2)
        # A new authority, by loss of its key: the old one stays trusted, the certificate waits.
        c.raw(SECRET, "PATCH", {"data": {"ca.key": None}}, "application/merge-patch+json")
        wait_for(lambda: secret(c)["ca.crt"].count("BEGIN") == 2, 30)
        assert secret(c)["tls.crt"] == new["tls.crt"] and secret(c)["ca.crt"].endswith(old["ca.crt"])
        wait_for(lambda: ca_of(c)["data"]["ca.crt"] == secret(c)["ca.crt"], 20)
        send(3)
        # Everything is lost: new ones of both, and agents follow when their kubelet has brought them.
        renewed(c, ports, ["ca.crt", "ca.key", "tls.crt", "tls.key"])
        wait_for(lambda: ca_of(c)["data"]["ca.crt"] == secret(c)["ca.crt"], 20)
        send(4)
        # The leader goes; the other shows the same certificate, and writes what is needed.
        first = max(ops, key=lambda o: o.metric("wb_leader"))
        rest = next(o for o in ops if o is not first)
        first.stop()
        wait_for(lambda: rest.metric("wb_leader") == 1, 30)
        c.raw(SECRET, "DELETE")
        wait_for(lambda: secret(c).get("tls.key"), 30)
        send(5)
        # Its place is taken by a standby, that sends agents on; the kubelet brought the authority.
        ops.append(Operator(c, ports[ops.index(first)], args=ARGS))
        wait_for(lambda: ca_of(c)["data"]["ca.crt"] == secret(c)["ca.crt"], 20)
        for f in files.values():
            f.update()
        wait_for(lambda: status(c).get("version") == 5, 30)
        # Keys are nowhere else.
        secrets = [secret(c)["tls.key"], secret(c)["ca.key"]]
        text = "".join(o.text() for o in ops) + json.dumps(ca_of(c)) + c.kubectl("get", "events", "-A", "-o", "yaml")
        assert "PRIVATE" not in text and not any(k.splitlines()[1] in text for k in secrets)
        for w in workers:
            w.end()
        for o in ops:
            assert o.stop() == 0
        files_of_others(c)


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
