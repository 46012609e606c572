# SPDX-License-Identifier: Apache-2.0
"""Why members are missing, as the status says it, from a real API server's pods and tokens."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, free_ports, wait_for  # noqa: E402
from op import Operator, Worker, conditions, status, transfer_object  # noqa: E402
from test_tokens import PODS, Stranger, auth, make_token  # noqa: E402


def make_pod(c, name, sidecar=True, ns="default", object_="t", **labels):
    containers = [{"name": "app", "image": "none"}] + ([{"name": "weightbridge-agent", "image": "none"}] if sidecar else [])
    return c.post(PODS.format(ns), {
        "metadata": {"name": name, "labels": {"weightbridge.io/name": object_, **{f"weightbridge.io/{k}": v for k, v in labels.items()}}},
        "spec": {"automountServiceAccountToken": False, "containers": containers}})


def delete_pod(c, name):
    c.raw(PODS.format("default") + f"/{name}?gracePeriodSeconds=0", "DELETE")


def members(c, reason, *words, also_ready=True):
    def so():
        x = conditions(status(c))
        m = x.get("MembersConnected", {})
        so.__doc__ = f"MembersConnected says {reason} {words}; it says {m}"
        return (m.get("reason") == reason and all(w in m["message"] for w in words)
                and (not also_ready or x["Ready"]["reason"] == reason))
    wait_for(so, 20, 0.1)


def without_sidecar(c):
    members(c, "WaitingForPods")
    for i in range(7):
        make_pod(c, f"bare-{i}", sidecar=False, role="rollout")
    members(c, "SidecarMissing", "7 pods", "bare-0, bare-1, bare-2, bare-3, bare-4, ...")
    for i in range(7):
        delete_pod(c, f"bare-{i}")
    members(c, "WaitingForPods")


def bad_workers(c, port):
    """A role and an engine that the labels contradict; each is put right by another pod."""
    pod = make_pod(c, "r-0", role="trainer", engine="e0")
    w = Worker(c, port, "r-0", "rollout", 0, 1, None, auth(c, "r-0", make_token(c, pod)))
    members(c, "RoleMismatch", "r-0", "weightbridge.io/role of its pod is 'trainer'")
    for kind, name in (("pod", "r-0"), ("wt", "t")):
        wait_for(lambda k=kind, n=name: "RoleMismatch" in c.kubectl("describe", k, n), 20, 0.5)
    w.end()
    delete_pod(c, "r-0")
    members(c, "WaitingForPods")
    pod = make_pod(c, "r-1", role="rollout")
    w = Worker(c, port, "r-1", "rollout", 0, 1, None, auth(c, "r-1", make_token(c, pod)))
    members(c, "EngineLabelMissing", "r-1", "weightbridge.io/engine")
    w.end()
    delete_pod(c, "r-1")


def refused(c, port):
    """An agent with the token of another pod is the reason while it tries, here and at that pod; one whose token
    proves nothing is in the operator's log alone."""
    pod, other = make_pod(c, "t-0", role="trainer"), make_pod(c, "t-1", role="trainer")
    p = Stranger(c, port, "t-0", make_token(c, pod, "weightbridge.io/default/other"), "default/t")
    p.hears("not valid for audience")
    members(c, "WaitingForAgents")
    p = Stranger(c, port, "t-0", make_token(c, other), "default/t")
    members(c, "AuthenticationRejected", "agent t-0 was refused", "is of pod t-1, but the agent calls itself t-0")
    wait_for(lambda: "AuthenticationRejected" in c.kubectl("describe", "pod", "t-1"), 20, 0.5)
    assert "AuthenticationRejected" not in c.kubectl("describe", "pod", "t-0")
    p.stop(9)
    delete_pod(c, "t-1")
    return pod


def library(c, port):
    """A worker whose libweightbridge is of another build than its sidecar: named, and nothing is planned for it."""
    pod = make_pod(c, "r-2", role="rollout", engine="e0")
    token = make_token(c, pod)
    w = Worker(c, port, "r-2", "rollout", 0, 1, None, auth(c, "r-2", token), program="toy_worker-abi0")
    line = next(x for x in iter(w.p.stdout.readline, "") if x.startswith("error"))
    assert "take both from one release" in line and "agent r-2 is 0" in line, line
    members(c, "LibraryVersionMismatch", "a worker of agent r-2 was refused: the worker's libweightbridge is build 0",
            "take both from one release")
    w.end()
    delete_pod(c, "r-2")
    members(c, "WaitingForPods")


def planned(c, reason, *words, name="t"):
    def so():
        x = conditions(status(c, name))
        p = x.get("Planned", {})
        so.__doc__ = f"Planned says {reason} {words}; it says {p}"
        return p.get("reason") == reason and all(w in p["message"] for w in words)
    wait_for(so, 20, 0.1)


