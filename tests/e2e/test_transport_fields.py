# SPDX-License-Identifier: Apache-2.0
"""What spec.transport asks for that no agent can do is refused by name before anything is planned, and is planned as
soon as the object asks for something else."""
import json
import os
import signal
import subprocess

from cluster import BUILD, Cluster, run


def condition(c, name):
    status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
    return next(x for x in status["conditions"] if x["type"] == name)


def deploy(c, transport):
    c.operator(transport=transport)
    for name in ("t", "r"):
        c.agent(name)
    return c.worker("t", "trainer"), c.worker("r", "rollout", engine="e0")


def doctor(c):
    """wbctl's word on the object that the operator has."""
    return subprocess.run([f"{BUILD}/bin/wbctl", "doctor", "default/toy", "--operator", f"127.0.0.1:{c.op.http}"],
                          capture_output=True, text=True, check=False)


def refused_until_mended(transport, words):
    with Cluster() as c:
        deploy(c, transport)
        x = c.until("a refusal", lambda: (y := condition(c, "Planned"))["reason"] == "NoUsableDevice" and y)
        assert x["status"] == "False" and words in x["message"], x
        said = doctor(c)
        assert said.returncode == 1 and words in said.stderr, said
        c.spec(1, 1, transport={"protocols": ["TCP"]})
        os.kill(c.op.p.pid, signal.SIGHUP)  # it reads its file again
        t, r = (c.worker("t", "trainer"), c.worker("r", "rollout", engine="e0"))
        for w in (t, r):
            w.expect("planned", reject=None)
        t.say("send 1")
        t.expect("sent 1 .*e0=Committed")
        assert doctor(c).returncode == 0


def verbs_alone_is_refused():
    refused_until_mended({"protocols": ["Verbs"]}, "spec.transport.protocols has Verbs alone")


def gpu_direct_required_is_refused():
    refused_until_mended({"gpuDirect": "Required"}, "spec.transport.gpuDirect is Required")


def devices_without_verbs_are_refused():
    refused_until_mended({"protocols": ["TCP"], "devicePrefixes": ["mlx5_"]}, "spec.transport.devicePrefixes")


def the_default_without_rdma_is_not_degraded_and_a_device_asked_for_is_missed():
    for transport, reason in (({}, "AsExpected"), ({"deviceClass": "Hardware"}, "TCPFallback")):
        with Cluster() as c:
            t, r = deploy(c, transport)
            for w in (t, r):
                w.expect("planned")
            t.say("send 1")
            t.expect("sent 1 .*e0=Committed")
            r.expect("update 1 ok")
            c.until("news of the engine", lambda c=c: condition(c, "UpToDate")["status"] == "True")
            c.until(reason, lambda c=c, reason=reason: condition(c, "Degraded")["reason"] == reason)


run(verbs_alone_is_refused, gpu_direct_required_is_refused, devices_without_verbs_are_refused,
    the_default_without_rdma_is_not_degraded_and_a_device_asked_for_is_missed)
