# SPDX-License-Identifier: Apache-2.0
"""Kill and stop processes at each phase of a transfer; see what becomes of it.

    kill.py COUNT [SEED] [MODE]     KILLS and KILL_SEED are their defaults

Two trainer pods, engine e0 over two pods, engine e1 in one; each transfer takes some tenths of a
second in each phase.  A victim (coordinator's agent, engine lead's, the one beside it, a relay's, a
rollout worker, a trainer worker, the operator) gets SIGKILL or SIGSTOP when the engine it is aimed
at shows the wanted phase, or, phase Message, an agent is killed by WB_FAULT right after one of its
messages to other agents.  Then: the transfer ends within its deadline, with a sentence when it
failed; nobody ever runs with wrong bytes; what was killed is started again; all workers of an engine
hold the same version, byte for byte, and under AllEngines all engines the same; the next transfer
commits at both engines.
"""
import collections
import json
import os
import random
import re
import signal
import sys
import time

from cluster import Cluster, Failed, SLOW

STEP_S, TRANSFER_S = 4, 6
# Both waits for hooks, the movement, silence until a peer is called down, and a drain.
BOUND_S = (2 * STEP_S + 2 * TRANSFER_S + 10 + 10) * SLOW
MODES = {
    "None/None": {},
    "HostMemory/None": {"staging": {"trainer": "HostMemory"}},
    "None/HostMemory": {"staging": {"rollout": "HostMemory"}},
    "HostMemory/HostMemory": {"staging": {"trainer": "HostMemory", "rollout": "HostMemory"},
                              "commitPolicy": "AllEngines"},
    "None/HostMemory, AllEngines": {"staging": {"rollout": "HostMemory"},
                                    "commitPolicy": "AllEngines"},
}
UNSTAGED = ["Idle", "Asked", "Stopping", "Hooks", "Moving", "Ending", "Message"]
STAGED = ["Idle", "Asked", "Moving", "Staged", "Stopping", "Hooks", "Ending", "Message"]
# So many an agent of this deployment sends in a transfer, about.
MESSAGES = {"coordinator": 5, "trainer agent": 3, "lead": 11, "party agent": 6, "relay": 6}
ROLES = ["coordinator", "trainer agent", "lead", "party agent", "relay", "rollout worker",
         "trainer worker", "operator"]
PODS = {"coordinator": "t0", "trainer agent": "t1", "lead": "r0", "party agent": "r1", "relay": "r2"}
SIZE = {"rows": 512, "cols": 1024, "tensors": 2}


