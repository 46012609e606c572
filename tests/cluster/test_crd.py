# SPDX-License-Identifier: Apache-2.0
"""crds/weighttransfer.yaml on a real API server: it is taken, each rule refuses with its sentence, defaults
and columns are as described, every field is explained."""
import copy
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, ApiServer  # noqa: E402

GOOD = {"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", "metadata": {"name": "t"},
        "spec": {"trainer": {"workers": 4}, "rollout": {"workersPerEngine": 2}}}
STAGED = {"rollout": "HostMemory"}
STAGING = "commitPolicy AllEngines needs staging.rollout HostMemory, parameters written in place cannot be held back"
SUPERSEDE = "overlap Supersede needs staging.rollout HostMemory"
SMALL, LARGE = "must be at least 64Mi", "must be at most 16Ti"
GPU = "gpuDirect must not be Required when deviceClass is Software"
KEY = "must be the key of a label, such as example.com/engine"
RULES = [STAGING, SUPERSEDE, SMALL, LARGE, GPU, KEY, "Value is immutable",
         "metadata.name must be no more than 52 characters"]
# What is changed in GOOD, and what the refusal says (None: taken).
CASES = [
    ({}, None),
    ({"metadata.name": "n" * 52}, None),
    ({"metadata.name": "n" * 53}, "metadata.name must be no more than 52 characters"),
    ({"spec.commitPolicy": "AllEngines"}, STAGING),
    ({"spec.commitPolicy": "AllEngines", "spec.staging": {"trainer": "HostMemory"}}, STAGING),
    ({"spec.commitPolicy": "AllEngines", "spec.staging": STAGED}, None),
    ({"spec.overlap": "Supersede"}, SUPERSEDE),
    ({"spec.overlap": "Supersede", "spec.staging": STAGED}, None),
    ({"spec.trainer.bufferSize": "63Mi"}, SMALL),
    ({"spec.trainer.bufferSize": 67108863}, SMALL),
    ({"spec.trainer.bufferSize": 67108864}, None),
    ({"spec.rollout.bufferSize": "0.06Gi"}, SMALL),
    ({"spec.rollout.bufferSize": "0.07Gi"}, None),
    ({"spec.rollout.engineLabelKey": "example.com/engine"}, None),
    ({"spec.rollout.engineLabelKey": "not a key"}, KEY),
    ({"spec.rollout.bufferSize": "16Ti"}, None),
    ({"spec.rollout.bufferSize": "16.1Ti"}, LARGE),
    ({"spec.trainer.bufferSize": "9999999999999999999Ti"}, LARGE),
    ({"spec.trainer.bufferSize": 17592186044417}, LARGE),
    ({"spec.rollout.bufferSize": "4 Gi"}, "should match"),
    ({"spec.transport": {"deviceClass": "Software", "gpuDirect": "Required"}}, GPU),
    ({"spec.transport": {"deviceClass": "Hardware", "gpuDirect": "Required"}}, None),
    ({"spec.transport": {"deviceClass": "Software"}}, None),
    ({"spec.transport": {"protocols": []}}, "should have at least 1 items"),
    ({"spec.transport": {"protocols": ["TCP", "TCP"]}}, "Duplicate value"),
    ({"spec.transport": {"protocols": ["UDP"]}}, "Unsupported value"),
    ({"spec.trainer.workers": 0}, "should be greater than or equal to 1"),
    ({"spec.rollout.engines": 513}, "should be less than or equal to 512"),
    ({"spec.heartbeatTimeoutSeconds": 4}, "should be greater than or equal to 5"),
    ({"spec.rollout.workersPerEngin": 2}, "unknown field"),
    ({"spec": {"trainer": {"workers": 1}}}, "spec.rollout: Required value"),
]
DEFAULTS = {"suspend": False, "commitPolicy": "EachEngine", "overlap": "Wait", "checksums": "Wire",
            "staging": {"trainer": "None", "rollout": "None"}, "planDeadlineSeconds": 600,
            "transferDeadlineSeconds": 120, "engineStepDeadlineSeconds": 600, "heartbeatTimeoutSeconds": 15,
            "transport": {"protocols": ["Verbs", "TCP"], "deviceClass": "Any", "gpuDirect": "Auto",
                          "encryption": "None"}}
COLUMNS = "NAME READY VERSION UP-TO-DATE ENGINES TIME(MS) LAST-TRANSFER CONFIRMED AGE"
WIDE = COLUMNS + " REASON TRANSFER STALL(MS) BOUND(MS) MBIT/S ROUNDS WORKERS"
API = "/apis/weightbridge.io/v1alpha1/namespaces/default/weighttransfers"


