# SPDX-License-Identifier: Apache-2.0
"""Two releases of the operator that both serve all namespaces: one does, the other says so and stays idle, and what a
tenant forges counts for nothing.  Two for some namespaces stand side by side, and of one that they share the first
serves it; one for all leaves theirs alone."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, wait_for  # noqa: E402
from op import API, Operator, Worker, status, transfer_object  # noqa: E402

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"


def account(c):
    """What a release runs as: by its account another one knows it."""
    c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "operator"}})
    c.kubectl("create", "clusterrolebinding", "operator", "--clusterrole=cluster-admin", "--serviceaccount=default:operator")
    with open(c.path("op.token"), "w") as f:
        f.write(c.kubectl("create", "token", "operator", "--duration=2h").strip())
    return c.write_kubeconfig("op", {"tokenFile": c.path("op.token")})


def forge(c):
    """As a tenant may who has all rights in a namespace, and no others; first by name, so that it is listed first."""
    c.post("/api/v1/namespaces", {"metadata": {"name": "a-tenant"}})
    c.post("/api/v1/namespaces/a-tenant/serviceaccounts", {"metadata": {"name": "default"}})
    c.kubectl("create", "rolebinding", "-n", "a-tenant", "owner", "--clusterrole=cluster-admin", "--serviceaccount=a-tenant:default")
    token = c.kubectl("create", "token", "default", "-n", "a-tenant").strip()
    for name in ("default", "operator"):
        c.raw(LEASES.format("a-tenant", "")[:-1], "POST", {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
                "name": "forged-" + name, "labels": {"weightbridge.io/serves": "all"}, "annotations": {"weightbridge.io/account": name}},
            "spec": {"holderIdentity": "x"}}, "application/json", token)


def release(c, name):
    return Operator(c, 0, c.config, args=["--lease", f"default/{name}"])


def second_stays_idle(c):
    first = release(c, "first")
    wait_for(lambda: first.metric("wb_leader") == 1, 20)
    assert "idle" not in first.text() and "would not believe" not in first.text(), first.text()
    second = release(c, "second")
    wait_for(lambda: "this operator is idle" in second.text(), 20)
    assert "another release, with Lease default/first, serves the WeightTransfers of all namespaces" in second.text()
    wait_for(second.is_ready, 20)  # as a standby is
    assert second.metric("wb_leader") == 0 and second.metric("wb_objects") == 0
    w = Worker(c, second.ports["listen"], "lost", "trainer", 0, 1)
    wait_for(lambda: "this operator is idle" in w.agent.text(), 20)
    w.end()
    assert status(c)["conditions"] and second.text().count("cluster: this operator is idle") == 1
    return first, second


def its_replica_takes_over_from_it(c, first, second):
    """A change of leaders is not the end of a release."""
    replica = release(c, "first")
    wait_for(replica.is_ready, 20)
    assert first.stop() == 0
    wait_for(lambda: replica.metric("wb_leader") == 1, 30)
    assert second.metric("wb_leader") == 0
    return replica


def it_is_uninstalled(c, first, second):
    assert first.stop() == 0
    c.raw(LEASES.format("default", "first"), "DELETE")
    t0 = time.monotonic()
    wait_for(lambda: second.metric("wb_leader") == 1, 30)
    print(f"the second served {time.monotonic() - t0:.1f} s after the first one's Lease was gone")
    w = Worker(c, second.ports["listen"], "train", "trainer", 0, 1)
    wait_for(lambda: "operator connected" in w.agent.text(), 20)
    w.end()
    assert second.stop() == 0
    c.raw(LEASES.format("default", "second"), "DELETE")


def both_start_at_once(c):
    both = [release(c, f"race{i}") for i in range(2)]
    wait_for(lambda: [o.metric("wb_leader") for o in both].count(1) == 1, 40)
    idle = next(o for o in both if o.metric("wb_leader") == 0)
    wait_for(lambda: "this operator is idle" in idle.text(), 20)
    assert sum(o.metric("wb_leader") for o in both) == 1
    for i, o in enumerate(both):
        assert o.stop() == 0
        c.raw(LEASES.format("default", f"race{i}"), "DELETE")


def served(c, ns):
    """Which operator vouches for the object of that namespace, "" = none."""
    st = c.get(f"/apis/weightbridge.io/v1alpha1/namespaces/{ns}/weighttransfers/t").get("status", {})
    return st.get("operator", {}).get("name", "")


def watching(c, name, *namespaces):
    return Operator(c, 0, c.config, args=["--lease", f"default/{name}", *[x for ns in namespaces for x in ("--watch-namespace", ns)]])


def some_namespaces(c):
    for ns in ("a", "b", "shared"):
        c.post("/api/v1/namespaces", {"metadata": {"name": ns}})
        c.post(f"/apis/weightbridge.io/v1alpha1/namespaces/{ns}/weighttransfers", {
            **json.loads(transfer_object()), "metadata": {"name": "t", "namespace": ns}})
    first = watching(c, "first", "a", "shared")
    wait_for(lambda: first.metric("wb_objects") == 2 and first.is_ready(), 20)
    second = watching(c, "second", "shared", "b")
    wait_for(second.is_ready, 20)
    # Disjoint ones are served side by side, the shared one by the first alone; the second says so, and serves its other one.
    wait_for(lambda: [served(c, ns).rsplit("-", 1)[0] for ns in ("a", "shared", "b")] == [f"operator-{o.n0}" for o in (first, first, second)], 20)
    assert second.metric("wb_objects") == 1 and second.metric("wb_leader") == 1
    wait_for(lambda: "this operator is idle for a namespace that another release serves" in second.text(), 20)
    assert "shared" in second.text() and "default/first" in second.text() and "idle" not in first.text()
    holder = lambda ns: c.get(LEASES.format(ns, "weightbridge-serves"))["spec"]["holderIdentity"]  # noqa: E731
    assert [holder(ns) for ns in ("a", "shared", "b")] == ["default/first", "default/first", "default/second"]
    # Another replica of the first takes over at once: its release holds the Leases, and not the one that went.
    replica = watching(c, "first", "a", "shared")
    assert first.stop() == 0
    wait_for(lambda: replica.metric("wb_objects") == 2, 30)
    assert second.metric("wb_objects") == 1
    # It is uninstalled: the second serves what they shared.
    assert replica.stop() == 0
    t0 = time.monotonic()
    wait_for(lambda: second.metric("wb_objects") == 2, 100)
    # (What a status says already is confirmed within five minutes.)
    print(f"the second served the shared namespace {time.monotonic() - t0:.1f} s after the first one ended")
    assert holder("shared") == "default/second" and not served(c, "a").startswith(f"operator-{second.n0}-")
    # One for all beside it leaves it those, and takes what the first one had, which is gone.
    all_ = release(c, "all")
    wait_for(lambda: all_.metric("wb_objects") == 2 and all_.metric("wb_idle_namespaces") == 2, 100)
    # (Its status names the one before until it has something new to say, for five minutes at most.)
    wait_for(lambda: "namespace served namespace=a" in all_.text(), 20)
    w = Worker(c, all_.ports["listen"], "lost", "trainer", 0, 1, object_="shared/t")
    wait_for(lambda: "no object" in w.agent.text() or "idle for namespace shared" in w.agent.text(), 20)
    w.end()
    assert second.metric("wb_objects") == 2 and second.stop() == 0
    t0 = time.monotonic()
    wait_for(lambda: all_.metric("wb_objects") == 4, 100)
    print(f"the one for all served them {time.monotonic() - t0:.1f} s after that one ended")
    assert all_.stop() == 0


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post(API, json.loads(transfer_object()))
        c.config = account(c)
        forge(c)
        first, second = second_stays_idle(c)
        first = its_replica_takes_over_from_it(c, first, second)
        it_is_uninstalled(c, first, second)
        both_start_at_once(c)
        some_namespaces(c)


if __name__ == "__main__":
    main()
