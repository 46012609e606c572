# SPDX-License-Identifier: Apache-2.0
"""Something changes while somebody is away: an object made again while no operator runs, and the like, with real
processes.  Afterwards a plan is in force for the object as it is, the next versions are committed, and the status in
the (scripted) API server says so.  Every pair of what changes and who is away is in tests/unit/test_serve_away.c."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
from cluster import BUILD, Cluster, run  # noqa: E402
from kubeapi import Api  # noqa: E402
from test_torn import SIZE, memory  # noqa: E402
from test_transfer import send, updated  # noqa: E402

KEY = "rl/grpo"


def spec(engines=2, **extra):
    return {"trainer": {"workers": 2}, "rollout": {"workersPerEngine": 1, "engines": engines},
            "heartbeatTimeoutSeconds": 5, **extra}


class Job(Cluster):
    """A trainer pod with two workers and engines of one, under an operator that reads a scripted API server."""

    def __enter__(self):
        super().__enter__()
        self.api = Api(self.dir)
        self.port, self.args, self.size = 0, (), {}
        return self

    def __exit__(self, *exc):
        self.api.close()
        return super().__exit__(*exc)

    def plan(self):
        """A plan of this operator is in force at all agents."""
        self.op.expect("PlanActivated", reject=None)

    def serve(self, settle_ms=100):
        """Start an operator, at the port of the one before."""
        ports = self.path("ports")
        if os.path.exists(ports):
            os.unlink(ports)
        self.op = self._start("operator", [
            f"{BUILD}/bin/weightbridge-operator", "--kubeconfig", self.api.config, "--lease", "rl/op", "--psk-file",
            self.key, "--listen", f"127.0.0.1:{self.port}", "--http", "127.0.0.1:0", "--port-file", ports,
            "--settle-ms", str(settle_ms), "--log-format", "text", "--log-level", self.level])
        self.until("ports", lambda: os.path.exists(ports) and open(ports, encoding="utf-8").read().count("\n") == 2)
        with open(ports, encoding="utf-8") as f:
            got = dict(line.split() for line in f)
        self.op.port = self.port = int(got["listen"])
        self.op.http = int(got["http"])
        self.op.expect("objects listed", reject=None)

    def pod(self, name):
        if name not in self.agents:
            self.agent(name, "--object", KEY, *self.args)

    def engine(self, e):
        self.pod(f"r{e}")
        return self.worker(f"r{e}", "rollout", engine=f"e{e}", cut="cols", **self.size)

    def trainers(self):
        self.pod("t0")
        return [self.worker("t0", "trainer", i, 2, **self.size) for i in (0, 1)]

    def dies(self, pod, *workers):
        """All processes of a pod at once."""
        for p in (self.agents.pop(pod), *workers):
            p.kill()

    def start(self, engines=2, **extra):
        self.api.put(KEY, spec(engines, **extra))
        self.serve()
        self.t = self.trainers()
        self.r = [self.engine(e) for e in range(engines)]
        for w in self.t + self.r:
            w.expect("planned")

    def move(self, version, engines=None):
        """One version, which all engines commit.  A call that falls between two plans may fail, and is made again."""
        end = time.monotonic() + 60
        while True:
            send(self.t, version)
            said = [t.expect(rf"^sent {version} .*|^error .*", reject=None).string for t in self.t]
            want = self.r if engines is None else engines
            if all(len(re.findall("=Committed", s)) == len(want) for s in said):
                break
            assert time.monotonic() < end, said
            time.sleep(0.2)
        updated(want, version)

    def forgotten(self):
        """No agent shows the object that was deleted."""
        for a in self.agents.values():
            self.until("one object in its state",
                       lambda a=a: len(json.loads(self.get(a, "/status")[1])["objects"]) == 1)

    def shows(self, version, timeout=None):
        """The status has a plan in force and this version."""
        def look():
            s = self.api.status(KEY)
            c = {x["type"]: x for x in s.get("conditions", [])}
            return (s.get("version") == version and s.get("plan") and "currentTransfer" not in s and
                    c["Ready"]["status"] == "True" and c["UpToDate"]["status"] == "True")
        try:
            self.until(f"version {version} in status", look, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.api.status(KEY)}") from None


def made_again_while_no_operator_runs(is_moving):
    """Versions go on under the plan of the object before, until there is one for this."""
    def test():
        with Job() as c:
            c.start()
            c.move(1)
            c.shows(1)
            c.op.kill()
            c.move(2)  # transfers need no operator
            c.api.put(KEY, spec())
            c.serve(settle_ms=3000 if is_moving else 100)
            v = 3
            if is_moving:  # what agents tell the new operator is of the object before
                for a in c.agents.values():
                    a.expect("operator connected", reject=None)
                    a.expect("operator connected", reject=None)
                for v in range(3, 8):
                    c.move(v)
            c.plan()
            for v in range(v + 1, v + 4):
                c.move(v)
            c.shows(v)
            c.forgotten()
    test.__name__ = f"made_again_while_no_operator_runs: {'versions move' if is_moving else 'quiet'}"
    return test


def made_again_with_engines_that_are_torn():
    """Their workers wait for the next transfer, which needs a plan of the new object."""
    with Job() as c:
        c.args, c.size = ("--rail-rate", "8M"), SIZE
        c.start()
        c.move(1)
        params = [memory(w) for w in c.r]
        before = [p[:] for p in params]
        send(c.t, 2)
        for p, b in zip(params, before):
            c.until("bytes of version 2", lambda p=p, b=b: p[:] != b)
        c.op.kill()
        c.dies("t0", *c.t)
        for e in (0, 1):
            c.agents[f"r{e}"].expect("engine ended transfer=2 .*state=Torn", reject=None)
        c.api.put(KEY, spec())
        c.serve()
        c.t = c.trainers()
        c.plan()
        for v in (3, 4):
            c.move(v)
        c.shows(4)
        c.forgotten()


def made_again_behind_an_api_server_that_is_away():
    """The operator runs on, and versions move; it learns of the object that is there now when it hears again."""
    with Job() as c:
        c.start()
        c.move(1)
        c.shows(1)
        c.plan()
        c.api.away(True)
        c.api.put(KEY, spec())
        for v in (2, 3):
            c.move(v)
        c.api.away(False)
        c.plan()
        for v in (4, 5):
            c.move(v)
        c.shows(5)


def deleted_while_trainers_are_away_and_made_again():
    with Job() as c:
        c.start()
        c.move(1)
        c.shows(1)
        c.plan()
        c.dies("t0", *c.t)
        c.api.delete(KEY)
        for r in ("r0", "r1"):
            c.agents[r].expect("this operator has no object rl/grpo", reject=None)
        c.t = c.trainers()
        c.api.put(KEY, spec())
        c.plan()
        for v in (2, 3):
            c.move(v)
        c.shows(3)


def edited_and_scaled_up_while_an_engine_is_away():
    with Job() as c:
        c.start()
        c.move(1)
        c.shows(1)
        c.dies("r1", c.r.pop())
        c.api.edit(KEY, spec(engines=3, transferDeadlineSeconds=60))
        c.r.append(c.engine(2))
        c.r.append(c.engine(1))
        c.until("three engines", lambda: c.api.status(KEY).get("updatedEngines") == 3)
        for w in c.r[1:]:
            w.expect("update 1 ok")  # from engine 0
        for v in (2, 3):
            c.move(v)
        c.shows(3)


def operator_restarted_while_trainers_are_gone():
    """It has no map of theirs, and so no plan for an engine that joins, until they are back; it says who is missing."""
    with Job() as c:
        c.start()
        c.move(1)
        c.shows(1)
        c.op.kill()
        c.dies("t0", *c.t)
        c.serve()
        c.dies("r1", c.r.pop())
        c.r.append(c.engine(1))
        c.until("who is missing is named", lambda: any(
            x["type"] == "Ready" and x["status"] == "False" and "waiting for 2 of 2 trainer workers" in x["message"]
            for x in c.api.status(KEY)["conditions"]))
        c.t = c.trainers()
        c.plan()
        c.r[1].expect("update 1 ok")
        for v in (2, 3):
            c.move(v)
        c.shows(3)


def made_again_while_one_trainer_waits_for_the_other():
    """It has called send_weights under the plan of the object before, which the other has given up when it calls."""
    with Job() as c:
        c.api.put(KEY, spec())
        c.serve()
        c.pod("t0")
        c.pod("t1")
        c.t = [c.worker(f"t{i}", "trainer", i, 2) for i in (0, 1)]
        c.r = [c.engine(e) for e in (0, 1)]
        for w in c.t + c.r:
            w.expect("planned")
        c.move(1)
        c.op.kill()
        c.api.put(KEY, spec())
        send(c.t[1:], 2)
        c.serve()
        for a in ("t0", "r0", "r1"):
            c.agents[a].expect("plan installed")
            c.agents[a].expect("plan installed", timeout=60)
        send(c.t[:1], 2)
        for t in c.t:
            t.expect("sent 2 .*=Committed .*=Committed", timeout=60)
        updated(c.r, 2)
        c.move(3)
        c.shows(3)


TESTS = [made_again_while_one_trainer_waits_for_the_other, *[made_again_while_no_operator_runs(x) for x in (False, True)], made_again_with_engines_that_are_torn,
         made_again_behind_an_api_server_that_is_away, deleted_while_trainers_are_away_and_made_again,
         edited_and_scaled_up_while_an_engine_is_away, operator_restarted_while_trainers_are_gone]

if __name__ == "__main__":
    run(*[t for t in TESTS if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])], together=3)
