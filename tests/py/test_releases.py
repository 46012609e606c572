# SPDX-License-Identifier: Apache-2.0
"""Two releases of the operator that both want all namespaces: one serves, the other says so and stays idle; what others
forge keeps nobody idle, and a namespace that a release of its own serves is left to it.  The API server is a scripted
one that knows Leases and WeightTransfers alone; tests/cluster/test_releases.py does the same with a real one."""
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
SLOW = max(1, round(os.getloadavg()[0] / (os.cpu_count() or 1)))


KINDS = {"/apis/coordination.k8s.io/v1": "leases", "/apis/weightbridge.io/v1alpha1": "weighttransfers"}


class Api:
    """Two kinds of objects with resourceVersions, watches of them, and reviews of access; nothing else is there."""

    def __init__(self, forbid_list=False):
        self.lock, self.over = threading.Condition(), threading.Event()
        self.leases, self.objects, self.version, self.forbid_list = {}, {}, 0, forbid_list
        self.history = []  # (version, kind, what happened, object)
        self.asked = []  # accounts that were asked about
        self.writers = []  # which operator wrote which object's status
        self.fail_reviews = lambda user: False
        self.fail_selves = []  # statuses of the first questions of operators who they are
        self.fail_lists = 0  # so many lists of who serves a namespace fail
        self.missing = set()  # namespaces without Leases, and in which none can be made: deleted ones

    def store(self, kind, key, body):
        all_ = getattr(self, kind)
        self.version += 1
        old = all_.get(key)
        meta = body["metadata"]
        meta.update(resourceVersion=str(self.version), namespace=key[0], name=key[1],
                    uid=old["metadata"]["uid"] if old else f"uid-{self.version}",
                    creationTimestamp=old["metadata"]["creationTimestamp"] if old else "2026-01-01T00:00:00Z")
        all_[key] = body
        self.history.append((self.version, kind, "MODIFIED" if old else "ADDED", json.loads(json.dumps(body))))
        self.lock.notify_all()
        return body

    def drop(self, kind, key):
        with self.lock:
            old = getattr(self, kind).pop(key)
            self.version += 1
            old["metadata"]["resourceVersion"] = str(self.version)
            self.history.append((self.version, kind, "DELETED", old))
            self.lock.notify_all()

    def put_object(self, ns):
        with self.lock:
            self.store("objects", (ns, "t"), {
                "apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", "metadata": {"generation": 1},
                "spec": {"trainer": {"workers": 1}, "rollout": {"workersPerEngine": 1}}})

    def edit_objects(self, *namespaces):
        """Who serves such an object says so in its status."""
        with self.lock:
            self.writers.clear()
            for ns in namespaces:
                o = json.loads(json.dumps(self.objects[ns, "t"]))
                o["metadata"]["generation"] += 1
                o["spec"]["suspend"] = not o["spec"].get("suspend", False)
                self.store("objects", (ns, "t"), o)

    def take(self, ns, seconds, holder="x"):
        """Whoever may write Leases in a namespace puts another name on the one there."""
        with self.lock:
            lease = json.loads(json.dumps(self.leases[ns, "weightbridge-serves"]))
            lease["spec"].update(holderIdentity=holder, leaseDurationSeconds=seconds)
            self.store("leases", (ns, "weightbridge-serves"), lease)

    def forge(self, ns, name, account=None, holder="x", label=True, more=0):
        """A Lease as a tenant may write it, with so many bytes more."""
        with self.lock:
            self.store("leases", (ns, name), {
                "metadata": {"labels": {"weightbridge.io/serves": "all"} if label else {},
                             "annotations": {**({"weightbridge.io/account": account} if account else {}), "more": more * "x"}},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 60}})

    def wanted(self, rq):
        """Of a list or watch: which objects."""
        kind = "leases" if "/leases" in rq.path else "objects"
        ns = rq.path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in rq.path else None
        name = rq.query.get("fieldSelector", "").partition("metadata.name=")[2]
        label = rq.query.get("labelSelector")
        assert label in (None, "weightbridge.io/serves=all"), rq.query
        return kind, lambda o: ((not ns or o["metadata"]["namespace"] == ns) and (not name or o["metadata"]["name"] == name) and
                                (not label or o["metadata"].get("labels", {}).get("weightbridge.io/serves") == "all"))

    def list(self, rq, conn):
        kind, fits = self.wanted(rq)
        with self.lock:
            if self.fail_lists and "weightbridge-serves" in rq.query.get("fieldSelector", ""):
                self.fail_lists -= 1
                return conn.status(500, "InternalError")
            found = [o for _, o in sorted(getattr(self, kind).items()) if fits(o)]
            at, page = int(rq.query.get("continue", 0)), int(rq.query["limit"])
            conn.listing(found[at:at + page], str(self.version), str(at + page) if len(found) > at + page else None)

    def watch(self, rq, conn):
        kind, fits = self.wanted(rq)
        version = int(rq.query["resourceVersion"])
        conn.begin()
        while not self.over.is_set():
            with self.lock:
                news = [x for x in self.history if x[0] > version and x[1] == kind and fits(x[3])]
                if not news:
                    self.lock.wait(0.5)
            for version, _, what, o in news:
                conn.chunk(kubefake.event(what, o))

    def write_status(self, rq, conn, key):
        body = json.loads(rq.body)
        with self.lock:
            old = self.objects.get(key)
            if not old or body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
                return conn.status(409, "Conflict")
            self.writers.append((key[0], body["status"]["operator"]["name"].rsplit("-", 1)[0]))
            conn.reply(200, self.store("objects", key, {**old, "status": body["status"]}))

    def one(self, rq, conn, parts):
        key = (parts[1], parts[3] if len(parts) > 3 else json.loads(rq.body)["metadata"]["name"])
        with self.lock:
            if key[0] in self.missing:
                return conn.status(404, "NotFound", f'namespaces "{key[0]}" not found')
            old = self.leases.get(key)
            if rq.method == "GET":
                return conn.reply(200, old) if old else conn.status(404, "NotFound")
            body = json.loads(rq.body)
            if (old is None) != (rq.method == "POST") or \
                    (old and body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]):
                return conn.status(409, "Conflict")
            return conn.reply(200, self.store("leases", key, body))

    def review(self, rq, conn):
        if rq.path.endswith("/selfsubjectreviews"):
            with self.lock:
                if self.fail_selves:
                    return conn.status(self.fail_selves.pop(0), "no")
            return conn.reply(201, {"status": {"userInfo": {"username": "system:serviceaccount:ops:operator"}}})
        spec = json.loads(rq.body)["spec"]
        self.asked.append(spec["user"])
        if self.fail_reviews(spec["user"]):
            return conn.status(500, "InternalError")
        conn.reply(201, {"status": {"allowed": spec["user"] == "system:serviceaccount:ops:operator"}})

    def __call__(self, rq, conn):
        group = next((g for g in KINDS if rq.path.startswith(g + "/")), None)
        parts = rq.path[len(group or ""):].strip("/").split("/")
        if rq.method == "POST" and rq.path.endswith("reviews"):
            self.review(rq, conn)
        elif self.forbid_list and parts == ["leases"]:
            conn.status(403, "Forbidden", 'cannot list resource "leases"')
        elif not group:
            (self.nothing if rq.query.get("watch") else lambda *a: conn.listing([], "1"))(rq, conn)
        elif parts[-1] == "status":
            self.write_status(rq, conn, (parts[1], parts[3]))
        elif rq.query.get("watch"):
            self.watch(rq, conn)
        elif rq.method == "GET" and parts[-1] == KINDS[group]:
            self.list(rq, conn)
        else:
            self.one(rq, conn, parts)

    def nothing(self, rq, conn):
        conn.begin()
        self.over.wait()  # nothing ever happens


