# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client against a real API server: pages, compaction, restarts, tokens, refusals, apply."""
import base64
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, ApiServer, wait_for  # noqa: E402

sys.path.insert(0, os.path.join(TOP, "tests", "common"))
from kubefake import Client  # noqa: E402

MAPS = "/api/v1/namespaces/default/configmaps"


def make_map(c, name, labels=None):
    c.post(MAPS, {"metadata": {"name": name, "labels": labels or {}}, "data": {"k": "v\u00e9"}})


def list_and_watch(c):
    for i in range(7):
        make_map(c, f"m{i}", {"weightbridge.io/name": "t"})
    w = Client(c.kubeconfig, MAPS, page=3, selector="weightbridge.io/name in (t,u),!other")
    assert {w.next()["name"] for _ in range(7)} == {f"m{i}" for i in range(7)}
    assert w.until("synced")["count"] == 7
    make_map(c, "other")
    make_map(c, "m7", {"weightbridge.io/name": "u"})
    assert w.short() == "+m7"
    c.raw(MAPS + "/m7", "PATCH", {"data": {"k": "w"}}, "application/merge-patch+json")
    assert w.short() == "+m7"
    # It no longer matches: gone, though the object lives.
    c.raw(MAPS + "/m7", "PATCH", {"metadata": {"labels": {"other": "x"}}}, "application/merge-patch+json")
    assert w.short() == "-m7"
    c.raw(MAPS + "/m0", "DELETE")
    make_map(c, "m0", {"weightbridge.io/name": "t"})
    assert [w.short(), w.short()] == ["-m0", "+m0"]
    return w


def restart_with_compaction(c, w):
    """The server comes back and its oldest version is newer than ours: 410, and the list tells the rest."""
    c.stop_api()
    wait_for(lambda: w.stats()["failures"] > 0)
    c.start_api()
    make_map(c, "n1", {"weightbridge.io/name": "t"})
    w.until("put", name="n1")
    before = w.stats()
    for i in range(5):
        c.post("/api/v1/namespaces", {"metadata": {"name": f"moves-{i}"}})
    c.stop_api()
    c.start_api()
    c.compact()
    c.raw(MAPS + "/n1", "DELETE")
    w.until("gone", name="n1")
    after = w.stats()
    return before, after


def expired(c):
    """A version older than the compaction is refused with 410 in one of its forms."""
    rv = c.get("/api/v1/namespaces")["metadata"]["resourceVersion"]
    for i in range(3):
        c.post("/api/v1/namespaces", {"metadata": {"name": f"old-{i}"}})
    c.stop_api()
    c.start_api()
    c.compact()
    text = c.raw(f"/api/v1/namespaces?watch=1&resourceVersion={rv}&timeoutSeconds=2")
    line = json.loads(text.splitlines()[0])
    print("410 comes as", line["type"], line["object"]["code"], "inside an answer of 200")
    assert line["type"] == "ERROR" and line["object"]["code"] == 410, line


def tokens(c):
    """A service account's token from TokenRequest, in a folder as a pod has it."""
    c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "op"}})
    d = c.path("account")
    os.mkdir(d)

    def write():
        t = c.post("/api/v1/namespaces/default/serviceaccounts/op/token",
                   {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                    "spec": {"expirationSeconds": 600}})["status"]["token"]
        for name, text in (("token", t), ("namespace", "default"), ("ca.crt", open(c.path("pki", "ca.crt")).read())):
            with open(os.path.join(d, name), "w") as f:
                f.write(text)
        return t
    write()
    w = Client(f"{d}:127.0.0.1:{c.port}", "")
    r = w.call("GET", MAPS)
    assert r["status"] == 403 and 'User "system:serviceaccount:default:op" cannot list' in r["error"], r
    c.kubectl("create", "role", "op", "--verb=list", "--resource=configmaps")
    c.kubectl("create", "rolebinding", "op", "--role=op", "--serviceaccount=default:op")
    wait_for(lambda: w.call("GET", MAPS)["status"] == 200, 10)
    with open(os.path.join(d, "token"), "w") as f:
        f.write("not.a.token")
    assert w.call("GET", MAPS)["status"] == 401
    write()
    assert w.call("GET", MAPS)["status"] == 200
    w.close()
    data = {"client-certificate-data": "admin.crt", "client-key-data": "admin.key"}
    user = {k: base64.b64encode(open(c.path("pki", v), "rb").read()).decode() for k, v in data.items()}
    w = Client(c.write_kubeconfig("data", user), "")
    assert w.call("GET", MAPS)["status"] == 200
    w.close()


def main():
    with ApiServer() as c:
        w = list_and_watch(c)
        before, after = restart_with_compaction(c, w)
        assert after["lists"] + after["watches"] > before["lists"] + before["watches"], (before, after)
        w.close()
        expired(c)
        tokens(c)


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
