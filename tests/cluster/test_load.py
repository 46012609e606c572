# SPDX-License-Identifier: Apache-2.0
"""The operator with OBJECTS=20 objects, ten pods and authenticated agents each: memory, idle, failover, news of pods.

Prints one JSON object a line.  At any size: less than 64 MiB, less than 0.5 % of a core when nothing happens, agents
back within 30 s of their leader's kill -9, none called lost, no other plan; and on a machine that has little else to
do, 99 of 100 agents told of their pod's end within 200 ms.  OBJECTS=100 IDLE_S=60 is what the operator is held to.
FAILOVER=0 leaves that part out.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, free_ports, wait_for  # noqa: E402
from op import TOOLS, Operator, Program  # noqa: E402

FAILOVER = os.environ.get("FAILOVER", "1") == "1"
OBJECTS, IDLE_S, EVENTS = int(os.environ.get("OBJECTS", "20")), int(os.environ.get("IDLE_S", "12")), 200
QUIET_LOAD = 2  # load average up to which a machine is quiet: beyond, processes wait for it
TRAINERS, ENGINES = 2, 8
NS = "/api/v1/namespaces/default"


def say(**figures):
    print(json.dumps(figures), flush=True)


def lives(op):
    assert op.p.poll() is None, f"the operator ended with {op.p.returncode}"
    return True


def rss(pid):
    return next(int(x.split()[1]) for x in open(f"/proc/{pid}/status") if x.startswith("VmRSS")) / 1024


def cpu(pid):
    """Seconds that its first thread ran, and waited for a processor."""
    return [int(x) / 1e9 for x in open(f"/proc/{pid}/schedstat").read().split()[:2]]


class Herd(Program):
    """All agents; who is up, which plan each runs, and when each was told to leave."""

    def __init__(self, c, ports, agents):
        servers = ",".join(f"127.0.0.1:{p}" for p in ports)
        super().__init__(c, "herd", [os.path.join(TOOLS, "herd"), "--servers", servers, "--ca", c.path("pki", "ca.crt"),
                                     "--name", "operator.test"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.up, self.active, self.told, self.refused = {}, {}, {}, []
        self.p.stdin.write("".join(" ".join(map(str, a)) + "\n" for a in agents))
        self.p.stdin.close()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            word, name, *rest = line.split(" ", 3)
            if word == "up":
                self.up[name] = int(rest[0])
            elif word == "down":
                self.up.pop(name, None)
            elif word == "active":
                self.active[name] = tuple(map(int, rest))
            elif word == "told":
                self.told[name] = int(rest[0])
            else:
                self.refused.append(line.strip())


def make_objects(c):
    """Objects, pods and tokens; the lines of the herd."""
    items = [{"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", "metadata": {"name": f"t{i}"},
              "spec": {"trainer": {"workers": TRAINERS}, "rollout": {"workersPerEngine": 1, "engines": ENGINES}}}
             for i in range(OBJECTS)]
    c.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    todo = [(f"t{i}", f"t{i}-{'train' if k < TRAINERS else 'roll'}-{k}", k) for i in range(OBJECTS)
            for k in range(TRAINERS + ENGINES)]

    def one(job):
        obj, name, k = job
        is_trainer = k < TRAINERS
        labels = {"weightbridge.io/name": obj, "weightbridge.io/role": "trainer" if is_trainer else "rollout"}
        if not is_trainer:
            labels["weightbridge.io/engine"] = f"e{k}"
        pod = c.post(NS + "/pods", {"metadata": {"name": name, "labels": labels}, "spec": {
            "automountServiceAccountToken": False, "containers": [{"name": "app", "image": "none"},
                                                                  {"name": "weightbridge-agent", "image": "none"}]}})
        ref = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"]}
        token = c.post(NS + "/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [f"weightbridge.io/default/{obj}"], "expirationSeconds": 3600, "boundObjectRef": ref}})
        return (name, "default/" + obj, "trainer" if is_trainer else "rollout", k if is_trainer else 0,
                TRAINERS if is_trainer else 1, "-", token["status"]["token"])
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, todo))


def objects(c):
    return c.get("/apis/weightbridge.io/v1alpha1/weighttransfers")["items"]


def are_ready(c):
    """all objects are Ready"""
    got = objects(c)
    return sum(any(x["type"] == "Ready" and x["status"] == "True" for x in o.get("status", {}).get("conditions", []))
               for o in got) == OBJECTS


def idle(op):
    time.sleep(8)  # heartbeats have found their times
    c0, t0 = cpu(op.p.pid)[0], time.monotonic()
    writes = op.metric('wb_kube_writes_total{what="status"}')
    time.sleep(IDLE_S)
    share = 100 * (cpu(op.p.pid)[0] - c0) / (time.monotonic() - t0)
    say(what="idle", seconds=IDLE_S, percent_of_core=round(share, 3), rss_mib=round(rss(op.p.pid), 1),
        status_writes=op.metric('wb_kube_writes_total{what="status"}') - writes)
    return share


def failover(c, old, new, herd, n):
    plans = {o["metadata"]["name"]: o["status"]["plan"] for o in objects(c)}
    active = dict(herd.active)
    t = time.monotonic()
    old.stop(signal.SIGKILL)
    wait_for(lambda: len(herd.up) < n / 2, 10, 0.01)
    wait_for(lambda: len(herd.up) == n, 60, 0.05)
    took = time.monotonic() - t
    wait_for(lambda: new.metric("wb_leader") == 1, 5)
    time.sleep(20)  # as long as an agent may be away before it is called lost
    assert herd.active == active, "another plan became active"
    after = {o["metadata"]["name"]: o["status"]["plan"] for o in objects(c)}
    same = sum(after[k]["digest"] == plans[k]["digest"] and after[k]["number"] == plans[k]["number"] for k in plans)
    lost = sum("AgentLost" in line for line in new.text().splitlines())
    say(what="failover", agents=n, back_after_s=round(took, 2), called_lost=lost, plans_kept=same,
        rss_mib=round(rss(new.p.pid), 1))
    assert same == OBJECTS and lost == 0
    return took


def news_of_pods(c, op, herd, agents):
    """Pods are deleted one after the other; their agents are told.

    What the operator itself needs, and how long it waited for a processor, tell whose time it is.
    """
    before = cpu(op.p.pid)
    step = max(1, len(agents) // EVENTS)
    took = []
    for a in agents[::step][:EVENTS]:
        name = a[0]
        t = time.monotonic_ns()
        c.raw(f"{NS}/pods/{name}?gracePeriodSeconds=0", "DELETE")
        wait_for(lambda: name in herd.told, 10, 0.002)
        took.append((herd.told[name] - t) / 1e6)
        time.sleep(0.02)
    took.sort()
    p99 = took[int(len(took) * 0.99) - 1] if len(took) > 1 else took[0]
    spent = [round(1000 * (y - x) / len(took), 2) for x, y in zip(before, cpu(op.p.pid))]
    say(what="pod_event_to_agent", events=len(took), p50_ms=round(took[len(took) // 2], 1), p99_ms=round(p99, 1),
        max_ms=round(took[-1], 1), load=round(os.getloadavg()[0], 1), operator_ms_an_event=spent[0],
        operator_waits_ms_an_event=spent[1])
    return p99


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post(NS + "/serviceaccounts", {"metadata": {"name": "default"}})
        c.certificate("operator", "/CN=operator", "DNS:operator.test")
        ports = free_ports(2)
        tls = ["--tls-cert", c.path("pki", "operator.crt"), "--tls-key", c.path("pki", "operator.key"), "--log-level",
               "info"]
        first = Operator(c, ports[0], args=tls)
        wait_for(lambda: first.metric("wb_leader") == 1, 20)
        second = Operator(c, ports[1], args=tls)
        t = time.monotonic()
        agents = make_objects(c)
        say(what="made", objects=OBJECTS, pods=len(agents), seconds=round(time.monotonic() - t, 1))
        t = time.monotonic()
        herd = Herd(c, ports, agents)
        wait_for(lambda: lives(first) and len(herd.active) == len(agents), 120, 0.1)
        wait_for(lambda: lives(first) and are_ready(c), 120, 0.5)
        say(what="planned", agents=len(agents), seconds=round(time.monotonic() - t, 1), rss_mib=round(rss(first.p.pid), 1),
            refused=len(herd.refused))
        share = idle(first)
        took = failover(c, first, second, herd, len(agents)) if FAILOVER else 0
        memory = max(rss(op.p.pid) for op in (first, second) if op.p.poll() is None)
        p99 = news_of_pods(c, second if FAILOVER else first, herd, agents)
        herd.stop(signal.SIGKILL)
        lives(second)
        rc = second.stop()
        assert rc == 0, rc
        bars = {"failover_s": (took, 30), "rss_mib": (memory, 64), "idle_percent": (share, 0.5)}
        if os.getloadavg()[0] < QUIET_LOAD:
            bars["p99_ms"] = (p99, 200)
        worse = {k: v for k, v in bars.items() if v[0] >= v[1]}
        assert not worse, worse


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
