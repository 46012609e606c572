# SPDX-License-Identifier: Apache-2.0
"""Somebody's cluster for a test file, by kubectl and helm alone: EXTERNAL=1 KUBECONFIG=FILE.

It must have nothing of WeightBridge yet. Images come into it by WB_IMPORT, a command that is given an archive
(tests/kind: kind load image-archive). Afterwards the releases, namespaces and the resource that the test made are
gone. What needs the nodes themselves, or the API server's process, is left out: c.owns_nodes.
"""
import json
import os
import shlex
import shutil
import subprocess
import tempfile

from apiserver import patience, patient, skip

CRD = "weighttransfers.weightbridge.io"


class External:
    owns_nodes = False

    def __init__(self):
        self.kubeconfig = os.environ.get("KUBECONFIG", "")
        if not os.path.isfile(self.kubeconfig):
            skip("EXTERNAL=1 needs KUBECONFIG, one file")
        for tool in ("kubectl", "helm"):
            if not shutil.which(tool):
                skip(f"EXTERNAL=1 needs the program {tool}")
        self.prefix = os.path.dirname(shutil.which("kubectl"))
        if not os.environ.get("WB_IMPORT"):
            skip("EXTERNAL=1 needs WB_IMPORT, a command that brings an image archive into the cluster")

    def __enter__(self):
        if self.kubectl("get", "crd", CRD, check=False).returncode == 0:
            skip(f"the cluster has WeightTransfers already: {CRD}")
        self.before = self.namespaces()
        self.dir = tempfile.mkdtemp(prefix="wbx")
        return self

    def namespaces(self):
        return set(self.kubectl("get", "namespaces", "-o", "name").split())

    def __exit__(self, *exc):
        try:
            if exc[0]:
                for what in ("wt", "pods", "events"):
                    print(self.kubectl("get", what, "-A", "-o", "wide", check=False).stdout)
            for r in json.loads(self.helm("list", "-A", "-o", "json")):
                if "namespace/" + r["namespace"] not in self.before:
                    self.helm("uninstall", r["name"], "-n", r["namespace"], "--wait", "--timeout", "120s", check=False)
            made = sorted(self.namespaces() - self.before)
            if made:
                self.kubectl("delete", "--timeout=120s", *made)
            self.kubectl("delete", "crd", CRD, "--ignore-not-found")
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def run(self, program, args, stdin, check, seconds):
        r = subprocess.run([program, "--kubeconfig", self.kubeconfig, *patient(args)], input=stdin, capture_output=True, text=True,
                           timeout=patience(seconds))
        assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
        return r.stdout if check else r

    def kubectl(self, *args, stdin=None, check=True):
        return self.run("kubectl", args, stdin, check, 300)

    def helm(self, *args, stdin=None, check=True, warns=False):
        return self.run("helm", args, stdin, check, 600)

    def import_image(self, file):
        subprocess.run([*shlex.split(os.environ["WB_IMPORT"]), file], check=True, capture_output=True)

    def get(self, path):
        return json.loads(self.kubectl("get", "--raw", path))

    def post(self, path, body):
        return json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body)))

    def raw(self, path, method="GET"):
        return self.kubectl({"GET": "get", "DELETE": "delete"}[method], "--raw", path)
