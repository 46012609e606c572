# SPDX-License-Identifier: Apache-2.0
"""As much of an API server as an operator needs that shares a key with its agents: WeightTransfers to list, watch and
write the status of, Leases, events.  It may be away, and objects change meanwhile.

    api = Api(folder)
    api.put("rl/grpo", spec)      # a new object: another uid than any before
    api.edit("rl/grpo", spec)     # the same one
    api.delete("rl/grpo")
    api.away(True)                # no request is answered, watches end
    api.lag(True)                 # watches tell nothing, until they tell all at once
    api.refuse = lambda: (503, ["Retry-After: 3"])  # of each status: None = it is taken
    api.stored = lambda key: ...  # before the one who wrote a status is answered
"""
import copy
import json
import os
import threading
import time

from kubefake import Server, event, kubeconfig, make_certificate

WTS = "/weighttransfers"


class Api:
    def __init__(self, folder):
        self.lock = threading.Condition()
        self.version, self.made, self.is_away, self.lags = 1, 0, False, False
        self.refuse, self.stored = lambda: None, lambda key: None
        self.told = 0  # the newest version that a watch of objects has told
        self.objects, self.log = {}, []  # by namespace/name; (version, kind, object)
        self.leases, self.events = {}, []  # leases by name
        self.writes = []  # (seconds, namespace/name, status) of each that was taken
        self.refused = []  # (seconds, HTTP status) of each that was not
        cert = make_certificate(folder, "api", "IP:127.0.0.1")
        self.server = Server(cert, self.handle)
        self.config = kubeconfig(os.path.join(folder, "kubeconfig"), f"https://127.0.0.1:{self.server.port}", cert[0],
                                 cluster=None)

    # ---- what a test does ----

    def put(self, key, spec):
        namespace, name = key.split("/")
        with self.lock:
            if key in self.objects:
                self._delete(key)
            self.made += 1
            meta = {"name": name, "namespace": namespace, "uid": f"uid-{self.made}", "generation": 1}
            self._store(key, "ADDED", {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer",
                                       "metadata": meta, "spec": spec})

    def edit(self, key, spec):
        with self.lock:
            o = copy.deepcopy(self.objects[key])
            o["spec"] = spec
            o["metadata"]["generation"] += 1
            self._store(key, "MODIFIED", o)

    def delete(self, key):
        with self.lock:
            self._delete(key)

    def away(self, is_away):
        with self.lock:
            self.is_away = is_away
            self.lock.notify_all()

    def lag(self, is_late):
        with self.lock:
            self.lags = is_late
            self.lock.notify_all()

    def write(self, key, status):
        """As somebody else who may write it."""
        with self.lock:
            self._store(key, "MODIFIED", {**copy.deepcopy(self.objects[key]), "status": status})

    def status(self, key):
        with self.lock:
            return copy.deepcopy(self.objects[key].get("status") or {})

    def close(self):
        self.away(True)
        self.server.close()

    # ---- the server ----

    def _store(self, key, kind, o):
        self.version += 1
        o["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = o
        self._log(kind, o)

    def _delete(self, key):
        self.version += 1
        o = copy.deepcopy(self.objects.pop(key))
        o["metadata"]["resourceVersion"] = str(self.version)
        self._log("DELETED", o)

    def _log(self, kind, o):
        self.log.append((self.version, kind, copy.deepcopy(o)))
        self.lock.notify_all()

    def handle(self, rq, conn):
        with self.lock:
            if self.is_away:
                conn.cut()
                return
        if rq.query.get("watch"):
            self._watch(rq, conn)
        elif "/leases" in rq.path:
            self._lease(rq, conn)
        elif rq.path.endswith("/events"):
            with self.lock:
                self.events.append(json.loads(rq.body))
            conn.reply(201, json.loads(rq.body))
        elif rq.path.endswith(WTS):
            with self.lock:
                items, version = list(self.objects.values()), str(self.version)
            conn.listing(items, version)
        elif rq.method == "PATCH" and rq.path.endswith("/status"):
            self._patch(rq, conn)
        else:
            conn.status(404, "NotFound")

    def _watch(self, rq, conn):
        kind, since = "WeightTransfer" if rq.path.endswith(WTS) else "Lease", int(rq.query["resourceVersion"])
        name = rq.query.get("fieldSelector", "").partition("metadata.name=")[2]
        end = time.monotonic() + 60
        conn.begin()
        while time.monotonic() < end:
            with self.lock:
                if not self.is_away and (self.lags and kind != "Lease" or not self.log or self.log[-1][0] <= since):
                    self.lock.wait(1)
                if self.is_away:
                    break
                if self.lags and kind != "Lease":
                    continue
                news = [x for x in self.log if x[0] > since]
            for version, what, o in news:
                if o["kind"] == kind and name in ("", o["metadata"]["name"]):
                    conn.chunk(event(what, o))
                since = version
            if kind != "Lease":
                self.told = since
        conn.cut()

    def _lease(self, rq, conn):
        with self.lock:
            if rq.path.endswith("/leases") and rq.method == "GET":
                wanted = rq.query.get("fieldSelector", "").partition("metadata.name=")[2]
                conn.listing([x for n, x in self.leases.items() if wanted in ("", n)], str(self.version))
                return
            got = json.loads(rq.body) if rq.method != "GET" else None
            name = got["metadata"]["name"] if got else rq.path.split("/")[-1]
            old = self.leases.get(name)
            if got:
                if old and got["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                    conn.status(409, "Conflict")
                    return
                self.version += 1
                got["metadata"].update(resourceVersion=str(self.version), uid=f"lease-{name}")
                self.leases[name] = got
                self._log("MODIFIED" if old else "ADDED", got)
                old = got
            if not old:
                conn.status(404, "NotFound")
                return
            lease = copy.deepcopy(old)
        conn.reply(200, lease)

    def _patch(self, rq, conn):
        namespace, name = rq.path.split("/")[-4], rq.path.split("/")[-2]
        got = json.loads(rq.body)
        with self.lock:
            o = copy.deepcopy(self.objects.get(f"{namespace}/{name}"))
            if not o:
                conn.status(404, "NotFound")
                return
            no = self.refuse()
            if not no and got["metadata"]["resourceVersion"] != o["metadata"]["resourceVersion"]:
                no = 409, []
            if no:
                self.refused.append((time.monotonic(), no[0]))
                if no[1] is None:  # nobody serves this path
                    conn.reply(no[0], body=b"404 page not found\n")
                else:
                    conn.status(no[0], {409: "Conflict", 404: "NotFound"}.get(no[0], "Refused"), headers=no[1])
                return
            self.writes.append((time.monotonic(), f"{namespace}/{name}", got["status"]))
            if got["status"] != o.get("status"):
                o["status"] = got["status"]
                self._store(f"{namespace}/{name}", "MODIFIED", o)
        self.stored(f"{namespace}/{name}")
        conn.reply(200, o)