class Job:
    """A deployment under fire."""

    def __init__(self, c, mode, rng):
        self.c, self.mode, self.rng, self.version = c, mode, rng, 0
        self.pods, self.workers = {}, {}
        spec = dict(MODES[mode])
        small = {"bufferSize": "64Mi"}
        self.op_args = dict(trainers=2, per_engine=2, engines=2, trainer=dict(small),
                            rollout=dict(small), transferDeadlineSeconds=TRANSFER_S,
                            engineStepDeadlineSeconds=STEP_S, **spec)
        c.operator(**json.loads(json.dumps(self.op_args)))
        for pod in ("t0", "t1", "r0", "r1", "r2"):
            self.start_agent(pod)
        for group in ("trainer", "e0", "e1"):
            self.start_group(group)
        self.expect_all("planned")

    def start_agent(self, pod, fault=None):
        c = self.c
        if pod in c.agents:
            c.procs.remove(c.agents[pod])
        self.pods[pod] = c.agent(pod, "--rail-rate", "8M",
                                 env={"WB_FAULT": fault} if fault else None)

    def start_group(self, group):
        for w in self.workers.get(group, []):
            self.c.procs.remove(w)
        if group == "trainer":
            self.workers[group] = [self.c.worker(f"t{i}", "trainer", i, 2, **SIZE) for i in (0, 1)]
        else:
            self.n_start = getattr(self, "n_start", 0) + 1
            pods = {"e0": ("r0", "r1"), "e1": ("r2", "r2")}[group]
            self.workers[group] = [
                self.c.worker(p, "rollout", i, 2, engine=group, cut="cols", **SIZE,
                              args=["--hook-ms", "60", "--step-ms", "30", "--collective",
                                    self.c.path(f"steps-{self.n_start}")])
                for i, p in enumerate(pods)]

    def expect_all(self, what):
        for group in self.workers.values():
            for w in group:
                w.expect(what, reject=r" bad")

    def status(self, pod):
        try:
            return json.loads(self.c.get(self.pods[pod], "/status")[1])
        except (OSError, ValueError):
            return {}

    def phase(self, pod, engine):
        for o in self.status(pod).get("objects", []):
            for e in o["engines"]:
                if e["engine"] == engine:
                    return e["phase"]
        return "?"

    def restart_torn(self):
        """WeightsTorn was raised: such an engine ends, and is started again."""
        for group in ("e0", "e1"):
            lines = sum((w.drain_checked() for w in self.workers[group]), [])
            if any(re.match(r"error -4006", line) for line in lines):
                print(f"{group} ends with WeightsTorn and is started again", flush=True)
                for w in self.workers[group]:
                    w.kill()
                self.start_group(group)

    def is_planned(self):
        self.restart_torn()
        seen = set()
        n = 0
        for pod in self.pods:
            s = self.status(pod)
            for o in s.get("objects", []):
                seen.add((o.get("epoch", {}).get("term"), o.get("epoch", {}).get("number"),
                          o.get("epoch", {}).get("active")))
                if o["trainers"] != "Idle" or any(e["phase"] not in ("Idle", "Torn")
                                                  for e in o["engines"]):
                    return False
            up = [w for w in s.get("workers", []) if not w["leaving"]]
            # A trainer that lost its agent comes back with its next call: it has no thread.
            n += len([w for w in up if w["planned"] and w["role"] == "rollout"])
            if not s.get("operator", {}).get("up"):
                return False
        return n == 4 and len(seen) == 1 and all(x[2] for x in seen)

    def is_in_doubt(self):
        """Whole and staged, and a judge is missing: an agent without its trainer worker has no plan.
        A trainer that lost its agent comes back with its next call."""
        return any(not self.status(p).get("workers") for p in ("t0", "t1")) and any(
            e["phase"] == "Staged" for p in ("r0", "r1", "r2")
            for o in self.status(p).get("objects", []) for e in o["engines"])

    def call_again(self):
        self.version += 1
        for w in self.workers["trainer"]:
            w.say(f"send {self.version}")
        for w in self.workers["trainer"]:
            w.expect(r"sent \d+ .*|error .*", BOUND_S, reject=r" bad")

    def settle(self):
        """All are attached and planned, and nothing is under way, twice in a row."""
        try:
            self.c.until("planned", self.is_planned, 3 * SLOW)
        except Failed:
            if self.is_in_doubt():
                self.call_again()
        for _ in range(2):
            try:
                self.c.until("planned again", self.is_planned, BOUND_S)
            except Failed:
                raise Failed("never planned again: " + json.dumps(
                    {p: self.status(p) for p in self.pods})) from None
            time.sleep(0.1)

    def held(self):
        """Engine -> versions that its workers hold, as their agents say."""
        out = {"e0": [], "e1": []}
        for pod in ("r0", "r1", "r2"):
            for w in self.status(pod).get("workers", []):
                out[w["engine"]].append(w["version"])
        return out

    def is_one(self):
        # One that raised WeightsTorn is ended by its user: in its collective the others wait for it.
        self.restart_torn()
        held = self.held()
        if "rollout" not in str(MODES[self.mode]):
            # Written in place: an engine may be a mix, which is no version, until the next one.
            return all(len(v) == 2 and (v[0] == v[1] or min(v) < 0) for v in held.values())
        if any(len(v) != 2 or v[0] != v[1] or v[0] < 0 for v in held.values()):
            return False
        return "AllEngines" not in str(MODES[self.mode]) or held["e0"] == held["e1"]

    def verify(self):
        """Once recovered: one version an engine (AllEngines: one for all), and its bytes."""
        started = 0
        while started != self.n_start:  # one that came back needs a plan before it takes a transfer
            started = self.n_start
            try:
                self.c.until("one version", self.is_one, BOUND_S)
            except Failed:
                raise Failed(f"versions are not one: {self.held()}, " + json.dumps(
                    {p: self.status(p) for p in self.pods})) from None
            if started != self.n_start:
                self.settle()
        for engine, versions in self.held().items():
            if min(versions) < 0:
                continue
            for w in self.workers[engine]:
                w.say(f"check {versions[0]}")
                w.expect(f"check {versions[0]} ok", reject=r"check .* bad")
        return min(min(v) for v in self.held().values())

    def transfer_ends(self, began):
        """What each trainer was told; within the bound."""
        said = []
        for w in self.workers["trainer"]:
            left = BOUND_S - (time.monotonic() - began)
            try:
                m = w.expect(r"(sent \d+ .*|error .*)", max(left, 0.1), reject=r" bad")
            except Failed as e:
                if w.p.poll() is None:
                    raise Failed(f"no end within {BOUND_S} s: {e}") from None
                m = None
            said.append(m[1] if m else "killed")
        return said

    def clean_commit(self):
        self.version += 1
        for group in self.workers.values():
            for w in group:
                w.drain_checked()
        for w in self.workers["trainer"]:
            w.say(f"send {self.version}")
        began = time.monotonic()
        for said in self.transfer_ends(began):
            if "e0=Committed" not in said or "e1=Committed" not in said:
                raise Failed(f"the transfer after the fault: {said}")
        for group in ("e0", "e1"):
            for w in self.workers[group]:
                w.expect(f"update {self.version} ok", reject=r" bad")


