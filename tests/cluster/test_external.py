# SPDX-License-Identifier: Apache-2.0
"""A case file runs on a cluster that is not its own, by KUBECONFIG alone, and leaves nothing there."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import HERE, patience  # noqa: E402
from cluster import run  # noqa: E402

LEFT = "namespaces,crd,clusterroles,clusterrolebindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"


def main(c):
    before = c.kubectl("get", LEFT, "-o", "name")
    ctr = " && ".join(f'{c.prefix}/ctr -a {n.socket} -n k8s.io images import "$0"' for n in c.nodes)
    env = {k: v for k, v in os.environ.items() if not k.startswith("WB_CLUSTER")}
    env.update(EXTERNAL="1", KUBECONFIG=c.kubeconfig, WB_IMPORT=f"sh -c '{ctr}'")
    r = subprocess.run([sys.executable, os.path.join(HERE, "test_pods.py"), "--short"], env=env, capture_output=True, text=True, timeout=patience(600))
    assert r.returncode == 0, (r.returncode, r.stdout[-3000:], r.stderr[-3000:])
    print(r.stdout)
    after = c.kubectl("get", LEFT, "-o", "name")
    # Roles that the API server makes for a resource's own group come and go with it.
    assert set(after.split()) == set(before.split()), set(after.split()) ^ set(before.split())


if __name__ == "__main__":
    run(main, __file__)