class Operator:
    def __init__(self, d, config, name, lease, *watched):
        self.log = os.path.join(d, name + ".log")
        key, ports = os.path.join(d, "key"), os.path.join(d, name + ".ports")
        if not os.path.exists(key):
            with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(secrets.token_hex(32))
        if os.path.exists(ports):
            os.unlink(ports)  # of one of that name before
        with open(self.log, "w") as f:
            self.p = subprocess.Popen(
                [BIN, "--kubeconfig", config, "--psk-file", key, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                 "--port-file", ports, "--name", name, "--lease", f"ops/{lease}", "--log-format", "text",
                 *[x for ns in watched for x in ("--watch-namespace", ns)]], stderr=f)
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

    def has(self, metric, value):
        return f"\n{metric} {value}\n" in self.page("/metrics")[1]

    def leads(self):
        return self.has("wb_leader", 1)

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
    api.drop("leases", ("ops", "a"))  # uninstalled
    until(second.leads, "the second serves")
    assert second.text().count("this operator is idle") == 1
    assert second.stop() == 0


def of_two_that_start_at_once_one_serves(d, config, api):
    both = [Operator(d, config, f"r{i}", f"r{i}") for i in range(2)]
    until(lambda: any(o.leads() for o in both) and any(o.is_idle() for o in both), "one serves, one is idle", 60)
    assert [o.leads() for o in both].count(True) == 1
    for o in both:
        assert o.stop() == 0


