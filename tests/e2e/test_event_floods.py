# SPDX-License-Identifier: Apache-2.0
"""What strangers and other tenants can make the operator write and tell: events and status of a victim in another
namespace, on an API server that is not there.

How long somebody waits is counted in what was done for others meanwhile, and not in seconds: those are printed."""
import json
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
from fakeapi import WELCOME, WORKERS, FakeApi, Operator, pod, say, transfer, until  # noqa: E402

SECONDS = float(os.environ.get("SECONDS", "6"))  # of each attack
LOST = int(os.environ.get("AGENTS", "1000"))  # vanish at once
BEHIND = 300  # statuses of another tenant that wait
TURN = 60  # of those that go before the victim's: two, and some in the 20 ms until the operator has looked


def token_of(api, ns, name):
    return f"pod {ns} {name} {api.get('pods', ns, name)['metadata']['uid']}"


def conditions(api, ns, name):
    return {c["type"]: c for c in api.status(ns, name).get("conditions", [])}


def attack(op, claims, seconds, threads=4):
    """These claims over and over; how many were made."""
    count = [0] * threads

    def run(k):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for c in claims(count[k]):
                _, _, s = op.hello(*c)
                s.close()
                count[k] += 1
    all_ = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for t in all_:
        t.start()
    for t in all_:
        t.join()
    return sum(count)


def refusals(op):
    return sum(line.count("agent refused") for line in op.text().splitlines())


def what_is_there_is_not_told(api, op):
    """Who proves nothing, or that he is of another namespace, hears of an object the same whether it is there or not."""
    for token in ("nonsense", "", token_of(api, "evil", "evil-0")):
        said = []
        for name in ("v", "x"):
            kind, body, s = op.hello(token, "train-0", f"victim/{name}")
            s.close()
            said.append((kind, json.dumps(body).replace(f"victim/{name}", "victim/NAME")))
        assert said[0] == said[1] and said[0][0] != WELCOME, said


def without_a_token(api, op):
    """Two refusals that alternate, in the name of a pod that the victim waits for: a count and a few lines."""
    before, status, lines, start = api.events(), api.status("victim", "v"), refusals(op), time.monotonic()
    foreign = token_of(api, "evil", "evil-0")
    n = attack(op, lambda _: [("nonsense", "train-0", "victim/v"), (foreign, "train-0", "victim/v")], SECONDS)
    counted = op.metric("wb_claims_unproved_total")
    lines = refusals(op) - lines
    print(f"no token: {n} claims in {SECONDS:.0f} s, {len(api.events()) - len(before)} events, {lines} lines of log")
    assert api.events() == before
    assert api.status("victim", "v") == status
    assert counted == n, (counted, n)
    assert op.metric('wb_claims_unproved_total{reason="namespace"}') == n / 2
    assert lines <= 20 + (time.monotonic() - start) / 3 + 1, lines


def with_one_token(api, op):
    """One token of a pod and random names: two Events, at its own object and its own pod."""
    token = token_of(api, "evil", "evil-0")
    start, lines = time.monotonic(), refusals(op)
    n = attack(op, lambda _: [(token, "agent-" + os.urandom(6).hex(), "evil/e")], SECONDS)
    events, writes, took = api.events("evil"), api.written("/events", start), time.monotonic() - start
    lines = refusals(op) - lines
    print(f"one token: {n} claims in {SECONDS:.0f} s, {len(events)} events, {len(writes)} writes of them, {lines} lines "
          "of log")
    assert lines <= 20 + (time.monotonic() - start) / 3 + 1, lines  # each is another sentence
    assert {e[:3] for e in events} == {("WeightTransfer", "e", "AuthenticationRejected"),
                                       ("Pod", "evil-0", "AuthenticationRejected")}, events
    assert len(events) == 2 and len(writes) <= 2 * (2 + took / 5), (events, len(writes))
    assert not api.events("victim")
    until("the count is there", lambda: max(e[3] for e in api.events("evil")) == n, 90)


def change_victim(api, say):
    """Until a status says of the victim what has become so: seconds, and writes for others meanwhile."""
    start = time.monotonic()
    api.put("weighttransfers", transfer("victim", "v", suspend=say))
    until("the victim's status", lambda: is_suspended(api.status("victim", "v")) == say)
    return time.monotonic() - start, len(api.written("/namespaces/evil/", start))


def is_suspended(status):
    return {"type": "Ready", "reason": "Suspended"} in [{k: c.get(k) for k in ("type", "reason")} for c in status["conditions"]]


def lost_events(api):
    return [e for e in api.events("evil") if e[2] == "AgentLost"]


