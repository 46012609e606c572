# SPDX-License-Identifier: Apache-2.0
"""Whatever is killed, restarted or lost: the job goes on, and every engine gets every version it can.

SEEDS=24 kills at random points of a transfer (agent, worker or leading operator); the first is FIRST=1, VICTIM="trainer
agent" chooses one kind.  CASES=seeds runs these alone.
"""
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import HttpError, patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from job import SYSTEM, Job, add_images, install_operator, pids  # noqa: E402

SEEDS, FIRST = int(os.environ.get("SEEDS", "24")), int(os.environ.get("FIRST", "1"))
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/weightbridge-operator"
# Victims in turn: so that each kind has its share whatever the number of seeds.
VICTIMS = ["rollout agent", "rollout worker", "trainer agent", "trainer worker", "rollout agent", "rollout worker",
           "operator", "trainer agent"]
VICTIMS = [os.environ["VICTIM"]] if os.environ.get("VICTIM") else VICTIMS


def uid_of(c, ns, pod):
    return c.kubectl("-n", ns, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")


def leader(c):
    """The pod of the operator that leads."""
    return c.get(LEASE)["spec"]["holderIdentity"].rsplit("-", 1)[0]


def kill(c, job, what, rng):
    kind, _, program = what.partition(" ")
    if what == "operator":
        ns, pod, exe = SYSTEM, leader(c), "weightbridge-operator"
    else:
        pod = {"rollout": f"rollout-{rng.randrange(2)}", "trainer": "trainer-0"}[kind]
        ns, exe = job.ns, {"agent": "weightbridge-agent", "worker": "toy_worker"}[program]
    found = pids(exe, uid_of(c, ns, pod))
    assert found, f"no {exe} in {pod}"

    def strike():
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return pod
    return strike


def no_bad_bytes(job):
    for pod in job.pods("rollout"):
        for args in ((), ("--previous",)):
            bad = [x for x in job.lines(pod, "worker", *args) if " bad" in x]
            assert not bad, (pod, bad)


def commits(job, version, seconds):
    """Send a version until both engines committed it; the trainer may be just starting."""
    end = time.monotonic() + patience(seconds)
    while True:
        n = len(job.lines("trainer-0"))
        said = job.say("trainer-0", f"send {version}", check=False)
        line = None
        while said.returncode == 0 and time.monotonic() < end and not line:
            got = job.lines("trainer-0")
            if len(got) < n:  # another run of the worker
                break
            line = next((x for x in got[n:] if x.startswith((f"sent {version} ", "error"))), None)
            if not line:
                time.sleep(0.1)
        if line and line.count("Committed") == 2:
            return
        assert time.monotonic() < end, f"version {version} did not commit in {seconds} s: {line}"
        time.sleep(0.5)


def seeds(c, job):
    version = 100
    slowest = {}
    for seed in range(FIRST, FIRST + SEEDS):
        rng = random.Random(seed)
        what = VICTIMS[(seed - 1) % len(VICTIMS)]
        strike = kill(c, job, what, rng)
        version += 1
        thread = threading.Thread(target=job.say, args=("trainer-0", f"send {version}", False))
        thread.start()
        wait = rng.uniform(0.05, 0.35)
        time.sleep(wait)
        pod = strike()
        t = time.monotonic()
        thread.join()
        version += 1
        try:
            commits(job, version, 60)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {what} ({pod}) killed after {wait:.3f} s: {e}") from None
        took = time.monotonic() - t
        slowest[what] = max(took, slowest.get(what, 0))
        no_bad_bytes(job)
        print(f"seed {seed}: {what} {pod} killed after {wait:.3f} s, version {version} everywhere {took:.1f} s later")
        if what == "operator":  # the next one leads before another seed looks for a leader
            wait_for(lambda: leader_alive(c), 40, 0.2)
    job.settled(version, 60)
    job.ready()
    print("slowest: " + ", ".join(f"{k} {v:.1f} s" for k, v in sorted(slowest.items())))


def leader_alive(c):
    try:
        name = leader(c)
    except (OSError, HttpError):
        return False
    return bool(name) and bool(pids("weightbridge-operator", uid_of(c, SYSTEM, name)))


def api_server_restarts(c, job):
    """Versions go on while the API server is down; the status catches up; watches begin anew after a compaction."""
    job.go_on_sending(301, 312, 0.4)
    job.heard("rollout-0", "update 302 ")
    c.stop_api()
    time.sleep(4)
    c.start_api()
    c.compact()
    job.heard("rollout-0", "update 312 ", 60)
    got = [int(x.split()[1]) for x in job.lines("rollout-0") if x.startswith("update 3")]
    assert got[-12:] == list(range(301, 313)), got
    job.settled(312, 60)


def lease_is_deleted(c, job):
    before = job.status()
    c.raw(LEASE, "DELETE")
    wait_for(lambda: leader_alive(c), 40, 0.2)
    commits(job, 320, 30)
    job.settled(320, 60)
    after = job.status()
    assert after["plan"]["digest"] == before["plan"]["digest"], (before["plan"], after["plan"])


def operators_go(c, job):
    """No operator at all: versions go on; all come back to the same plan when there is one again."""
    before = job.status()
    scale = lambda n: c.kubectl("-n", SYSTEM, "scale", "deployment/weightbridge-operator", f"--replicas={n}")
    scale(0)
    wait_for(lambda: not c.kubectl("-n", SYSTEM, "get", "pods", "--no-headers").strip(), 60, 0.2)
    commits(job, 330, 20)
    assert job.status()["version"] == before["version"]
    scale(2)
    job.settled(330, 60)
    after = job.status()
    assert after["plan"]["digest"] == before["plan"]["digest"] and after["plan"]["number"] == before["plan"]["number"]


def both_ready(c):
    """Two operators, both Ready, and the disruption budget knows: an eviction before that is answered by 429."""
    def allowed():
        """the budget allows a disruption of two healthy operators"""
        st = c.get(f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/weightbridge-operator")["status"]
        return st["currentHealthy"] == 2 and st["expectedPods"] == 2 and st["disruptionsAllowed"] >= 1
    c.kubectl("-n", SYSTEM, "rollout", "status", "deployment/weightbridge-operator", "--timeout=90s")
    wait_for(allowed, 60, 0.2)


def leader_is_evicted(c, job):
    """An eviction is granted at once, a rollout restart finishes, and the job notices neither."""
    both_ready(c)
    pod = leader(c)
    c.post(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}/eviction",
           {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": SYSTEM}})
    commits(job, 340, 30)
    c.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/weightbridge-operator")
    c.kubectl("-n", SYSTEM, "rollout", "status", "deployment/weightbridge-operator", "--timeout=90s")
    commits(job, 341, 30)
    job.settled(341, 60)


def main(c):
    add_images(c)
    install_operator(c)
    job = Job(c, rollouts=2, shape="--rows 1024 --cols 1024 --tensors 8")  # 32 MiB
    job.ready()
    commits(job, 1, 30)
    processes = (api_server_restarts, lease_is_deleted, operators_go, leader_is_evicted, seeds)
    for case in processes if c.owns_nodes else (operators_go, leader_is_evicted):
        if os.environ.get("CASES") and case.__name__ not in os.environ["CASES"].split():
            continue
        t = time.monotonic()
        case(c, job)
        no_bad_bytes(job)
        print(f"{case.__name__}: {time.monotonic() - t:.1f} s")


if __name__ == "__main__":
    run(main, __file__)
