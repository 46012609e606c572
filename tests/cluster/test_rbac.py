# SPDX-License-Identifier: Apache-2.0
"""The rules of operator-shim/role.yaml are what the operator needs: with them all works, without any one it does not."""
import copy
import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, ApiServer, HttpError, wait_for  # noqa: E402
from op import API, Operator, conditions, status, transfer_object  # noqa: E402
from test_tokens import Stranger, make_pod, make_token  # noqa: E402

RBAC = "/apis/rbac.authorization.k8s.io/v1/"
NAME = "weightbridge-operator"
ROLES = {"ClusterRole": RBAC + "clusterroles", "Role": RBAC + "namespaces/system/roles"}
CA = "/api/v1/namespaces/default/configmaps/weightbridge-ca"
SECRET = f"/api/v1/namespaces/system/secrets/{NAME}-tls"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/system/leases"


def set_up(c):
    c.post("/api/v1/namespaces", {"metadata": {"name": "system"}})
    for ns in ("system", "default"):
        c.post(f"/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "default"}})
    c.kubectl("apply", "-n", "system", "-f", os.path.join(TOP, "operator-shim", "role.yaml"))
    c.kubectl("create", "clusterrolebinding", NAME, f"--clusterrole={NAME}", "--serviceaccount=system:default")
    c.kubectl("create", "rolebinding", "-n", "system", NAME, f"--role={NAME}", "--serviceaccount=system:default")
    t = c.post("/api/v1/namespaces/system/serviceaccounts/default/token",
               {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}})
    with open(c.path("op.token"), "w") as f:
        f.write(t["status"]["token"])
    c.post("/api/v1/namespaces/system/serviceaccounts", {"metadata": {"name": "scraper"}})
    c.kubectl("create", "clusterrole", "scrape", "--verb=get", "--non-resource-url=/metrics")
    c.kubectl("create", "clusterrolebinding", "scrape", "--clusterrole=scrape", "--serviceaccount=system:scraper")
    c.post("/api/v1/namespaces/system/serviceaccounts", {"metadata": {"name": "agents-scraper"}})
    c.kubectl("create", "clusterrole", "scrape-agents", "--verb=get", "--non-resource-url=/metrics/weightbridge")
    c.kubectl("create", "clusterrolebinding", "scrape-agents", "--clusterrole=scrape-agents", "--serviceaccount=system:agents-scraper")
    return c.write_kubeconfig("op", {"tokenFile": c.path("op.token")})


def start(c, config):
    return Operator(c, 0, config, ["--lease", f"system/{NAME}", "--tls-secret", NAME + "-tls", "--tls-name", "operator.test",
                                   "--metrics-auth"])


def works(c, op, n):
    """Everything the operator does, once: each step returns what is missing, or nothing."""
    name = f"t{n}"
    c.post(API, json.loads(transfer_object(name)))
    pod = make_pod(c, f"p{n}", name)
    wait_for(lambda: len(conditions(status(c, name))) == 6, 15)
    wait_for(lambda: "weightbridge-ca" in c.kubectl("get", "configmap", "-o", "name"), 15)
    c.agent_ca = c.path("agents.crt")
    with open(c.agent_ca, "w") as f:
        f.write(c.get(CA)["data"]["ca.crt"])
    Stranger(c, op.ports["listen"], f"p{n}", "nonsense", f"default/{name}").hears("not valid for audience")
    s = Stranger(c, op.ports["listen"], f"p{n}", make_token(c, pod, f"weightbridge.io/default/{name}"),
                 f"default/{name}")
    wait_for(lambda: "agent connected" in op.text(), 15)
    s.stop(9)
    assert scrape(c, op) == 200
    impostor(c, op, pod, name)
    wait_for(lambda: "AuthenticationRejected" in c.kubectl("describe", "wt", name), 15)


def token_of(c, account):
    t = c.post(f"/api/v1/namespaces/system/serviceaccounts/{account}/token",
               {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}})
    return t["status"]["token"]


def ask(port, token):
    """Status and text of /metrics, asked from elsewhere."""
    web = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=("127.0.0.66", 0))
    web.request("GET", "/metrics", headers={"Authorization": "Bearer " + token} if token else {})
    r = web.getresponse()
    return r.status, r.read().decode()


def scrape(c, op):
    """Status of /metrics of the operator, with a token of one who may."""
    return ask(op.ports["http"], token_of(c, "scraper"))[0]


def agents_metrics(c, op):
    """An agent with --metrics-auth, through the operator: who may, who may not, and nobody without the operator."""
    pod, ports = make_pod(c, "m0", "t0"), c.path("m0.ports")
    s = Stranger(c, op.ports["listen"], "m0", make_token(c, pod, "weightbridge.io/default/t0"), "default/t0",
                 ["--http", "127.0.0.1:0", "--port-file", ports, "--metrics-auth"])
    wait_for(lambda: "operator connected" in s.text(), 30)
    port = int(dict(x.split() for x in open(ports))["http"])
    right, wrong = token_of(c, "agents-scraper"), token_of(c, "scraper")
    for token, status, words in [("", 401, "show a token"), ("not.a.token", 401, "the token is not valid"),
                                 (make_token(c, pod, "weightbridge.io/default/t0"), 401, "the token is not valid"),
                                 (wrong, 403, "may not get /metrics/weightbridge"), (right, 200, "wb_build_info")]:
        got = ask(port, token)
        assert got[0] == status and words in got[1], (status, got)
        assert ("wb_build_info" in got[1]) == (status == 200)
    # The right to agents' metrics, whose token all of them see, opens the operator's to nobody.
    assert ask(op.ports["http"], right)[0] == 403 and ask(op.ports["http"], wrong)[0] == 200
    assert op.stop() == 0
    wait_for(lambda: "operator not reached" in s.text(), 20)
    got = ask(port, right)
    assert got[0] == 503 and "the operator says who may read metrics, and it is not connected" in got[1], got
    assert ask(port, "")[0] == 401
    s.stop(9)