def drain_checked(self):
    lines = self.drain()
    for line in lines:
        if re.search(r" bad", line):
            raise Failed(f"{self.name}: {line}")
    return lines


def is_named(said):
    return re.search(r"agent |worker|engine|trainer|transfer", said)


def victim_of(job, role):
    if role == "operator":
        return job.c.op, None
    if role in PODS:
        return job.pods[PODS[role]], None
    group = "trainer" if role == "trainer worker" else job.rng.choice(["e0", "e1"])
    return job.rng.choice(job.workers[group]), group


def aim(job, role, phase, group):
    """Start a transfer, and wait for the phase; the phase that was hit."""
    pod, engine = {"relay": ("r2", "e1"), "party agent": ("r1", "e0")}.get(role, ("r0", "e0"))
    if group == "e1":
        pod, engine = "r2", "e1"
    job.version += 1
    trainers = job.workers["trainer"]
    if phase == "Idle":
        return "Idle"
    trainers[0].say(f"send {job.version}")
    if phase == "Asked":
        time.sleep(0.02)
        return "Asked"
    trainers[1].say(f"send {job.version}")
    end = time.monotonic() + 3
    now = "?"
    while time.monotonic() < end:
        now = job.phase(pod, engine)
        if now == phase:
            break
    return now


def aim_message(job, role):
    """Kill an agent after one of its messages; whether it sent so many."""
    pod, nth = PODS[role], job.rng.randint(1, MESSAGES[role])
    job.pods[pod].kill()
    job.version += 1
    job.start_agent(pod, f"kill=ctrl:version={job.version}:chunk={nth}")
    job.settle()
    for w in job.workers["trainer"]:
        w.drain_checked()
        w.say(f"send {job.version}")
    end = time.monotonic() + 3 * SLOW
    while time.monotonic() < end and job.pods[pod].p.poll() is None:
        time.sleep(0.01)
    return "Message" if job.pods[pod].p.poll() is not None else "after its messages"


def recover(job, role, victim, group, stopped):
    if stopped:
        victim.p.send_signal(signal.SIGCONT)
        return
    if role == "operator":
        job.c.procs.remove(victim)
        job.c.operator(port=victim.port, **json.loads(json.dumps(job.op_args)))
    elif role in PODS:
        job.start_agent(PODS[role])
    else:
        # One rank of a program died: the others end with it, and all come again.
        for w in job.workers[group]:
            w.kill()
        job.start_group(group)


