# SPDX-License-Identifier: Apache-2.0
"""The operator on a real API server: status that tells the truth, leaders that follow each other, agents that go on."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, HttpError, free_ports, patience, wait_for  # noqa: E402
from op import API, Operator, Worker, conditions, status, transfer_object  # noqa: E402

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/weightbridge-operator"


def cond(c, type_, name="t"):
    x = conditions(status(c, name)).get(type_, {})
    return x.get("status"), x.get("reason")


def version_of(c, name="t"):
    return c.get(f"{API}/{name}")["metadata"]["resourceVersion"]


def first_status(c, op):
    """An object that comes has all conditions at once, each with the generation it answers."""
    c.kubectl("apply", "-f", "-", stdin=transfer_object())
    wait_for(lambda: len(conditions(status(c))) == 6, 20)
    st = status(c)
    assert set(conditions(st)) == {"Ready", "MembersConnected", "Planned", "UpToDate", "Degraded", "Accepted"}
    assert st["observedGeneration"] == 1
    assert all(x["observedGeneration"] == 1 and x["reason"] and x["lastTransitionTime"] for x in st["conditions"])
    assert "phase" not in st and "finalizers" not in c.get(API + "/t")["metadata"]
    managers = {m["manager"]: m for m in c.get(API + "/t")["metadata"]["managedFields"]}
    m = managers["weightbridge-operator"]
    assert m["operation"] == "Apply" and m["subresource"] == "status" and "f:spec" not in m["fieldsV1"]
    assert cond(c, "Ready")[0] == "False"
    # Nothing changes: nothing is written.
    before = version_of(c), op.metric('wb_kube_writes_total{what="status"}')
    time.sleep(2.5)
    assert (version_of(c), op.metric('wb_kube_writes_total{what="status"}')) == before


def spec_changes(c):
    c.kubectl("patch", "wt", "t", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for(lambda: cond(c, "Ready") == ("False", "Suspended"), 20)
    st = status(c)
    assert st["observedGeneration"] == 2 and conditions(st)["Ready"]["observedGeneration"] == 2
    c.kubectl("patch", "wt", "t", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    wait_for(lambda: cond(c, "Ready")[1] == "WaitingForAgents" and status(c)["observedGeneration"] == 3, 20)


def somebody_edits_status(c):
    c.kubectl("patch", "wt", "t", "--subresource=status", "--type=merge", "-p",
              '{"status":{"version":77,"conditions":[]}}')
    wait_for(lambda: len(conditions(status(c))) == 6, 20)
    # A field that the operator does not set stays with who set it.
    assert status(c).get("version") == 77
    c.kubectl("patch", "wt", "t", "--subresource=status", "--type=merge", "-p", '{"status":{"version":null}}')


def send(c, workers, version):
    workers[0].say(f"send {version}")
    line = workers[0].until(f"sent {version}")
    assert "Committed" in line, line
    for w in workers[1:]:
        w.until(f"update {version} ok")
    wait_for(lambda: status(c).get("version") == version, 20)


def run_versions(c, port):
    workers = [Worker(c, port, "train", "trainer", 0, 1)]
    workers += [Worker(c, port, f"roll-{i}", "rollout", 0, 1, f"e{i}") for i in range(2)]
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=30s")  # before the first transfer
    assert cond(c, "UpToDate") == ("False", "NoTransferYet")
    for v in (1, 2, 3):
        send(c, workers, v)
    wait_for(lambda: cond(c, "UpToDate") == ("True", "AllEnginesAtVersion"), 20)
    row = c.kubectl("get", "wt", "t", "--no-headers").split()
    assert row[:5] == ["t", "True", "3", "2", "2"], row
    st = status(c)
    assert st["lastTransfer"]["result"] == "Succeeded" and len(st["recentTransfers"]) == 3
    assert {e["name"]: e["version"] for e in st["engines"]} == {"e0": 3, "e1": 3}
    return workers


def events(c):
    wait_for(lambda: "TransferCompleted" in c.kubectl("describe", "wt", "t"), 20)
    items = c.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    ours = [e for e in items if e["reportingController"] == "weightbridge.io/operator"]
    reasons = [e["reason"] for e in ours]
    assert "PlanActivated" in reasons and reasons.count("TransferCompleted") == 1, reasons  # three versions, one event
    uid = c.get(API + "/t")["metadata"]["uid"]
    assert all(e["regarding"]["uid"] == uid and e["action"] and len(e["note"]) <= 1024 for e in ours)


class Journal:
    """Every state of the status, by a watch of our own."""

    def __init__(self, c):
        self.seen = []
        import threading
        import urllib.request

        def follow():
            rq = urllib.request.Request(f"{c.url()}{API}?watch=1&timeoutSeconds=600")
            with urllib.request.urlopen(rq, context=c.context()) as r:
                for line in r:
                    o = json.loads(line)["object"]
                    self.seen.append((time.monotonic(), o.get("status", {})))
        self.thread = threading.Thread(target=lambda: self.quiet(follow), daemon=True)
        self.thread.start()

    @staticmethod
    def quiet(fn):
        try:
            fn()
        except OSError:
            pass

    def check(self):
        """VERSION was never blank again, status.transfer never fell, no two writes within a second."""
        top = 0
        blank = [s for _, s in self.seen if top and "version" not in s]
        for _, s in self.seen:
            assert s.get("transfer", 0) >= top, (s.get("transfer"), top)
            top = max(top, s.get("transfer", 0))
            assert not top or "version" in s, s
        assert not blank
        gaps = [b[0] - a[0] for a, b in zip(self.seen, self.seen[1:])]
        print(f"{len(self.seen)} states seen, smallest gap {min(gaps, default=9):.2f} s")


def leader_killed(c, op, workers, port):
    """kill -9 of the leader: agents go on, another adopts the plan, the status does not blink."""
    journal = Journal(c)
    before = status(c)
    holder = c.get(LEASE)["spec"]
    standby = Operator(c)
    wait_for(lambda: "leads" in standby.text() or standby.is_ready(), 20)
    assert standby.is_ready() and standby.metric("wb_leader") == 0  # ready, though it does not lead
    op.stop(signal.SIGKILL)
    # Transfers do not need it.
    workers[0].say("send 4")
    workers[0].until("sent 4")
    for w in workers[1:]:
        w.until("update 4 ok")
    t = time.monotonic()
    wait_for(lambda: standby.metric("wb_leader") == 1, 40)
    took = time.monotonic() - t
    assert c.get(LEASE)["spec"]["leaseTransitions"] == holder["leaseTransitions"] + 1
    standby.stop(signal.SIGTERM)
    new = Operator(c, port)
    wait_for(lambda: status(c).get("version") == 4, 60)
    print(f"standby led {took:.1f} s after the kill; agents back and version 4 seen "
          f"{time.monotonic() - t:.1f} s after the kill")
    send(c, workers, 5)
    st = status(c)
    assert st["plan"]["digest"] == before["plan"]["digest"] and st["plan"]["number"] == before["plan"]["number"]
    assert "PlanAdopted" in new.text(), new.text()[-2000:]
    assert st["recentTransfers"][-1]["version"] == 1  # the history is still there
    journal.check()
    return new


def clean_stop(c, op, port):
    """SIGTERM gives the lease up: the next leads at once."""
    assert op.stop(signal.SIGTERM) == 0, op.text()[-2000:]
    assert c.get(LEASE)["spec"]["holderIdentity"] == ""
    t = time.monotonic()
    new = Operator(c, port)
    wait_for(lambda: new.metric("wb_leader") == 1, 20)
    assert time.monotonic() - t < 10  # one that was not given up is held for 15 s
    return new


def lease_deleted(c, op):
    c.raw(LEASE, "DELETE")
    wait_for(lambda: "metadata" in try_get(c, LEASE), 20)
    assert op.p.poll() is None and op.metric("wb_leader") == 1


def try_get(c, path):
    try:
        return c.get(path)
    except Exception:
        return {}


def server_restarts(c, op, workers):
    """kube-apiserver goes and comes: the operator stays, or ends when it could not renew; the status catches up."""
    c.stop_api()
    workers[0].say("send 6")
    workers[0].until("sent 6")
    for w in workers[1:]:
        w.until("update 6 ok")
    c.start_api()
    c.compact()
    wait_for(lambda: status(c).get("version") == 6, 60)
    assert op.p.poll() is None, op.text()[-2000:]


def made_again(c, workers):
    """Delete and recreate under live agents: another object, which starts from nothing and gets ready again."""
    uid = c.get(API + "/t")["metadata"]["uid"]
    c.kubectl("delete", "wt", "t")
    c.kubectl("apply", "-f", "-", stdin=transfer_object())
    assert c.get(API + "/t")["metadata"]["uid"] != uid
    c.kubectl("wait", "--for=condition=Ready", "wt/t", "--timeout=60s")
    workers[0].say("send 7")
    workers[0].until("sent 7")
    wait_for(lambda: status(c).get("version") == 7, 30)


def redirected(c):
    """An agent that asks a standby is sent to the leader, and its engine is fed the current version."""
    standby = Operator(c)
    wait_for(standby.is_ready, 20)
    wait_for(lambda: c.get(LEASE)["metadata"]["annotations"]["weightbridge.io/address"], 10)
    w = Worker(c, standby.ports["listen"], "late", "rollout", 0, 1, "e9")
    wait_for(lambda: {e["name"]: e.get("version") for e in status(c)["engines"]}.get("e9") == 7, 30)
    assert "it is a standby; the leader is at 127.0.0.1" in w.agent.text()
    assert standby.stop() == 0
    return w


def lost_lease(c, op):
    """Another holder in the lease: this one ends."""
    def taken():
        lease = c.get(LEASE)
        lease["spec"]["holderIdentity"] = "somebody-else"
        try:
            return c.raw(LEASE, "PUT", lease)
        except HttpError as e:
            if e.code != 409:  # it was renewed meanwhile
                raise
            return None

    wait_for(taken, 10)
    assert op.p.wait(timeout=patience(30)) == 1
    assert "another replica holds the lease" in op.text()


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        port = free_ports(1)[0]
        op = Operator(c, port)
        wait_for(op.is_ready, 20)
        first_status(c, op)
        spec_changes(c)
        somebody_edits_status(c)
        workers = run_versions(c, port)
        events(c)
        op = leader_killed(c, op, workers, port)
        op = clean_stop(c, op, port)
        lease_deleted(c, op)
        server_restarts(c, op, workers)
        made_again(c, workers)
        workers.append(redirected(c))
        lost_lease(c, op)
        for w in workers:
            w.end()


if __name__ == "__main__":
    t = time.monotonic()
    main()
    print(f"{time.monotonic() - t:.1f} s")