def limited(c, name, limit):
    """What a command is begun with, to be in a container that may use so much memory; the kernel shows it so."""
    group = c.path("group-" + name)
    os.makedirs(group, exist_ok=True)
    for file, text in (("memory.max", limit), ("memory.current", 0)):
        with open(os.path.join(group, file), "w") as f:
            f.write(str(text))
    return ("unshare", "--mount", "sh", "-c", f'mount --bind {group} /sys/fs/cgroup && exec "$@"', "sh")


def too_small(c, port):
    """Agents whose containers may use less memory than buffers, or staging beside them, take; then ones that may use
    enough."""
    c.kubectl("apply", "-f", "-", stdin=transfer_object("small", trainer={"workers": 1, "bufferSize": "64Mi"},
                                                        rollout={"workersPerEngine": 1, "bufferSize": "64Mi"},
                                                        staging={"trainer": "HostMemory"}))
    workers = []
    for role, engine in (("rollout", "e0"), ("trainer", None)):
        pod = make_pod(c, "s-" + role, role=role, **({"engine": engine} if engine else {}), object_="small")
        workers.append((role, make_token(c, pod, "weightbridge.io/default/small")))
    enough = 134217728
    for role, limit, what in (("rollout", 67000000, "buffers take 67108864 bytes"),
                              ("trainer", 67141632, "beside 67108864 of buffers"), (None, enough, None)):
        run = [Worker(c, port, "s-" + r, r, 0, 1, None, auth(c, "s-" + r, token), object_="default/small",
                      inside=limited(c, "s-" + r, limit if r == role else enough)) for r, token in workers]
        if role:
            planned(c, "MemoryLimitTooSmall", f"agent s-{role} cannot take the plan", what,
                    f"the memory limit is {limit}: raise it", name="small")
        else:
            c.kubectl("wait", "--for=condition=Ready", "wt/small", "--timeout=30s")
        for w in run:
            w.end()
    for role, _ in workers:
        delete_pod(c, "s-" + role)


def tcp_instead(c):
    """TCP is as it should be where nobody asks for a device; where somebody does, that it came to TCP is said."""
    def degraded(*what):
        x = conditions(status(c))["Degraded"]
        return (x["status"], x["reason"]) == what and x["message"]
    assert conditions(status(c))["Degraded"]["reason"] == "AsExpected"
    c.kubectl("patch", "wt", "t", "--type=merge", "-p", '{"spec": {"transport": {"deviceClass": "Hardware"}}}')
    assert "deviceClass asks for RDMA" in wait_for(lambda: degraded("True", "TCPFallback"), 20)
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")
    c.kubectl("patch", "wt", "t", "--type=merge", "-p", '{"spec": {"transport": {"deviceClass": "Any"}}}')
    wait_for(lambda: conditions(status(c))["Degraded"]["reason"] == "AsExpected", 20)
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")


def labelled(c, port, trainer):
    """Engines are named by their label, and by label and app."""
    workers = [Worker(c, port, "t-0", "trainer", 0, 1, None, auth(c, "t-0", make_token(c, trainer)))]
    for name, app in (("a", None), ("b", "x")):
        pod = make_pod(c, "r-" + name, role="both", engine=name)
        workers.append(Worker(c, port, "r-" + name, "rollout", 0, 1, app, auth(c, "r-" + name, make_token(c, pod))))
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")
    wait_for(lambda: {e["name"] for e in status(c)["engines"]} == {"a", "b/x"}, 20)
    make_pod(c, "bare", sidecar=False, role="rollout")
    members(c, "AllAgentsConnected", "1 pod has no container weightbridge-agent: bare", also_ready=False)
    workers[0].say("send 1")
    line = workers[0].until("sent 1")
    assert "a=Committed" in line and "b/x=Committed" in line, line
    for w in workers[1:]:
        w.until("update 1 ok")
    tcp_instead(c)
    # A leader after this one finds the same, though it hears of pods and agents in any order.
    return workers


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        c.certificate("operator", "/CN=operator", "DNS:operator.test")
        port = free_ports(1)[0]
        args = ["--tls-cert", c.path("pki", "operator.crt"), "--tls-key", c.path("pki", "operator.key")]
        op = Operator(c, port, args=args)
        wait_for(op.is_ready, 20)
        c.kubectl("apply", "-f", "-", stdin=transfer_object())
        without_sidecar(c)
        bad_workers(c, port)
        library(c, port)
        too_small(c, port)
        trainer = refused(c, port)
        workers = labelled(c, port, trainer)
        before = status(c)["plan"]["digest"]
        assert op.stop() == 0
        op = Operator(c, port, args=args)
        wait_for(lambda: "PlanAdopted" in op.text(), 30)
        workers[0].say("send 2")
        workers[0].until("sent 2")
        wait_for(lambda: status(c).get("version") == 2, 20)
        assert status(c)["plan"]["digest"] == before
        for w in workers:
            w.end()
        assert op.stop() == 0


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
