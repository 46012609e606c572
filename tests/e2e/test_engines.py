# SPDX-License-Identifier: Apache-2.0
"""Many engines of one worker each, every one at an agent of its own, beside one trainer: two versions reach them all.
ENGINES=256 is a measurement: it prints times, memory, and which engine was last."""
import json
import os
import re
import subprocess
import time

from cluster import BUILD, Cluster, run

ENGINES = int(os.environ.get("ENGINES", "12"))
WAIT_S = 60 + ENGINES * 2  # they share this machine's processors
SIZE = {"rows": 64, "cols": 64, "tensors": 4}
DEADLINES = {"engineStepDeadlineSeconds": WAIT_S, "transferDeadlineSeconds": WAIT_S, "heartbeatTimeoutSeconds": 60}


def rss(procs):
    """Bytes of each that are its own."""
    out = []
    for p in procs:
        with open(f"/proc/{p.p.pid}/smaps_rollup", encoding="utf-8") as f:
            out.append(sum(int(n) for n in re.findall(r"^Private_\w+:\s+(\d+)", f.read(), re.M)) << 10)
    return out


def files(p):
    return len(os.listdir(f"/proc/{p.p.pid}/fd"))


def start(c):
    c.operator(trainers=1, per_engine=1, engines=ENGINES, settle_ms=1000, **DEADLINES)
    names = ["t0"] + [f"r{i}" for i in range(ENGINES)]
    for n in names:
        c.agent(n)
    trainer = c.worker("t0", "trainer", **SIZE)
    engines = {f"e{i}": c.worker(f"r{i}", "rollout", engine=f"e{i}", cut="cols" if i % 2 else "rows", **SIZE)
               for i in range(ENGINES)}
    for w in (trainer, *engines.values()):
        w.expect("planned", timeout=WAIT_S)
    return trainer, engines


def last_transfer(c):
    return json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"].get("lastTransfer", {})


def slowest(c, version):
    """The agent whose engine had it last, and how much later than the first one."""
    text = subprocess.run([f"{BUILD}/bin/wbctl", "trace", "--operator", f"127.0.0.1:{c.op.http}"], capture_output=True,
                          text=True, check=True).stdout
    events = json.loads(text)["traceEvents"]
    name = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    ends = sorted((e["ts"] + e["dur"], name[e["pid"]]) for e in events
                  if e["name"] == f"version {version}" and name[e["pid"]] != "t0")
    assert ends, text[:500]
    return ends[-1][1], (ends[-1][0] - ends[0][0]) / 1e6, len(ends)


def send(c, trainer, engines, version):
    trainer.say(f"send {version}")
    took = float(trainer.expect(rf"sent {version} seconds=(\S+)", timeout=WAIT_S)[1])
    said = trainer.seen[-1]
    assert said.count("=Committed") == ENGINES, said[-2000:]
    for w in engines.values():
        w.expect(rf"update {version} ok", timeout=WAIT_S)
    status = c.until("the operator knows of it", lambda: last_transfer(c) if last_transfer(c).get("version") == version
                     else None)
    assert status["result"] == "Succeeded", status
    name, later, n = slowest(c, version)
    print(f"version {version}: {took:.2f} s; {name} was last of {n}, {later:.2f} s after the first")


def all_engines_commit():
    with Cluster() as c:
        begun = time.monotonic()
        trainer, engines = start(c)
        planned_s = time.monotonic() - begun
        for v in (1, 2):
            send(c, trainer, engines, v)
        agents = list(c.agents.values())
        own, n = rss(agents), [files(a) for a in agents]
        print(f"{ENGINES} engines: planned after {planned_s:.1f} s; an agent's memory "
              f"{sum(own) / len(own) / 2**20:.1f} MiB, {max(own) / 2**20:.1f} at most, the operator's "
              f"{rss([c.op])[0] / 2**20:.1f}; open files {max(n)} at most")


if __name__ == "__main__":
    run(all_engines_commit)