def impostor(c, op, pod, name):
    """Refused, with a token that proves whose it is: that makes an event, and the next time changes it."""
    token = make_token(c, pod, f"weightbridge.io/default/{name}")
    Stranger(c, op.ports["listen"], "another", token, f"default/{name}").hears("but the agent calls itself another")


def may_do_no_more(c):
    """Nothing outside of its rules: a few of the things one would want most."""
    token = open(c.path("op.token")).read()
    for method, path, body in [
            ("GET", "/api/v1/secrets", None), ("GET", "/api/v1/nodes", None), ("GET", "/api/v1/configmaps", None), ("GET", SECRET[:-4] + "-other", None),
            ("GET", "/api/v1/namespaces/default/secrets", None), ("GET", CA[:-2] + "other", None),
            ("POST", CA[:CA.rindex("/")], {"metadata": {"name": "other"}}), ("DELETE", SECRET, None),
            ("PATCH", API + "/t0", {"spec": {"suspend": True}}), ("DELETE", API + "/t0", None),
            ("DELETE", "/api/v1/namespaces/default/pods/p0", None), ("GET", "/api/v1/namespaces/default/pods/p0", None),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/other", None),
            ("DELETE", f"{LEASES}/{NAME}", None)]:
        try:
            c.raw(path, method, body, "application/merge-patch+json", token)
        except HttpError as e:
            assert e.code == 403, (method, path, e)
            continue
        raise AssertionError(f"{method} {path} was allowed")


def without(c, config, kind, at, rule, verb):
    """Take one verb of one rule away: the operator says which rule is missing."""
    path = f"{ROLES[kind]}/{NAME}"
    whole = c.get(path)
    less = copy.deepcopy(whole)
    less["rules"][at]["verbs"].remove(verb)
    if not less["rules"][at]["verbs"]:
        del less["rules"][at]
    c.raw(path, "PUT", less)
    # What is there needs no rule to make it.
    if verb == "create":
        for resource, thing in (("leases", f"{LEASES}/{NAME}"), ("secrets", SECRET), ("configmaps", CA)):
            if resource in rule["resources"]:
                drop(c, thing)
    op = start(c, config)
    resource = rule["resources"][0]
    try:
        provoke(c, op, resource, verb)
        wait_for(lambda: "a rule is missing in the operator's role" in op.text() and
                 f'cannot {verb} resource \\"{resource}\\"' in op.text(), 20)
    finally:
        op.stop(9)
        now = c.get(path)
        now["rules"] = whole["rules"]
        c.raw(path, "PUT", now)
    drop(c, f"{LEASES}/{NAME}")  # the killed one held it: nobody waits for its end


def provoke(c, op, resource, verb):
    if resource == "subjectaccessreviews":
        assert scrape(c, op) == 503
        return
    if resource not in ("tokenreviews", "events"):
        if (resource, verb) in (("secrets", "patch"), ("configmaps", "patch")):
            c.raw(SECRET if resource == "secrets" else CA, "PATCH", {"data": None}, "application/merge-patch+json")
        if resource == "weighttransfers/status":
            c.kubectl("patch", "wt", "t0", "--type=merge", "-p", json.dumps({"spec": {"planDeadlineSeconds":
                                                                                      int(time.time()) % 10000 + 1}}))
        return
    wait_for(lambda: op.metric("wb_leader") == 1, 20)
    wait_for(op.is_ready, 20)
    if resource == "events":
        pod = c.get("/api/v1/namespaces/default/pods/p0")
        for _ in range(2):
            impostor(c, op, pod, "t0")
        return
    s = Stranger(c, op.ports["listen"], "p0", "nonsense", "default/t0")
    wait_for(lambda: "operator not reached" in s.text(), 20)
    s.stop(9)


def drop(c, path):
    try:
        c.raw(path, "DELETE")
    except HttpError as e:
        assert e.code == 404, e


def main():
    with ApiServer() as c:
        c.install_crd()
        config = set_up(c)
        op = start(c, config)
        wait_for(op.is_ready, 20)
        works(c, op, 0)
        assert "missing in the operator's role" not in op.text(), op.text()
        agents_metrics(c, op)
        may_do_no_more(c)
        n = 0
        for kind, path in ROLES.items():
            for at, rule in enumerate(c.get(f"{path}/{NAME}")["rules"]):
                for verb in rule["verbs"]:
                    without(c, config, kind, at, rule, verb)
                    n += 1
        print(f"{n} verbs, each needed")


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