def changed(changes):
    o = copy.deepcopy(GOOD)
    for path, value in changes.items():
        at = o
        *parents, leaf = path.split(".")
        for p in parents:
            at = at.setdefault(p, {})
        at[leaf] = value
    return o


def check_rules(c):
    seen = set()
    for changes, want in CASES:
        r = c.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(changed(changes)),
                      check=False)
        if want is None:
            assert r.returncode == 0, (changes, r.stderr)
            continue
        assert r.returncode and want in r.stderr, (changes, want, r.stderr)
        seen.add(want)
    c.kubectl("apply", "-f", "-", stdin=json.dumps(GOOD))
    r = c.kubectl("patch", "wt", "t", "--type=merge", "-p", '{"spec":{"rollout":{"engineLabelKey":"x"}}}', check=False)
    assert "Value is immutable" in r.stderr, r.stderr
    seen.add("Value is immutable")
    # Every rule of the file was seen to refuse.
    text = re.sub(r"\s+", " ", open(os.path.join(TOP, "crds", "weighttransfer.yaml")).read())
    assert {m for m in RULES if m in seen} == set(RULES)
    assert text.count("- rule:") == 10, text.count("- rule:")


def check_defaults(c):
    spec = c.get(API + "/t")["spec"]
    for k, v in DEFAULTS.items():
        assert spec[k] == v, (k, spec[k])
    assert spec["trainer"] == {"workers": 4, "bufferSize": "1Gi"}
    assert spec["rollout"] == {"workersPerEngine": 2, "bufferSize": "4Gi", "engineLabelKey": "weightbridge.io/engine"}


def check_status(c):
    # A status as large as it may become: the most engines, conditions and transfers.
    now = "2026-01-01T00:00:00Z"
    end = {"transfer": 5, "version": 3, "result": "Succeeded", "completionTime": now, "endToEndMilliseconds": 188,
           "averageStallMilliseconds": 138, "throughputMegabitsPerSecond": 10400}
    status = {
        "acceptedSpec": {"suspend": True, "trainer": {"workers": 4096}},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "Idle", "message": ""}],
        "operator": {"name": "op-1", "renewTime": now}, "version": 3, "transfer": 5,
        "engineCount": 512, "updatedEngines": 511, "connectedWorkers": 8,
        "plan": {"lowerBoundMilliseconds": 153, "rounds": 4}, "lastTransfer": end, "recentTransfers": [end] * 10,
        "engines": [{"name": f"e{i}", "state": "Committed", "workers": 2, "version": 3, "transfer": 5,
                     "transport": "tcp", "message": "m" * 200} for i in range(512)]}
    body = {**GOOD, "status": status}
    body.pop("spec")
    c.raw(API + "/t/status?fieldManager=test&force=true", "PATCH", body, "application/apply-patch+yaml")
    lines = c.kubectl("get", "wt").splitlines()
    assert lines[0].split() == COLUMNS.split(), lines[0]
    assert lines[1].split()[:6] == ["t", "True", "3", "511", "512", "188"], lines[1]
    lines = c.kubectl("get", "weighttransfers", "-o", "wide").splitlines()
    assert lines[0].split() == WIDE.split(), lines[0]
    assert lines[1].split()[9:] == ["Idle", "5", "138", "153", "10400", "4", "8"], lines[1]
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=5s")
    c.kubectl("wait", "--for=jsonpath={.status.version}=3", "wt/t", "--timeout=5s")
    assert c.get(API + "/t")["metadata"]["generation"] == 1  # status does not move it


def check_explained(c):
    text = c.kubectl("explain", "wt", "--recursive")
    for word in ("engineLabelKey", "recentTransfers", "culprit", "lowerBoundMilliseconds"):
        assert word in text, word
    for path in ("wt.spec.commitPolicy", "wt.status.engines.state", "wt.status.lastTransfer.culprit.rail"):
        text = c.kubectl("explain", path)
        assert len(text.split("DESCRIPTION:")[1].strip()) > 10, text


def check_examples(c):
    files = sorted(glob.glob(os.path.join(TOP, "crds", "examples", "*.yaml")))
    assert len(files) >= 2
    c.kubectl("create", "namespace", "training")
    for f in files:
        c.kubectl("create", "--dry-run=server", "--validate=strict", "-f", f)


def main():
    with ApiServer() as c:
        c.install_crd()
        check_rules(c)
        check_defaults(c)
        check_status(c)
        check_explained(c)
        check_examples(c)
    print(f"{len(CASES) + 1} objects judged")


if __name__ == "__main__":
    sys.exit(main())
