# SPDX-License-Identifier: Apache-2.0
"""A trainer of one worker and engines of one, each in a pod of its own, with what an agent shows of them."""
import json

from test_transfer import engine, quit_all, send, sent, updated

SIZE = {"rows": 1024, "cols": 512}


class Deployed:
    """A trainer pod and one pod an engine, each started with its own arguments and environment."""

    def __init__(self, c, trainer, *engines, operator=None, between=None):
        self.c = c
        c.operator(trainers=1, per_engine=1, engines=len(engines), **(operator or {}))
        for name, how in (("t0", trainer), *((f"r{i}", e) for i, e in enumerate(engines))):
            args, more = how if isinstance(how, tuple) else (how, {})
            c.agent(name, *args.split(), **more)
        if between:
            between()
        self.t = [c.worker("t0", "trainer", 0, 1, **SIZE)]
        self.r = [engine(c, i, 1, **SIZE)[0] for i in range(len(engines))]
        for w in self.t + self.r:
            w.expect("planned")

    def version(self, v):
        send(self.t, v)
        sent(self.t, v, "Committed")
        updated(self.r, v)

    def status(self, name):
        return json.loads(self.c.get(self.c.agents[name], "/status")[1])

    def peers(self, name):
        """{peer: transport} of what agent `name` gets."""
        return {p["agent"]: p["transport"] for o in self.status(name)["objects"] for p in o["peers"] if p["gets"]}

    def shown(self):
        """The object's status, as the operator has it."""
        return json.loads(self.c.get(self.c.op, "/objects")[1])["items"][0]["status"]

    def degraded(self):
        return next(x for x in self.shown()["conditions"] if x["type"] == "Degraded")

    def end(self):
        quit_all(self.t + self.r)
        for a in self.c.agents.values():
            assert a.stop() == 0, a.drain()
        assert self.c.op.stop() == 0
