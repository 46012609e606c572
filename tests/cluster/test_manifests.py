# SPDX-License-Identifier: Apache-2.0
"""What the charts render is what an API server takes: server-side dry runs with strict validation, for the values
that other tests only render.

cert-manager itself is not run: its kinds are here with the fields that the chart uses, typed as its documentation
has them, so that a misspelt or misplaced field is refused.  No NetworkPolicy is enforced here, either: that is the
network plugin's, and the one of these tests has none.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import ApiServer  # noqa: E402

TEXT, BOOL, NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "integer"}


def fields(required=(), **of):
    return {"type": "object", "properties": of, **({"required": list(required)} if required else {})}


def one_of(*names):
    return {"type": "string", "enum": list(names)}


ISSUER = fields(selfSigned=fields(crlDistributionPoints={"type": "array", "items": TEXT}),
                ca=fields(("secretName",), secretName=TEXT))
CERTIFICATE = fields(
    ("secretName", "issuerRef"), secretName=TEXT, isCA=BOOL, commonName=TEXT, duration=TEXT, renewBefore=TEXT,
    dnsNames={"type": "array", "items": TEXT}, issuerRef=fields(("name",), name=TEXT, kind=TEXT, group=TEXT),
    privateKey=fields(algorithm=one_of("RSA", "ECDSA", "Ed25519"), size=NUMBER, encoding=one_of("PKCS1", "PKCS8"),
                      rotationPolicy=one_of("Never", "Always")))


LABELS = {"type": "object", "additionalProperties": TEXT}
SERVICE_MONITOR = fields(
    ("selector", "endpoints"), jobLabel=TEXT, namespaceSelector=fields(any=BOOL, matchNames={"type": "array", "items": TEXT}),
    selector=fields(matchLabels=LABELS),
    endpoints={"type": "array", "items": fields(port=TEXT, path=TEXT, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"})})


def crd(kind, spec, group="cert-manager.io"):
    plural = kind.lower() + "s"
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"}, "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": True, "storage": True,
                              "schema": {"openAPIV3Schema": fields(("spec",), spec=spec)}}]}}


def dry_run(c, docs, check=True):
    return c.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", check=check,
                     stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": docs}))


SETS = {  # values of the operator's chart, and kinds that they must bring
    "default": ((), {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "Lease", "Secret"}),
    "cert-manager, an authority of the chart": (("tls.mode=CertManager",), {"Issuer", "Certificate"}),
    "cert-manager, an issuer that is there": (
        ("tls.mode=CertManager", "tls.certManager.issuerRef.name=corp", "tls.certManager.issuerRef.kind=ClusterIssuer",
         "tls.certManager.issuerRef.group=cert-manager.io", "tls.certManager.duration=720h"), {"Certificate"}),
    "a Secret that is there": (("tls.mode=ExistingSecret", "tls.existingSecret=mine"), set()),
    "pages for some": (
        ("networkPolicy.pagesFrom[0].namespaceSelector.matchLabels.team=ops",
         "networkPolicy.pagesFrom[1].ipBlock.cidr=10.0.0.0/8"), {"NetworkPolicy"}),
    "all that may be added": (
        ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prom", "commonLabels.team=rl",
         "revisionHistoryLimit=3", "extraEnv[0].name=A,extraEnv[0].value=b", "extraVolumes[0].name=v,extraVolumes[0].emptyDir.sizeLimit=1Mi",
         "extraVolumeMounts[0].name=v,extraVolumeMounts[0].mountPath=/v", "probes.readiness.periodSeconds=7",
         "probes.liveness.tcpSocket.port=9402", "networkPolicy.jobs.namespaces={team}", "networkPolicy.jobs.egress=true",
         "networkPolicy.jobs.metricsFrom[0].podSelector.matchLabels.app=prometheus",
         "weightbridge.extraVolumes[0].name=v,weightbridge.extraVolumes[0].emptyDir.sizeLimit=1Mi",
         "weightbridge.extraVolumeMounts[0].name=v,weightbridge.extraVolumeMounts[0].mountPath=/v",
         "weightbridge.extraEnv[0].name=A,weightbridge.probes.startup.periodSeconds=2"), {"ServiceMonitor", "NetworkPolicy"}),
    "the host's network": (("hostNetwork=true", "networkPolicy.jobs.namespaces={team}",
                            "networkPolicy.jobs.egress=false"), {"NetworkPolicy"}),
    "one namespace": (("watchNamespace=team", "replicas=1"), {"Role", "RoleBinding"}),
}


def operator_chart(c):
    seen = {}
    for name, (values, kinds) in SETS.items():
        docs = helm.load(helm.template("weightbridge-operator", *(x for v in values for x in ("--set", v)),
                                       *helm.apis(helm.MUTATING)))
        assert kinds <= {d["kind"] for d in docs}, (name, kinds)
        out = dry_run(c, docs)
        assert out.count("serverside-applied (server dry run)") == len(docs), (name, out)
        seen[name] = docs
        print(f"{name}: {len(docs)} objects taken")
    return seen


def faults_are_seen(c, seen):
    """Else the above would say nothing."""
    def broken(name, kind, change, words):
        d = json.loads(json.dumps(next(d for d in seen[name] if d["kind"] == kind)))
        change(d["spec"])
        r = dry_run(c, [d], check=False)
        assert r.returncode and words in r.stderr, (kind, r.stdout, r.stderr)
    name = "cert-manager, an authority of the chart"
    broken(name, "Certificate", lambda s: s.update(dnsName=["x"]), "dnsName")
    broken(name, "Certificate", lambda s: s["privateKey"].update(algorithm="ecdsa"), "Unsupported value")
    broken(name, "Certificate", lambda s: s.pop("issuerRef"), "issuerRef")
    broken(name, "Issuer", lambda s: s.update(selfsigned={}), "selfsigned")
    broken("default", "NetworkPolicy", lambda s: s["ingress"][0].update(port=1), "port")
    broken("default", "NetworkPolicy", lambda s: s["ingress"][0]["ports"][0].update(protocol="tcp"), "Unsupported value")
    broken("pages for some", "NetworkPolicy", lambda s: s["ingress"][1]["from"][-1]["ipBlock"].update(cidr="10.0.0.0/33"),
           "cidr")


def job_chart(c):
    chart = os.path.join("examples", "rl-job")
    values = json.dumps({**{s: {"resources": {"requests": {"cpu": "1"}}} for s in ("trainer", "rollout")},
                         "networkPolicy": {"enabled": True}})
    with open(c.path("values.json"), "w") as f:
        f.write(values)
    docs = helm.load(helm.template(chart, "-f", c.path("values.json"), release="grpo"))
    out = dry_run(c, docs)
    assert out.count("serverside-applied (server dry run)") == len(docs), out
    print(f"rl-job: {len(docs)} objects taken")


def main():
    helm.need()
    with ApiServer() as c:
        c.install_crd()
        for name in ("system", "team"):
            c.post("/api/v1/namespaces", {"metadata": {"name": name}})
            c.post(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        crds = [crd("Issuer", ISSUER), crd("Certificate", CERTIFICATE),
                crd("ServiceMonitor", SERVICE_MONITOR, "monitoring.coreos.com")]
        c.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": crds}))
        c.kubectl("wait", "--for=condition=Established", "--timeout=30s",
                  *("crd/" + x["metadata"]["name"] for x in crds))
        seen = operator_chart(c)
        faults_are_seen(c, seen)
        job_chart(c)


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
