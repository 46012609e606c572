# SPDX-License-Identifier: Apache-2.0
"""As much of a Kubernetes API server as the operator speaks with, in memory, and strangers who attack it.
Standard library only.  A real one is in tests/cluster; this one says when each write came, and can be slow.

    with FakeApi(folder) as api:
        api.put("weighttransfers", object)
        op = Operator(api)
"""
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.request

from kubefake import Server, event, kubeconfig, make_certificate

GROUP = "/apis/weightbridge.io/v1alpha1"
KINDS = {"weighttransfers": GROUP, "pods": "/api/v1", "configmaps": "/api/v1"}
HELLO, WELCOME, WORKERS = 0x201, 0x202, 0x205
BIN = os.path.join(os.environ["WB_BUILD"], "bin", "weightbridge-operator")


class FakeApi:
    """Objects by (collection, namespace, name); every write is kept in `writes` as (time, method, path, body)."""

    def __init__(self, folder):
        self.dir = folder
        self.cert = make_certificate(folder, "api", "IP:127.0.0.1")
        self.lock = threading.Condition()
        self.version = 100
        self.objects, self.log = {}, []  # log: (version, collection, "ADDED"..., object)
        self.writes, self.lease = [], None
        self.hold = lambda method, path: None  # returns when the write may go on
        self.refuse = lambda method, path, body: None  # (code, message), or None
        self.lose = lambda method, path: False  # it is done, and the answer is lost on its way
        self.server = Server(self.cert, self.answer)
        self.config = kubeconfig(os.path.join(folder, "config"), f"https://127.0.0.1:{self.server.port}", self.cert[0])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.close()
        if not exc[0]:
            assert not self.server.errors, self.server.errors

    # ---- what a test does ----

    def put(self, kind, obj):
        """New, or changed: a spec that differs gets another generation."""
        meta = obj["metadata"]
        key = (kind, meta["namespace"], meta["name"])
        with self.lock:
            old = self.objects.get(key)
            generation = old["metadata"].get("generation", 0) if old else 0
            if not old or old.get("spec") != obj.get("spec"):
                generation += 1
            new = {**(old or {}), **obj, "metadata": {
                **meta, "uid": old["metadata"].get("uid", "") if old else f"uid-{self.version}", "generation": generation,
                "resourceVersion": self.next_version()}}
            self.keep(key, new, "MODIFIED" if old else "ADDED")
            return new

    def drop(self, kind, ns, name):
        with self.lock:
            old = self.objects.pop((kind, ns, name))
            self.log.append((int(self.next_version()), kind, "DELETED", {
                **old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}))
            self.lock.notify_all()

    def get(self, kind, ns, name):
        with self.lock:
            return self.objects.get((kind, ns, name))

    def status(self, ns, name):
        return (self.get("weighttransfers", ns, name) or {}).get("status", {})

    def events(self, ns=None):
        """The last of each Event: (kind, name, reason, count, message)."""
        with self.lock:
            return [(e["involvedObject"]["kind"], e["involvedObject"]["name"], e["reason"], e["count"], e["message"])
                    for (kind, n, _), e in self.objects.items() if kind == "events" and ns in (None, n)]

    def written(self, part, since=0.0):
        found = []
        with self.lock:
            for w in reversed(self.writes):
                if w[0] < since:
                    break
                if part in w[2]:
                    found.append(w)
        return found[::-1]

    # ---- what the operator sees ----

    def next_version(self):
        self.version += 1
        return str(self.version)

    def keep(self, key, obj, what):
        self.objects[key] = obj
        self.log.append((int(obj["metadata"]["resourceVersion"]), key[0], what, obj))
        self.lock.notify_all()

    def answer(self, rq, conn):
        body = json.loads(rq.body) if rq.body else None
        parts = rq.path.strip("/").split("/")
        if rq.method == "GET" and "watch" in rq.query:
            return self.watch(parts[-1], int(rq.query["resourceVersion"]), conn)
        if rq.method == "GET" and parts[-1] == "leases":  # of other releases there are none
            return conn.listing([], str(self.version))
        if "leases" in parts:
            return self.answer_lease(rq, conn, body)
        if parts[-1] == "tokenreviews":
            return conn.reply(201, review(body))
        if parts[-1] == "selfsubjectreviews":
            return conn.reply(201, {"status": {"userInfo": {"username": "system:serviceaccount:default:operator"}}})
        if rq.method == "GET" and parts[-1] in KINDS:
            with self.lock:
                items = [o for k, o in self.objects.items() if k[0] == parts[-1]]
                version = str(self.version)
            return conn.listing(items, version)
        if rq.method == "GET":
            return conn.status(404, "NotFound")
        return self.write(rq, conn, body, parts)

    def write(self, rq, conn, body, parts):
        path = "/" + "/".join(parts)
        self.hold(rq.method, path)
        refused = self.refuse(rq.method, path, body)
        if refused:
            return conn.status(refused[0], "Refused", refused[1])
        ns = parts[parts.index("namespaces") + 1]
        with self.lock:
            self.writes.append((time.monotonic(), rq.method, path, body))
            if parts[-1] == "status":
                key = ("weighttransfers", ns, parts[-2])
                old = self.objects.get(key)
                if not old:
                    return conn.status(404, "NotFound")
                if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                    return conn.status(409, "Conflict")
                new = {**old, "status": body["status"],
                       "metadata": {**old["metadata"], "resourceVersion": self.next_version()}}
            elif rq.method == "POST":
                key = (parts[-1], ns, body["metadata"]["name"])
                if key in self.objects:
                    return conn.status(409, "AlreadyExists")
                new = {**body, "metadata": {**body["metadata"], "resourceVersion": self.next_version()}}
            else:
                key = (parts[-2], ns, parts[-1])
                old = self.objects.get(key, {"metadata": {}})
                new = {**old, **body, "metadata": applied(old["metadata"], body.get("metadata", {}), ns, parts[-1])}
                if new == old:  # no news, and no other version
                    return conn.reply(200, old)
                new["metadata"]["resourceVersion"] = self.next_version()
            self.keep(key, new, "MODIFIED")
        if self.lose(rq.method, path):
            return conn.status(504, "Timeout")
        return conn.reply(200, new)

    def answer_lease(self, rq, conn, body):
        with self.lock:
            if rq.method == "GET":
                return conn.reply(200, self.lease) if self.lease else conn.status(404, "NotFound")
            body["metadata"]["resourceVersion"] = self.next_version()
            self.lease = body
        return conn.reply(200, body)

    def watch(self, kind, since, conn):
        conn.begin()
        at = 0
        while not self.server.stopped.is_set():
            with self.lock:
                self.lock.wait_for(lambda n=at: len(self.log) > n or self.server.stopped.is_set(), timeout=1)
                news, at = self.log[at:], len(self.log)
            data = b"".join(event(what, {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", **o})
                            for v, k, what, o in news if k == kind and v > since)
            if data:
                conn.chunk(data)


def applied(old, body, ns, name):
    """Metadata after server-side apply: owners of others stay."""
    mine = body.get("ownerReferences", [])
    kept = old.get("ownerReferences", [])
    owners = kept + [o for o in mine if o["uid"] not in {k["uid"] for k in kept}]
    return {**old, "namespace": ns, "name": name, **({"ownerReferences": owners} if owners else {})}


def review(body):
    """A token is "pod NAMESPACE NAME UID"; everything else is nobody's."""
    parts = body["spec"]["token"].split()
    if len(parts) != 4 or parts[0] != "pod":
        return {"status": {"authenticated": False, "error": "invalid bearer token"}}
    extra = {"authentication.kubernetes.io/pod-name": [parts[2]], "authentication.kubernetes.io/pod-uid": [parts[3]]}
    return {"status": {"authenticated": True, "audiences": body["spec"]["audiences"],
                       "user": {"username": f"system:serviceaccount:{parts[1]}:default", "extra": extra}}}


def transfer(ns, name, **spec):
    return {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
            "metadata": {"namespace": ns, "name": name},
            "spec": {"trainer": {"workers": 1}, "rollout": {"workersPerEngine": 1}, **spec}}


def pod(ns, name, object_, role="both", **status):
    return {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running", **status},
            "metadata": {"namespace": ns, "name": name,
                         "labels": {"weightbridge.io/name": object_, "weightbridge.io/role": role}},
            "spec": {"containers": [{"name": "app"}, {"name": "weightbridge-agent"}]}}


class Operator:
    """The program, in a cluster where agents show tokens."""
    n = 0

    def __init__(self, api, *args):
        Operator.n += 1
        self.cert = make_certificate(api.dir, f"operator{Operator.n}", "DNS:operator.test")
        ports = os.path.join(api.dir, f"ports{Operator.n}")
        self.log = os.path.join(api.dir, f"operator{Operator.n}.log")
        with open(self.log, "ab") as f:
            self.p = subprocess.Popen(
                [BIN, "--kubeconfig", api.config, "--tls-cert", self.cert[0], "--tls-key", self.cert[1], "--listen",
                 "127.0.0.1:0", "--http", "127.0.0.1:0", "--port-file", ports, "--name", f"op-{Operator.n}",
                 "--settle-ms", "50", *args], stderr=f)
        until("its ports", lambda: os.path.exists(ports) or self.p.poll() is not None)
        assert self.p.poll() is None, self.text()
        self.ports = {k: int(v) for k, v in (line.split() for line in open(ports))}
        until("ready", self.is_ready)

    def page(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=30) as r:
            return r.read().decode()

    def is_ready(self):
        try:
            return self.page("/readyz")
        except OSError:
            return False

    def metric(self, name):
        """The sum over all labels, unless NAME has them."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.page("/metrics").splitlines()
                   if line.startswith((name + " ", name + "{")))

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.p.terminate()
        try:
            self.p.wait(timeout=30)
        finally:
            self.p.kill()
        if exc[0]:
            print(self.text()[-4000:])

    # ---- agents ----

    def dial(self):
        context = ssl.create_default_context(cafile=self.cert[0])
        raw = socket.create_connection(("127.0.0.1", self.ports["listen"]), timeout=30)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each HELLO waits 40 ms for an acknowledgement
        return context.wrap_socket(raw, server_hostname="operator.test")

    def hello(self, token, agent, object_):
        """The answer to a HELLO (type, body), and the connection."""
        s = self.dial()
        say(s, HELLO, {"version_min": 1, "version_max": 2, "build": "test", "agent": agent, "token": token,
                       "objects": [object_], "node": "n", "host": "127.0.0.1", "port": 1, "bulk": "tcp",
                       "transports": [], "instance": struct.unpack("<Q", os.urandom(8))[0] >> 2})
        return (*read_frame(s), s)


def say(s, kind, body):
    data = json.dumps(body).encode()
    s.sendall(b"WBP1" + struct.pack("<BBHII", 2, 0, kind, len(data), 0) + data)


def read_frame(s):
    head = b""
    while len(head) < 16:
        part = s.recv(16 - len(head))
        if not part:
            return 0, {}
        head += part
    _, _, kind, n, _ = struct.unpack("<BBHII", head[4:])
    body = b""
    while len(body) < n:
        body += s.recv(n - len(body))
    return kind, json.loads(body)


def until(what, get, seconds=60.0):
    end = time.monotonic() + seconds
    while True:
        got = get()
        if got:
            return got
        assert time.monotonic() < end, f"still not so after {seconds} s: {what}"
        time.sleep(0.01)
