# SPDX-License-Identifier: Apache-2.0
"""Real agents on the guest's devices: tests/e2e's Cluster, whose agents have RDMA alone.

Each agent has two rails, one a pair.  Trainers and engines of odd numbers (t0, r1) are on the ends `a`, engines of even
numbers (r0) on the ends `b`: what r0 gets of the others, and what r1 gets of r0, crosses the wires.  Words go by
TCP on 127.0.0.1, so that a fault of a wire is one of RDMA and of nothing else.
"""
import json
import os
import re
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import cluster  # noqa: E402
from cluster import Cluster  # noqa: E402

cluster.TIMEOUT = 90.0  # the processors may be emulated


def end_of(agent):
    return "b" if agent.startswith("r") and int(agent[1:]) % 2 == 0 else "a"


class Wired(Cluster):
    """A cluster on the wires.  `rate`: bytes/s of each rail, so that a transfer lasts for something to happen."""

    def __init__(self, rails=2, rate=None):
        super().__init__()
        self.rails, self.rate = rails, rate

    def operator(self, *args, **kw):
        kw = {"transport": {"protocols": ["Verbs"], "deviceClass": "Software"}, **kw}
        return super().operator(*args, **kw)

    def agent(self, name, *args, **kw):
        end = end_of(name)
        own = ["--transport", "verbs", "--rails", str(self.rails), "--rail-device",
               ",".join(f"rxe_{end}{i}" for i in range(self.rails))]
        if self.rate:
            own += ["--rail-rate", str(self.rate)]
        return super().agent(name, *own, *args, **kw)

    def moved(self, name, way):
        """Bytes that each rail of an agent has moved so far: "rx", "tx"."""
        text = self.get(self.agents[name], "/metrics")[1]
        found = re.findall(rf'^wb_bytes_total{{rail="(\d+)",dir="{way}"}} (\S+)$', text, re.M)
        return [int(float(value)) for _, value in sorted(found, key=lambda x: int(x[0]))]

    def degraded(self):
        """The object's condition Degraded."""
        items = json.loads(self.get(self.op, "/objects")[1])["items"]
        return next(x for x in items[0]["status"]["conditions"] if x["type"] == "Degraded")

    def peers(self, name):
        """{peer: transport} of what an agent gets."""
        s = json.loads(self.get(self.agents[name], "/status")[1])
        return {p["agent"]: p["transport"] for o in s["objects"] for p in o["peers"] if p["gets"]}


def counter(device, what):
    """One of a device's own counters, such as sent_pkts or completer_retry_err."""
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{what}", encoding="ascii") as f:
        return int(f.read())
