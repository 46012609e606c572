# SPDX-License-Identifier: Apache-2.0
"""An agent killed with -9 at a phase of a transfer over RDMA: the transfer ends by name within its deadline, the kernel
takes the dead one's queue pairs back, and once the agent is here again the next versions arrive on new ones."""
import json
import os

from rdma import Wired, cluster
from test_phases import GONE, LOST
from test_transfer import engine, send, sent, updated
from wire import sh

DEADLINE_S = 60
SIZE = {"rows": 512, "cols": 1024}  # 6 MiB


def threads(agent):
    return {int(x) for x in os.listdir(f"/proc/{agent.p.pid}/task")}


def queue_pairs(threads_of):
    """Numbers of the queue pairs that these threads have made, as the kernel knows them."""
    return {(q["ifname"], q["lqpn"]) for q in json.loads(sh("rdma", "-j", "resource", "show", "qp"))
            if q.get("pid") in threads_of}


def queue_pairs_by_agent(c):
    return {name: queue_pairs(threads(a)) for name, a in c.agents.items()}


def arrives(t, r, version):
    send([t], version)
    updated(r, version)
    sent([t], version, "e0=Committed e1=Committed")


def killed(pod, place, said):
    """`said`: what the trainer hears of version 2."""
    def case():
        with Wired() as c:
            c.operator(trainers=1, per_engine=1, engines=2, trainer={"bufferSize": "64Mi"}, rollout={"bufferSize": "64Mi"},
                       transferDeadlineSeconds=DEADLINE_S)
            for name in ("t0", "r0", "r1"):
                c.agent(name, env={"WB_FAULT": f"kill={place}"} if name == pod else None)
            t, r = c.worker("t0", "trainer", **SIZE), [engine(c, e, 1, **SIZE)[0] for e in (0, 1)]
            for w in (t, *r):
                w.expect("planned")
            arrives(t, r, 1)
            dead = c.agents[pod]
            its_threads = threads(dead)
            before = queue_pairs_by_agent(c)
            assert all(before.values()), before
            t.say("send 2")
            assert dead.wait() == -9
            c.until("the kernel has taken its queue pairs back", lambda: not queue_pairs(its_threads))
            c.agent(pod)
            print(f"  {pod} at {place}:", t.expect(said, reject="bad", timeout=2 * DEADLINE_S).string, flush=True)
            if pod != "t0":  # a trainer attaches again by its next send
                c.until("ready again", lambda: c.get(c.agents[pod], "/readyz")[0] == 200)
            arrives(t, r, 3)
            now = queue_pairs_by_agent(c)
            assert all(now.values()) and not before[pod] & now[pod], (before, now)
            assert sum(c.moved("r0", "rx")) >= 6 << 20
    case.__name__ = f"killed: {pod} at {place}"
    return case


CASES = [killed("t0", place, GONE) for place in
         ("prepare:version=2", "send:version=2:chunk=3", "commit:version=2")]
CASES += [killed("r0", place, LOST) for place in
          ("prepare:version=2", "recv:version=2:chunk=2", "send:version=2", "install:version=2:chunk=2", "commit:version=2")]

if __name__ == "__main__":
    import sys
    cluster.run(*[t for t in CASES if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])], together=2)
