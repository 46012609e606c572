# SPDX-License-Identifier: Apache-2.0
"""AllEngines, after the decision: whoever dies, every engine that was whole installs the version,
from staging areas that its workers kept, and no trainer sends again."""
import json
import sys
import time

from cluster import Cluster, run
from test_modes import MODES

HOOK_MS = 700  # long enough to hit the time between decision and install


def start(c, fault=None):
    c.operator(trainers=2, per_engine=2, engines=2, transferDeadlineSeconds=10,
               engineStepDeadlineSeconds=5, **MODES["joint"])
    for pod in ("t0", "t1", "r0", "r1"):
        c.agent(pod, env={"WB_FAULT": fault[1]} if fault and fault[0] == pod else None)
    t = [c.worker(f"t{i}", "trainer", i, 2) for i in (0, 1)]
    r = {e: [c.worker(f"r{e[1]}", "rollout", i, 2, engine=e, cut="cols",
                      args=["--hook-ms", str(HOOK_MS)]) for i in (0, 1)] for e in ("e0", "e1")}
    for w in t + r["e0"] + r["e1"]:
        w.expect("planned")
    for w in t:
        w.say("send 1")
    for w in t:
        w.expect("sent 1 .*e0=Committed e1=Committed")
    for w in r["e0"] + r["e1"]:
        w.expect("update 1 ok")
    return t, r


def phase(c, pod, engine):
    s = json.loads(c.get(c.agents[pod], "/status")[1])
    return next((e["phase"] for o in s["objects"] for e in o["engines"] if e["engine"] == engine),
                "?")


def versions(c):
    out = {}
    for pod in ("r0", "r1"):
        for w in json.loads(c.get(c.agents[pod], "/status")[1])["workers"]:
            out.setdefault(w["engine"], set()).add(w["version"])
    return out


def one_version(c):
    v = versions(c)
    return v["e0"] == v["e1"] and len(v["e0"]) == 1 and min(v["e0"]) >= 2


def rolls_forward(*victims):
    with Cluster() as c:
        t, r = start(c)
        for w in t:
            w.say("send 2")
        for pod, engine in (("r0", "e0"), ("r1", "e1")):
            c.until("decided", lambda p=pod, e=engine: phase(c, p, e) == "Hooks")
        for v in victims:
            c.agents[v].kill()
        for w in r["e0"] + r["e1"]:
            if not any(w in r[f"e{v[1]}"] for v in victims if v[0] == "r"):
                w.expect("update 2 ok", reject=" bad")
        time.sleep(0.3)
        for v in victims:
            c.agent(v)
        for w in t:
            w.expect("sent 2 .*|error .*", reject=None)
        if "t0" in victims:
            for w in t:  # a trainer that lost its agent comes back with its next call
                w.say("send 3")
            for w in t:
                w.expect("sent 3 .*|error .*", reject=None, timeout=60)
        # Else nobody sends: what is installed now was kept by the workers.
        for w in r["e0"] + r["e1"]:
            if any(w in r[f"e{v[1]}"] for v in victims if v[0] == "r"):
                w.expect("update [23] ok", reject=" bad", timeout=60)
        c.until("one version", lambda: one_version(c), 60)
        for w in t:
            w.say("send 4")
        for w in t:
            w.expect("sent 4 .*e0=Committed e1=Committed", timeout=60)
        for w in r["e0"] + r["e1"]:
            w.expect("update 4 ok", reject=" bad", timeout=60)


def when_the_agent_of_an_engine_dies():
    rolls_forward("r0")


def when_the_agents_of_all_engines_die():
    rolls_forward("r0", "r1")


def when_the_coordinator_dies():
    rolls_forward("t0")


def when_the_coordinator_and_an_engine_die():
    rolls_forward("t0", "r1")


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [when_the_agent_of_an_engine_dies, when_the_agents_of_all_engines_die,
             when_the_coordinator_dies, when_the_coordinator_and_an_engine_die]
    run(*[t for t in tests if not names or t.__name__ in names], together=2)
