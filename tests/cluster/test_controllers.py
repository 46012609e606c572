# SPDX-License-Identifier: Apache-2.0
"""The examples of JobSet, LeaderWorkerSet, KubeRay and TrainJob made into pods by the real controllers: the policy
gives each pod its sidecar, and the controllers let it be; the pods have the labels that test_injection and
test_packages give theirs by hand.  Beside each of them an agent and a worker of that pod's name and token move two
versions: the engines are called as the controller's labels say.

Pods do not run here (no node), and Volcano's controller cannot be had as a Go module."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, free_ports, wait_for  # noqa: E402
from controllers import Controllers  # noqa: E402
from op import Operator, Worker  # noqa: E402
from test_injection import CONTROLLERS, L, helm, policies  # noqa: E402
from test_tokens import auth, make_token  # noqa: E402

# Of each example: pods of trainers, engines, pods an engine.
WANTED = {"jobset": (2, 2, 1), "lws": (2, 2, 2), "raycluster": (2, 2, 2), "trainjob": (2, 2, 1)}


def pods(c, role):
    r = json.loads(c.kubectl("-n", "rl", "get", "pods", "-l", f"{L}name=grpo,{L}role={role}", "-o", "json"))
    return sorted((p for p in r["items"] if "deletionTimestamp" not in p["metadata"]), key=lambda p: p["metadata"]["name"])


def made(c, kind, docs):
    """The pods of trainers, and those of each engine by its name."""
    n_trainer, n_engine, n_each = WANTED[kind]
    key = docs[0]["spec"]["rollout"]["engineLabelKey"]

    def all_here():
        engines = {}
        trainers = pods(c, "trainer")
        for p in pods(c, "rollout"):
            engines.setdefault(p["metadata"]["labels"].get(key), []).append(p)
        all_here.__doc__ = (f"{kind}: {n_trainer} trainers and {n_engine} engines of {n_each}; there are {len(trainers)} and "
                            f"{ {e: [p['metadata']['name'] for p in x] for e, x in engines.items()} }")
        return (len(trainers) == n_trainer and None not in engines and len(engines) == n_engine and
                all(len(x) == n_each for x in engines.values()) and (trainers, engines))
    return wait_for(all_here, 60, 0.2)


def is_as_told(kind, p):
    """Its sidecar, and the labels that other tests take for this controller's; TrainJob's engines are a StatefulSet's."""
    assert [x["name"] for x in p["spec"]["initContainers"]][:1] == ["weightbridge-agent"], p["spec"]["initContainers"]
    assert any(m["mountPath"] == "/run/weightbridge" for m in p["spec"]["containers"][0]["volumeMounts"]), p["spec"]
    engines_of_another = kind == "trainjob" and p["metadata"]["labels"][L + "role"] == "rollout"
    by_hand = {k for k in CONTROLLERS[kind] if kind != "trainjob" or ("apps.kubernetes.io" in k) == engines_of_another}
    missing = by_hand - set(p["metadata"]["labels"])
    assert not missing, f"{kind}: pod {p['metadata']['name']} has no label {missing}; it has {p['metadata']['labels']}"


def smaller(docs, kind):
    """The example's object for a worker a pod, and buffers that these processes have."""
    n_trainer, _, n_each = WANTED[kind]
    spec = docs[0]["spec"]
    spec["trainer"].update(workers=n_trainer, bufferSize="64Mi")
    spec["rollout"].update(workersPerEngine=n_each, bufferSize="64Mi")
    return docs


def moves(c, port, trainers, engines):
    """Two versions, by an agent and a worker as each pod."""
    workers = []
    for role, group in [("trainer", trainers)] + [("rollout", x) for _, x in sorted(engines.items())]:
        for i, p in enumerate(group):
            name = p["metadata"]["name"]
            token = make_token(c, p, "weightbridge.io/rl/grpo")
            workers.append((role, Worker(c, port, name, role, i, len(group), None, auth(c, name, token), object_="rl/grpo")))
    c.kubectl("-n", "rl", "wait", "--for=condition=Ready", "wt/grpo", "--timeout=60s")
    senders = [w for role, w in workers if role == "trainer"]
    for v in (1, 2):
        for w in senders:
            w.say(f"send {v}")
        for w in senders:
            line = w.until(f"sent {v}")
            assert all(f"{e}=Committed" in line for e in engines), (line, sorted(engines))
    for _, w in workers:
        w.end()


def one(c, port, kind):
    t = time.monotonic()
    docs = smaller(helm.load(open(os.path.join(helm.CHARTS, "examples", kind + ".yaml")).read()), kind)
    for d in docs:
        c.kubectl("apply", "-f", "-", stdin=json.dumps(d))
    trainers, engines = made(c, kind, docs)
    for p in sum(engines.values(), trainers):
        is_as_told(kind, p)
    moves(c, port, trainers, engines)
    for d in reversed(docs):
        c.kubectl("delete", "--wait=false", "-f", "-", stdin=json.dumps(d))
    c.kubectl("-n", "rl", "delete", "pods", "--all", "--force", "--grace-period=0")
    wait_for(lambda: not pods(c, "trainer") + pods(c, "rollout"), 60, 0.2)
    print(f"{kind}: {len(trainers)} trainers, engines {' '.join(sorted(engines))}, two versions, "
          f"{time.monotonic() - t:.1f} s", flush=True)


def main():
    helm.need()
    with ApiServer() as c:
        c.install_crd()
        c.kubectl("create", "namespace", "rl")
        wanted = Controllers(c)
        wait_for(lambda: c.kubectl("-n", "rl", "get", "serviceaccount", "default", check=False).returncode == 0, 30)
        policies(c)
        c.certificate("operator", "/CN=operator", "DNS:operator.test")
        port, = free_ports(1)
        op = Operator(c, port, args=["--tls-cert", c.path("pki", "operator.crt"), "--tls-key", c.path("pki", "operator.key")])
        for kind in sys.argv[1:] or sorted(WANTED):
            one(c, port, kind)
        op.stop()
        wanted.stop()


if __name__ == "__main__":
    main()