def what_others_wrote_on_its_lease_stays(d, config, api):
    """A tool that deploys keeps its marks there: without them it would take the Lease for one that nobody wants."""
    theirs = {"labels": {"team": "x"}, "annotations": {"tool.example/id": "wb:x", "weightbridge.io/address": "old:1"},
              "finalizers": ["tool.example/a"], "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "1"}]}
    with api.lock:
        api.store("leases", ("ops", "o"), {"metadata": theirs, "spec": {}})
    o = Operator(d, config, "o0", "o")
    until(o.leads, "it serves")
    written = api.leases["ops", "o"]["spec"]["renewTime"]
    until(lambda: api.leases["ops", "o"]["spec"]["renewTime"] != written, "it renews")
    meta = api.leases["ops", "o"]["metadata"]
    assert meta["labels"] == {"team": "x", "weightbridge.io/serves": "all"}, meta
    assert meta["annotations"] == {"tool.example/id": "wb:x", "weightbridge.io/address": "",
                                   "weightbridge.io/account": "operator"}, meta
    assert meta["finalizers"] == ["tool.example/a"] and meta["ownerReferences"] == theirs["ownerReferences"], meta
    assert o.stop() == 0
    meta = api.leases["ops", "o"]["metadata"]  # given up
    assert meta["finalizers"] == ["tool.example/a"] and meta["annotations"]["tool.example/id"] == "wb:x", meta


def what_tenants_forge_keeps_nobody_idle(d, config, api):
    """Labels on Leases of a namespace that is not the release's; one names an account that has rights, in another one."""
    for i in range(1200):
        api.forge("a-tenant", f"forged-{i}", None if i < 4 else f"account-{i}")
    api.forge("b-tenant", "forged", "operator")
    o = Operator(d, config, "o0", "o")
    until(o.leads, "it serves")
    assert not o.is_idle() and 1 <= len(set(api.asked)) <= 9, api.asked
    # Nor do they hide a release that does serve.
    second = Operator(d, config, "p0", "p")
    until(second.is_idle, "the second says that it is idle")
    assert "with Lease ops/o, serves" in second.text()
    for x in (second, o):
        assert x.stop() == 0


def an_account_that_cannot_be_asked_about_keeps_nobody_idle(d, config, api):
    """No account is called so, or the API server cannot say; one that does have an answer is not missed for a lost one."""
    api.forge("a-tenant", "two-bytes", 127 * "\u00e9")
    api.forge("a-tenant", "long", 300 * "x")
    api.forge("b-tenant", "broken", "broken")
    api.fail_reviews = lambda user: user.endswith(":broken") or api.asked.count(user) == 1
    o = Operator(d, config, "o0", "o")
    until(o.leads, "it serves")
    assert set(api.asked) == {"system:serviceaccount:b-tenant:broken"} and len(api.asked) == 3, api.asked
    api.asked.clear()
    second = Operator(d, config, "p0", "p")
    until(second.is_idle, "the second says that it is idle")
    assert not second.leads() and "system:serviceaccount:ops:operator" in api.asked
    for x in (second, o):
        assert x.stop() == 0


def who_it_is_is_asked_until_it_is_told(d, config, api):
    """Else its Lease would not name its account, and no other release would believe that it serves."""
    api.fail_selves = [500, 503, 429]
    first = Operator(d, config, "s0", "s")
    until(first.leads, "it serves")
    assert api.leases["ops", "s"]["metadata"]["annotations"]["weightbridge.io/account"] == "operator", api.leases
    second = Operator(d, config, "u0", "u")
    until(second.is_idle, "the second says that it is idle")
    assert not api.fail_selves and not second.leads() and first.leads()
    for x in (second, first):
        assert x.stop() == 0


def an_api_server_that_cannot_tell_who_it_is_is_asked_once(d, config, api):
    """That of a Kubernetes before 1.28."""
    api.fail_selves = [404]
    o = Operator(d, config, "v0", "v")
    until(o.leads, "it serves")
    assert "does not tell who this operator is" in o.text(), o.text()
    assert "weightbridge.io/account" not in api.leases["ops", "v"]["metadata"]["annotations"]
    assert o.stop() == 0


def who_may_not_ask_who_it_is_looks_for_others_all_the_same(d, config, api):
    """And what is forbidden for a moment is asked again."""
    api.fail_selves = [403]
    first = Operator(d, config, "w0", "w")
    until(first.leads, "it serves")
    assert api.leases["ops", "w"]["metadata"]["annotations"]["weightbridge.io/account"] == "operator", api.leases
    api.fail_selves = [403] * 5
    second = Operator(d, config, "x0", "x")
    until(second.is_idle, "the second says that it is idle")
    assert "does not tell who this operator is" in second.text() and len(api.fail_selves) == 2, second.text()
    for x in (second, first):
        assert x.stop() == 0


def what_tenants_write_at_length_keeps_nobody_from_leading(d, config, api):
    """A page of it is longer than an operator takes: it asks for shorter ones."""
    for i in range(60):
        api.forge("a-tenant", f"forged-{i}", more=1 << 18)
    o = Operator(d, config, "l0", "l")
    until(o.leads, "it serves", 60)
    assert "the answer is longer than" in o.text()
    assert o.stop() == 0


def a_namespace_with_a_release_of_its_own_is_left_to_it(d, config, api):
    for ns in ("ours", "theirs"):
        api.put_object(ns)
    all_ = Operator(d, config, "all", "all")
    until(lambda: all_.has("wb_objects", 2), "both are served")
    some = Operator(d, config, "some", "some", "theirs")
    until(lambda: some.has("wb_objects", 1) and all_.has("wb_objects", 1), "one each")
    assert all_.has("wb_idle_namespaces", 1) and some.has("wb_idle_namespaces", 0) and some.leads() and all_.leads()
    text = all_.text()
    assert "this operator is idle for a namespace that another release serves" in text and "ops/some" in text, text
    api.edit_objects("ours", "theirs")
    until(lambda: {("ours", "all"), ("theirs", "some")} <= set(api.writers), "both answer")
    assert set(api.writers) == {("ours", "all"), ("theirs", "some")}, api.writers
    # Begun anew beside it, and when the namespace is free again.
    assert all_.stop() == 0
    again = Operator(d, config, "again", "all")
    until(lambda: again.has("wb_objects", 1) and again.has("wb_idle_namespaces", 1), "it leaves the namespace alone from the start")
    assert some.stop() == 0
    api.drop("leases", ("theirs", "weightbridge-serves"))
    until(lambda: again.has("wb_objects", 2) and again.has("wb_idle_namespaces", 0), "it serves what nobody else does")
    assert {w for ns, w in api.writers if ns == "theirs"} <= {"some", "again"}, api.writers
    assert again.stop() == 0


def a_namespace_of_another_is_not_served_while_that_is_not_known(d, config, api):
    for ns in ("ours", "theirs"):
        api.put_object(ns)
    some = Operator(d, config, "some", "some", "theirs")
    until(lambda: some.has("wb_objects", 1), "a release for that one")
    with api.lock:
        api.fail_lists = 3
    all_ = Operator(d, config, "all", "all")
    until(all_.leads, "it leads")
    api.edit_objects("ours", "theirs")

    def is_left_alone():
        assert not all_.has("wb_objects", 2), all_.text()
        return all_.has("wb_objects", 1) and all_.has("wb_idle_namespaces", 1)
    until(is_left_alone, "it leaves that one alone")
    assert not api.fail_lists and "Leases cannot be listed" not in all_.text()
    until(lambda: ("ours", "all") in api.writers, "it serves the others")
    assert ("theirs", "all") not in api.writers, api.writers
    for x in (some, all_):
        assert x.stop() == 0


def what_cannot_be_known_for_half_a_minute_is_not_waited_for(d, config, api):
    api.put_object("ours")
    api.fail_lists = 1 << 30
    o = Operator(d, config, "w0", "w")
    until(lambda: o.has("wb_objects", 1), "it serves", 90)
    assert "Leases cannot be listed: namespaces that another release serves are not known" in o.text()
    assert o.stop() == 0


def a_namespace_that_is_taken_away_costs_no_other(d, config, api):
    for ns in ("team-a", "team-b"):
        api.put_object(ns)
    o = Operator(d, config, "t", "t", "team-a", "team-b")
    until(lambda: o.has("wb_objects", 2) and o.page("/readyz")[0] == 200, "both are served")
    api.take("team-b", 3000)
    until(lambda: o.has("wb_idle_namespaces", 1), "it is idle for that one")
    assert o.page("/readyz")[0] == 200 and o.leads() and o.has("wb_objects", 1)
    text = o.text()
    assert 'another release serves namespace=team-b release=x' in text.replace('"', ""), text
    api.edit_objects("team-b", "team-a")
    until(lambda: api.writers, "it goes on")
    assert set(api.writers) == {("team-a", "t")}, api.writers
    # However long what he writes is, it is said once.
    api.take("team-b", 3000, 200 * "\u00e9")
    until(lambda: "release=?" in o.text().replace('"', ""), "another holder")
    # Whose time is over has it no more.
    api.take("team-b", 1)
    until(lambda: o.has("wb_objects", 2) and o.has("wb_idle_namespaces", 0), "it serves both again")
    api.edit_objects("team-b")
    until(lambda: api.writers, "and says so there")
    assert o.stop() == 0


def a_namespace_that_is_deleted_costs_no_other(d, config, api):
    for ns in ("team-a", "team-b"):
        api.put_object(ns)
    o = Operator(d, config, "g", "g", "team-a", "team-b")
    until(lambda: o.has("wb_objects", 2) and o.page("/readyz")[0] == 200, "both are served")
    with api.lock:
        api.missing.add("team-b")
    api.drop("objects", ("team-b", "t"))
    api.drop("leases", ("team-b", "weightbridge-serves"))
    # One that begins now is ready all the same, and serves its other namespace.
    api.put_object("team-c")
    late = Operator(d, config, "h", "h", "team-b", "team-c")
    until(lambda: late.has("wb_idle_namespaces", 1) and late.page("/readyz")[0] == 200, "the late one is ready")
    assert late.has("wb_objects", 1) and "whose Lease it can neither read nor make" in late.text()
    until(lambda: o.has("wb_idle_namespaces", 1), "the first is idle for the one that is missing", 90)
    assert o.page("/readyz")[0] == 200 and o.leads() and o.has("wb_objects", 1)
    api.edit_objects("team-a", "team-c")
    until(lambda: {("team-a", "g"), ("team-c", "h")} <= set(api.writers), "both go on")
    # It is there again: one of the two has it.
    with api.lock:
        api.missing.clear()
    api.put_object("team-b")
    until(lambda: o.has("wb_objects", 2) or late.has("wb_objects", 2), "it is served again")
    for x in (late, o):
        assert x.stop() == 0


def without_the_right_to_look_it_serves_and_says_so(d, config, api):
    api.put_object("ours")
    o = Operator(d, config, "f0", "f")
    until(lambda: o.leads() and o.has("wb_objects", 1), "it serves")
    assert "may not list Leases" in o.text() and "Leases cannot be listed" in o.text()
    assert o.stop() == 0


def main():
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as d:
        cert = kubefake.make_certificate(d, "api", "IP:127.0.0.1")
        for n, case in enumerate((second_stays_idle_and_serves_when_the_first_is_gone,
                                  of_two_that_start_at_once_one_serves, what_others_wrote_on_its_lease_stays,
                                  what_tenants_forge_keeps_nobody_idle,
                                  an_account_that_cannot_be_asked_about_keeps_nobody_idle,
                                  who_it_is_is_asked_until_it_is_told,
                                  an_api_server_that_cannot_tell_who_it_is_is_asked_once,
                                  who_may_not_ask_who_it_is_looks_for_others_all_the_same,
                                  what_tenants_write_at_length_keeps_nobody_from_leading,
                                  a_namespace_with_a_release_of_its_own_is_left_to_it,
                                  a_namespace_of_another_is_not_served_while_that_is_not_known,
                                  what_cannot_be_known_for_half_a_minute_is_not_waited_for,
                                  a_namespace_that_is_taken_away_costs_no_other,
                                  a_namespace_that_is_deleted_costs_no_other,
                                  without_the_right_to_look_it_serves_and_says_so)):
            if only and case.__name__ not in only:
                continue
            api = Api(forbid_list=case is without_the_right_to_look_it_serves_and_says_so)
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
