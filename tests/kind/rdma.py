# SPDX-License-Identifier: Apache-2.0
"""RDMA in the pods of a cluster whose nodes hand out devices: what tests/cluster/test_rdma.py shows on a virtual machine
of its own, as far as that can be seen from outside of the nodes.  Not run yet.

EXTERNAL=1 KUBECONFIG=FILE WB_IMPORT=COMMAND (tests/cluster/external.py), and
RDMA=rdma/NAME      what the nodes' device plugin calls its devices
DEVICES=Software    soft-RoCE (else Hardware)
IPC_LOCK=no         containers may lock as much as they like (else the sidecars get the capability)
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
import test_rdma  # noqa: E402
from apiserver import skip, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import add_images, columns, install_operator, rendered, toy_values  # noqa: E402

RESOURCE, CLASS = os.environ.get("RDMA", ""), os.environ.get("DEVICES", "Hardware")
LOCK = os.environ.get("IPC_LOCK") != "no"
VERBS = {"Hardware": "verbs", "Software": "verbs+soft"}[CLASS]


def parts(resource, lock):
    """The objects of charts/examples/rl-job; sidecars that get a device get the capability where that is asked for."""
    values = {**toy_values(rollouts=1), "transfer": {"transport": {"protocols": ["Verbs"], "deviceClass": CLASS}},
              "weightbridge": {"rdma": {"resourceName": resource, "ipcLock": lock and LOCK}}}
    return rendered(test_rdma.NS, test_rdma.NAME, values)


def asked_for(job):
    """Each sidecar has a device that works, and no privilege; the worker beside it has none."""
    for pod in (job.trainer, job.engine):
        p = json.loads(job.kubectl("get", "pod", pod, "-o", "json"))["spec"]
        side, worker = p["initContainers"][0], p["containers"][0]
        assert not p.get("hostNetwork") and not side["securityContext"]["privileged"], side["securityContext"]
        assert side["resources"]["limits"][RESOURCE] == "1" and "limits" not in worker["resources"], side["resources"]
        doctor = job.exec(pod, "wbctl", "doctor", container="weightbridge-agent")
        lines = [x for x in map(str.split, doctor.splitlines()) if x[0] == "rdma-port"]
        assert any(x[1] in ("yes", "worse") for x in lines), doctor
        r = job.exec(pod, "ls", "/dev/infiniband", check=False)
        assert r.returncode and "No such file" in r.stderr, r


def versions_go_by_verbs(job):
    for v in (1, 2):
        line = job.send(v, 120)
        assert "0=Committed" in line, line
        job.update_ok(job.engine, v)
    job.settled(2, 60)
    assert job.transports() == {"0": VERBS}, job.transports()
    row = columns(job.kubectl("get", "wt"))[0]
    assert (row["NAME"], row["READY"], row["VERSION"]) == (test_rdma.NAME, "True", "2"), row


def no_device_no_verbs(job):
    """As on the virtual machine: with Verbs alone a rollout without a device is refused, with TCP too it is fed by that."""
    on = json.loads(job.kubectl("get", "pod", job.engine, "-o", "json"))["spec"]["nodeName"]
    host = json.loads(job.c.kubectl("get", "node", on, "-o", "json"))["metadata"]["labels"]["kubernetes.io/hostname"]
    pod = test_rdma.another(job, 1, "plain", "", False, host)
    why = test_rdma.logged(job, pod, "worker refused")["reason"]
    assert "protocols has Verbs alone" in why and f"agent {pod} moves weights over TCP alone" in why, why
    job.kubectl("patch", "wt", test_rdma.NAME, "--type=merge", "-p", '{"spec": {"transport": {"protocols": ["Verbs", "TCP"]}}}')

    def fell_back():
        """the object says that an engine is reached by TCP"""
        return job.condition("Degraded")[:2] == ("True", "TCPFallback")
    wait_for(fell_back, 90, 0.5)
    line = job.send(3, 120)
    assert "0=Committed" in line and "1=Committed" in line, line
    for p in (job.engine, pod):
        job.update_ok(p, 3)
    ways = job.transports()
    assert VERBS in ways["0"].split(",") and ways["1"] == "tcp", ways


def main(c):
    test_rdma.parts = parts
    test_rdma.RESOURCE = dict.fromkeys(test_rdma.RESOURCE, RESOURCE)
    add_images(c)
    install_operator(c)
    job = test_rdma.RdmaJob(c)
    job.ready(180)
    asked_for(job)
    versions_go_by_verbs(job)
    no_device_no_verbs(job)


if __name__ == "__main__":
    if "EXTERNAL" not in os.environ or not RESOURCE:
        skip("rdma.py is for a cluster that is there (EXTERNAL=1) and hands out devices (RDMA=rdma/NAME)")
    run(main, __file__)
