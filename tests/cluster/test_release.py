# SPDX-License-Identifier: Apache-2.0
"""The operator's chart as helm and an API server see it, without nodes: nothing warns, NOTES say what is so of this
cluster and release and hold what can be typed, every value is taken, and the WeightTransfer resource is upgraded also
where another release had it."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import TOP, ApiServer  # noqa: E402

CHART = os.path.join(os.environ.get("WB_CHARTS") or os.path.join(TOP, "charts"), "weightbridge-operator")
CRD = "weighttransfers.weightbridge.io"
USUAL = ("weightbridge-operator", "weightbridge-system")
LACKS = "this cluster has no MutatingAdmissionPolicy"


def install(c, name, ns, *sets, verb="install"):
    """NOTES of the release; that nothing was written to stderr is looked at by c.helm."""
    args = [x for v in sets for x in ("--set", v)]
    more = ["--create-namespace"] if verb == "install" else ["--reset-then-reuse-values"]
    return c.helm(verb, name, CHART, "-n", ns, *more, *args).split("NOTES:\n", 1)[1]


def uninstall(c, name, ns):
    # That the resource is kept is said on stdout.
    c.helm("uninstall", name, "-n", ns)


def crd(c):
    return json.loads(c.kubectl("get", "crd", CRD, "-o", "json"))


def owner(c):
    a = crd(c)["metadata"].get("annotations", {})
    return a.get("meta.helm.sh/release-name"), a.get("meta.helm.sh/release-namespace")


def make_old(c):
    """The resource as an older chart would have left it: a column is missing, and a label names that version."""
    d = crd(c)
    d["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    d["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.9"
    c.kubectl("replace", "-f", "-", stdin=json.dumps(d))


def is_whole(c):
    want = helm.load(open(os.path.join(TOP, "crds", "weighttransfer.yaml")).read())[0]["spec"]["versions"][0]
    return crd(c)["spec"]["versions"][0]["additionalPrinterColumns"] == want["additionalPrinterColumns"]


def notes_can_be_typed(c):
    """The object in NOTES is one that the API server takes, and wbctl inject and --set name where agents dial."""
    notes = install(c, *USUAL)
    text = re.search(r"<<'END'\n(.*?)\n  END\n", notes, re.S)[1]
    for ns in ("rl", "team"):
        c.kubectl("create", "namespace", ns)
    out = c.kubectl("-n", "rl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=re.sub("(?m)^  ", "", text))
    assert "weighttransfer.weightbridge.io/grpo created" in out, out
    assert "weightbridge.io/inject: enabled" in notes and LACKS not in notes and "--set weightbridge.operator" not in notes, notes
    assert "WARNING" not in notes, notes
    uninstall(c, *USUAL)
    notes = install(c, "wb", "ops", "injection.mode=None", verb="install")
    assert "--set weightbridge.operator=wb-weightbridge-operator.ops.svc:7443" in notes, notes
    assert "wbctl inject -f FILE --operator wb-weightbridge-operator.ops.svc:7443" in notes, notes
    uninstall(c, "wb", "ops")


def resource_of_another_release(c):
    """Left alone at first, and said; taken over by the command that NOTES print, and upgraded from then on. What the
    other release does afterwards, upgrade or go, leaves it, with its objects."""
    c.kubectl("delete", "crd", CRD)
    install(c, *USUAL)
    c.kubectl("-n", "rl", "apply", "-f", os.path.join(TOP, "crds", "examples", "minimal.yaml"))
    uninstall(c, *USUAL)
    make_old(c)
    assert owner(c) == USUAL
    notes = install(c, "wb", "ops", "watchNamespace=rl")
    said = re.search(r"WARNING: (.*)$", notes, re.S)[1]
    assert "weightbridge-system/weightbridge-operator" in said and "of version 0.0.9" in said, said
    assert owner(c) == USUAL and not is_whole(c)
    command = re.search(r"^  helm (upgrade .*)$", said, re.M)[1].split()
    c.helm(*[CHART if x == "CHART" else x for x in command])
    assert owner(c) == ("wb", "ops") and is_whole(c)
    make_old(c)
    assert "WARNING" not in install(c, "wb", "ops", verb="upgrade")  # no flag any more
    assert owner(c) == ("wb", "ops") and is_whole(c)
    # The other one comes back, is upgraded, and goes.
    assert "by ops/wb" in install(c, *USUAL, "watchNamespace=team")
    install(c, *USUAL, verb="upgrade")
    uninstall(c, *USUAL)
    assert owner(c) == ("wb", "ops")
    assert "qwen3" in c.kubectl("-n", "rl", "get", "wt", "-o", "name")
    uninstall(c, "wb", "ops")
    assert "qwen3" in c.kubectl("-n", "rl", "get", "wt", "-o", "name")


def taken_while_the_other_lives(c):
    """The release that had it, and would not have kept it, is upgraded and uninstalled after it was taken: it stays."""
    c.kubectl("delete", "crd", CRD)
    install(c, *USUAL, "crds.keep=false")
    c.kubectl("-n", "rl", "apply", "-f", os.path.join(TOP, "crds", "examples", "minimal.yaml"))
    c.helm("install", "wb", CHART, "-n", "ops", "--set", "watchNamespace=rl,crds.takeOver=true", "--take-ownership")
    assert owner(c) == ("wb", "ops")
    assert "by ops/wb" in install(c, *USUAL, verb="upgrade")
    assert owner(c) == ("wb", "ops") and "qwen3" in c.kubectl("-n", "rl", "get", "wt", "-o", "name")
    uninstall(c, *USUAL)
    assert "qwen3" in c.kubectl("-n", "rl", "get", "wt", "-o", "name")
    uninstall(c, "wb", "ops")


def made_by_hand(c):
    """kubectl apply -f crds/weighttransfer.yaml before the chart came."""
    c.kubectl("delete", "crd", CRD)
    c.install_crd()
    notes = install(c, *USUAL)
    assert "was not made by this release and was left as it is:\nof what version is not known" in notes, notes
    c.helm("upgrade", USUAL[0], CHART, "-n", USUAL[1], "--set", "crds.takeOver=true", "--take-ownership")
    assert owner(c) == USUAL
    uninstall(c, *USUAL)


def policies_are_missing(c):
    """injection.mode: Policy on a cluster that cannot."""
    notes = install(c, *USUAL)
    assert LACKS in notes and "injection.mode=None" in notes, notes
    assert "wbctl inject -f FILE --operator weightbridge-operator.weightbridge-system.svc:7443" in notes, notes
    assert not c.helm("get", "manifest", USUAL[0], "-n", USUAL[1]).count("AdmissionPolicy\n")
    assert LACKS not in install(c, *USUAL, "injection.mode=None", verb="upgrade")


def main():
    helm.need()
    for flags, cases in (
            ({}, (notes_can_be_typed, resource_of_another_release, taken_while_the_other_lives, made_by_hand)),
            ({"runtime_config": "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,"
                                "admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
              "disable_admission_plugins": "MutatingAdmissionPolicy"},
             (policies_are_missing,))):
        with ApiServer(**flags) as c:
            for case in cases:
                t = time.monotonic()
                case(c)
                print(f"{case.__name__}: {time.monotonic() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
