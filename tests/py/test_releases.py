# SPDX-License-Identifier: Apache-2.0
"""Two releases of the operator that both want all namespaces: one serves, the other says so and stays idle.  The API
server is a scripted one that knows Leases alone; tests/cluster/test_releases.py does the same with a real one."""
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
import kubefake  # noqa: E402

BIN = os.path.join(os.environ["WB_BUILD"], "bin", "weightbridge-operator")
GROUP = "/apis/coordination.k8s.io/v1"
SLOW = max(1, round(os.getloadavg()[0] / (os.cpu_count() or 1)))


class Api:
    """Leases with resourceVersions; nothing else is there."""

    def __init__(self, forbid_list=False):
        self.lock, self.over = threading.Lock(), threading.Event()
        self.leases, self.version, self.forbid_list = {}, 0, forbid_list

    def store(self, key, body):
        self.version += 1
        old = self.leases.get(key)
        meta = body["metadata"]
        meta["resourceVersion"] = str(self.version)
        meta["uid"] = old["metadata"]["uid"] if old else f"uid-{self.version}"
        meta["creationTimestamp"] = old["metadata"]["creationTimestamp"] if old else "2026-01-01T00:00:00Z"
        self.leases[key] = body
        return body

    def lease(self, rq, conn):
        parts = rq.path[len(GROUP):].strip("/").split("/")
        with self.lock:
            if parts == ["leases"]:
                if self.forbid_list:
                    return conn.status(403, "Forbidden", 'cannot list resource "leases"')
                assert rq.query["labelSelector"] == "weightbridge.io/serves=all", rq.query
                found = [x for x in self.leases.values()
                         if x["metadata"].get("labels", {}).get("weightbridge.io/serves") == "all"]
                return conn.listing(found, str(self.version))
            key = (parts[1], parts[3] if len(parts) > 3 else json.loads(rq.body)["metadata"]["name"])
            old = self.leases.get(key)
            if rq.method == "GET":
                return conn.reply(200, old) if old else conn.status(404, "NotFound")
            body = json.loads(rq.body)
            if (old is None) != (rq.method == "POST") or \
                    (old and body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]):
                return conn.status(409, "Conflict")
            return conn.reply(200, self.store(key, body))

    def __call__(self, rq, conn):
        if rq.path.startswith(GROUP):
            self.lease(rq, conn)
        elif rq.query.get("watch"):
            conn.begin()
            self.over.wait()  # nothing ever happens
        else:
            conn.listing([], "1")


class Operator:
    def __init__(self, d, config, name, lease):
        self.log = os.path.join(d, name + ".log")
        key, ports = os.path.join(d, "key"), os.path.join(d, name + ".ports")
        if not os.path.exists(key):
            with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(secrets.token_hex(32))
        with open(self.log, "w") as f:
            self.p = subprocess.Popen(
                [BIN, "--kubeconfig", config, "--psk-file", key, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                 "--port-file", ports, "--name", name, "--lease", f"ops/{lease}", "--log-format", "text"], stderr=f)
        until(lambda: os.path.exists(ports), "ports")
        with open(ports) as f:
            self.ports = dict(line.split() for line in f)

    def text(self):
        with open(self.log) as f:
            return f.read()

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def leads(self):
        return "\nwb_leader 1\n" in self.page("/metrics")[1]

    def is_idle(self):
        return "this operator is idle" in self.text()

    def stop(self):
        self.p.terminate()
        return self.p.wait(20 * SLOW)


def until(what, name, seconds=30):
    end = time.monotonic() + seconds * SLOW
    while not what():
        assert time.monotonic() < end, "never: " + name
        time.sleep(0.02)


def second_stays_idle_and_serves_when_the_first_is_gone(d, config, api):
    first = Operator(d, config, "a0", "a")
    until(first.leads, "the first serves")
    second = Operator(d, config, "b0", "b")
    until(second.is_idle, "the second says that it is idle")
    assert "another release, with Lease ops/a, serves the WeightTransfers of all namespaces" in second.text()
    until(lambda: second.page("/readyz")[0] == 200, "it is ready, as a standby is")
    assert not second.leads() and first.leads()
    # Another replica takes over: that is not the end of the release.
    replica = Operator(d, config, "a1", "a")
    until(lambda: replica.page("/readyz")[0] == 200, "the replica")
    assert first.stop() == 0
    until(replica.leads, "the replica leads")
    assert not second.leads()
    assert replica.stop() == 0
    with api.lock:
        del api.leases[("ops", "a")]  # uninstalled
    until(second.leads, "the second serves")
    assert second.text().count("this operator is idle") == 1
    assert second.stop() == 0


def of_two_that_start_at_once_one_serves(d, config, api):
    both = [Operator(d, config, f"r{i}", f"r{i}") for i in range(2)]
    until(lambda: any(o.leads() for o in both) and any(o.is_idle() for o in both), "one serves, one is idle", 60)
    assert [o.leads() for o in both].count(True) == 1
    for o in both:
        assert o.stop() == 0


def without_the_right_to_look_it_serves_and_says_so(d, config, api):
    o = Operator(d, config, "f0", "f")
    until(o.leads, "it serves")
    assert "may not list Leases" in o.text()
    assert o.stop() == 0


def main():
    with tempfile.TemporaryDirectory() as d:
        cert = kubefake.make_certificate(d, "api", "IP:127.0.0.1")
        for n, case in enumerate((second_stays_idle_and_serves_when_the_first_is_gone,
                                  of_two_that_start_at_once_one_serves, without_the_right_to_look_it_serves_and_says_so)):
            api = Api(forbid_list=n == 2)
            server = kubefake.Server(cert, api)
            config = kubefake.kubeconfig(os.path.join(d, f"config{n}"), f"https://127.0.0.1:{server.port}", cert[0])
            t0 = time.monotonic()
            case(d, config, api)
            assert not server.errors, server.errors
            api.over.set()
            server.close()
            print(f"ok {case.__name__} {time.monotonic() - t0:.2f} s", flush=True)


if __name__ == "__main__":
    main()