def one(job, role, phase, counts):
    stop = job.rng.random() < 0.4 and phase != "Message"
    pause = job.rng.choice([0.05, 0.3, 0.3, 1.5, 1.5, 11]) if stop else 0
    victim, group = victim_of(job, role)
    if phase == "Message":
        hit = aim_message(job, role)
        victim = job.pods[PODS[role]]
    else:
        hit = aim(job, role, phase, group)
    began = time.monotonic()
    victim.p.send_signal(signal.SIGSTOP if stop else signal.SIGKILL)
    if not stop:
        victim.p.wait()
    if hit == "Asked" and job.workers["trainer"][1].p.poll() is None:
        job.workers["trainer"][1].say(f"send {job.version}")
    time.sleep(pause if stop else job.rng.choice([0, 0.05, 0.5]))
    recover(job, role, victim, group, stop)
    outcome = "none"
    if hit != "Idle":
        said = job.transfer_ends(began) if not (group == "trainer" and not stop) else ["killed"]
        for s in said:
            if s.startswith("error") and not is_named(s):
                raise Failed(f"a failure that names nobody: {s}")
        for w in ("Torn", "Unknown", "Aborted", "Committed"):
            if any(f"={w}" in s for s in said):
                outcome = w
                break
        else:
            outcome = "error" if any(s.startswith("error") for s in said) else "killed"
    took = time.monotonic() - began
    job.settle()
    counts["recovered to"]["newest" if job.verify() == job.version else "older"] += 1
    job.clean_commit()
    if "AllEngines" in str(MODES[job.mode]):
        counts["AllEngines"][hit] += 1
    counts["phase"][hit] += 1
    counts["role"][role] += 1
    counts["mode"][job.mode] += 1
    counts["outcome"][outcome] += 1
    counts["signal"]["SIGSTOP" if stop else "SIGKILL"] += 1
    return hit, outcome, took


def main(count, seed, only):
    counts = collections.defaultdict(collections.Counter)
    rng = random.Random(seed)
    modes = [m for m in MODES if only in (None, m)]
    print(f"seed {seed}", flush=True)
    done = fails = 0
    t0 = time.monotonic()
    for i, mode in enumerate(modes):
        share = count * (i + 1) // len(modes) - count * i // len(modes)
        phases = STAGED if "rollout" in str(MODES[mode]) else UNSTAGED
        while share > 0:
            try:
                with Cluster() as c:
                    job = Job(c, mode, rng)
                    job.clean_commit()
                    while share > 0:
                        share -= 1
                        phase = min(phases, key=lambda p: (counts["aimed " + mode][p],
                                                           rng.random()))
                        role = rng.choice(ROLES if phase != "Message" else list(PODS))
                        counts["aimed " + mode][phase] += 1
                        what = f"{mode}, {role}, {phase}"
                        hit, outcome, took = one(job, role, phase, counts)
                        done += 1
                        print(f"{mode}, {role}, {phase}: hit {hit}, {outcome} after {took:.1f} s",
                              flush=True)
            except (Failed, BrokenPipeError) as e:
                fails += 1
                print(f"FAIL {what}: {e}", flush=True)
                if fails > 5:
                    share = 0
    for k in ("phase", "AllEngines", "role", "mode", "signal", "outcome", "recovered to"):
        print(f"{k}: " + ", ".join(f"{n} {v}" for n, v in sorted(counts[k].items())))
    if count >= 200:
        wanted = set(UNSTAGED + STAGED) if not only else set(phases)
        short = [p for p in wanted if counts["phase"][p] < 5]
        short += [f"{p} with AllEngines" for p in (STAGED if not only else [])
                  if counts["AllEngines"][p] < 5]
        if short:
            print(f"FAIL fewer than 5 hits of {short}")
            fails += 1
    print(f"{done} kills and stops, {(time.monotonic() - t0) / 60:.1f} min")
    print(f"{done} passed, {fails} failed, 0 skipped")
    return 1 if fails else 0


if __name__ == "__main__":
    from cluster import Proc
    Proc.drain_checked = drain_checked
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("KILLS", "200")),
                  int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("KILL_SEED", time.time())),
                  sys.argv[3] if len(sys.argv) > 3 else None))