def agents_lost(api, op):
    """A thousand agents of a tenant vanish at once: a few events, its status says so at once, nobody else's waits."""
    held, start = [], time.monotonic()
    api.put("weighttransfers", transfer("evil", "e", heartbeatTimeoutSeconds=600))  # until all are there
    for i in range(LOST):
        api.put("pods", pod("evil", f"lost-{i}", "e"))
    for i in range(LOST):
        token = token_of(api, "evil", f"lost-{i}")
        got, body, s = op.hello(token, f"lost-{i}", "evil/e")
        assert got == WELCOME, body
        say(s, WORKERS, {"object": "evil/e", "workers": []})
        held.append(s)
    until("all are counted in", lambda: api.status("evil", "e").get("connectedAgents") == LOST)
    came_s = time.monotonic() - start
    assert not lost_events(api)
    new = api.put("weighttransfers", transfer("evil", "e", heartbeatTimeoutSeconds=5))["metadata"]["generation"]
    until("it counts from now on", lambda: api.status("evil", "e").get("observedGeneration") == new)
    start = time.monotonic()
    for s in held:
        s.close()
    until("the status is true", lambda: api.status("evil", "e")["connectedAgents"] == 0)
    true_s, before = time.monotonic() - start, len(api.written("/namespaces/evil/events", start))
    until("one is said to be lost", lambda: lost_events(api))
    took = [change_victim(api, k % 2 == 0) for k in range(6)]
    until("all counted", lambda: sum(e[3] for e in lost_events(api)) == LOST, 120)
    lost = lost_events(api)
    print(f"{LOST} agents, which came in {came_s:.1f} s, lost: status true after {1000 * true_s:.0f} ms, {len(lost)} events, "
          f"{len(api.written('/events', start))} writes until all are counted {time.monotonic() - start:.1f} s later, the "
          f"victim's status after {1000 * max(took)[0]:.0f} ms, {max(n for _, n in took)} writes for others before it")
    assert before <= 9 and true_s <= max(2, came_s), (before, true_s, came_s)
    assert 0 < len(lost) <= 9, lost
    assert max(n for _, n in took) <= 40, took


class Gate:
    """Statuses of the attacker wait here, and go on one by one."""

    def __init__(self, api):
        self.api, self.open, self.tickets, self.waiting = api, threading.Event(), threading.Semaphore(0), 0
        self.lock = threading.Lock()

    def __enter__(self):
        self.api.hold = self.hold
        return self

    def __exit__(self, *exc):
        self.open.set()
        self.tickets.release(BEHIND)

    def hold(self, method, path):
        if "/evil/" not in path or not path.endswith("/status") or self.open.is_set():
            return
        with self.lock:
            self.waiting += 1
        self.tickets.acquire()
        with self.lock:
            self.waiting -= 1

    def written(self, since):
        return len([w for w in self.api.written("/status", since) if "/evil/" in w[2]])


def one_by_one(api, op, gate, say):
    """How many of the attacker's statuses go before the victim's, of which the operator knows that it has changed and
    which was written a second ago: before that nobody's would be written."""
    begun = time.monotonic()
    until("its last was a second ago", lambda: not api.written("/victim/weighttransfers/v/status", time.monotonic() - 1.1))
    api.put("weighttransfers", transfer("victim", "v", suspend=say))
    until("the operator knows", lambda: is_suspended(json.loads(op.page("/status?object=victim/v"))["status"]) == say)

    def is_written():
        return is_suspended(api.status("victim", "v")) == say
    n = 0
    while not is_written():
        done = gate.written(begun)
        gate.tickets.release()
        n += 1
        until("one more is written", lambda d=done: gate.written(begun) > d or is_written())
    return n


def statuses_wait(api, op):
    """A tenant whose statuses all change at once: the victim's waits for one turn."""
    names = [f"many-{i}" for i in range(BEHIND)]
    for n in names:
        api.put("weighttransfers", transfer("evil", n))
    until("all have a status", lambda: all(api.status("evil", n) for n in names), 120)
    with Gate(api) as gate:
        for n in names:
            api.put("weighttransfers", transfer("evil", n, suspend=True))
        until("they are behind", lambda: gate.waiting > 1)
        went = [one_by_one(api, op, gate, k % 2 == 0) for k in range(5)]
        behind = sum(not is_suspended(api.status("evil", n)) for n in names)
    print(f"{BEHIND} statuses of a tenant change at once: before the victim's {', '.join(map(str, went))} of them are written, "
          f"{behind} are left")
    assert max(went) <= TURN and behind, (went, behind)


def refused_events(api, op):
    """An API server that takes no events costs no status."""
    refused = []

    def refuse(_, path, __):
        if "/events" in path:
            refused.append(path)
            return 500, "no"
        return None
    api.refuse = refuse
    change_victim(api, True)
    n = len(refused)
    op.hello(token_of(api, "evil", "evil-0"), "somebody", "evil/e")[2].close()
    until("counted", lambda: op.metric("wb_events_left_out_total"), 120)
    api.refuse = lambda method, path, body: None
    print(f"{n} events were refused before the victim's status was written")
    assert n <= 9, n


def main():
    with tempfile.TemporaryDirectory() as d, FakeApi(d) as api:
        for ns, name, pod_ in (("victim", "v", "train-0"), ("evil", "e", "evil-0")):
            api.put("weighttransfers", transfer(ns, name, heartbeatTimeoutSeconds=5))
            api.put("pods", pod(ns, pod_, name))
        with Operator(api) as op:
            until("statuses", lambda: all(conditions(api, *o).get("Ready", {}).get("reason") == "WaitingForAgents"
                                          for o in (("victim", "v"), ("evil", "e"))))
            without_a_token(api, op)
            with_one_token(api, op)
            agents_lost(api, op)
            statuses_wait(api, op)
            refused_events(api, op)
            what_is_there_is_not_told(api, op)


if __name__ == "__main__":
    main()
