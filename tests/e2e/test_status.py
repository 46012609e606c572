# SPDX-License-Identifier: Apache-2.0
"""Which spec a status answers, who vouches for it and since when, and which pod is the cause of what it says, on an API
server that is not there: it takes every spec, as one with an older resource does."""
import calendar
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
from fakeapi import WELCOME, WORKERS, FakeApi, Operator, pod, say, transfer, until  # noqa: E402


def conditions(st):
    return {c["type"]: c for c in st.get("conditions", [])}


def is_(st, type_):
    c = conditions(st).get(type_, {})
    return c.get("status"), c.get("reason"), c.get("observedGeneration")


def clock(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def stamp(seconds_ago):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds_ago))


def refused_at_creation(api):
    """It says so, and that nothing is served; mended, it is as any other."""
    api.put("weighttransfers", transfer("n", "bad", commitPolicy="AllEngines"))
    st = until("a status", lambda: api.status("n", "bad"))
    assert is_(st, "Accepted") == ("False", "SpecRefused", 1), st
    assert is_(st, "Ready") == ("False", "SpecRefused", 1), st
    assert "AllEngines needs staging.rollout HostMemory" in conditions(st)["Accepted"]["message"], st
    assert "observedGeneration" not in st, st
    api.put("weighttransfers", transfer("n", "bad"))
    until("accepted", lambda: is_(api.status("n", "bad"), "Accepted") == ("True", "SpecAccepted", 2))
    st = api.status("n", "bad")
    assert st["observedGeneration"] == 2 and len(st["conditions"]) == 6, st
    assert conditions(st)["Ready"]["reason"] != "SpecRefused"


def refused_edit(api):
    """The spec before stays in force, and the status goes on answering that one."""
    st = until("a status", lambda: api.status("n", "t"))
    assert is_(st, "Accepted") == ("True", "SpecAccepted", 1) and st["observedGeneration"] == 1, st
    since = conditions(st)["Ready"]["lastTransitionTime"]
    api.put("weighttransfers", transfer("n", "t", overlap="Supersede", suspend=True))
    until("refused", lambda: is_(api.status("n", "t"), "Accepted") == ("False", "SpecRefused", 2))
    st = api.status("n", "t")
    assert st["observedGeneration"] == 1, st
    assert all(c["observedGeneration"] == 1 for t, c in conditions(st).items() if t != "Accepted"), st
    assert conditions(st)["Ready"]["reason"] == "WaitingForPods", st  # not suspended: that spec is not in force
    assert conditions(st)["Ready"]["lastTransitionTime"] == since
    assert [e[2:4] for e in api.events("n") if e[1] == "t" and e[2] == "SpecRefused"] == [("SpecRefused", 1)]
    api.put("weighttransfers", transfer("n", "t", suspend=True))
    until("accepted", lambda: is_(api.status("n", "t"), "Accepted") == ("True", "SpecAccepted", 3))
    assert api.status("n", "t")["observedGeneration"] == 3
    assert is_(api.status("n", "t"), "Ready") == ("False", "Suspended", 3)


def somebody_vouches(api, op):
    st = api.status("n", "t")
    assert st["operator"]["name"].startswith("op-1") and abs(clock(st["operator"]["renewTime"]) - time.time()) < 60, st


def pod_that_is_the_cause(api, op):
    """What the agent of a pod, known by its token, is refused for is told at that pod too."""
    api.put("weighttransfers", transfer("n", "roles"))
    for name in ("r-0", "r-1"):
        api.put("pods", pod("n", name, "roles", "trainer"))
    held = []
    for name in ("r-0", "r-1"):
        token = f"pod n {name} {api.get('pods', 'n', name)['metadata']['uid']}"
        # The operator may not know the pod yet.
        until("let in", lambda n=name, t=token: held.append(op.hello(t, n, "n/roles")) or held[-1][0] == WELCOME)
    say(held[-1][2], WORKERS, {"object": "n/roles", "workers": [
        {"id": 1, "name": "r-1/1", "role": 2, "engine": "e", "rank": -1, "mem_kind": 1, "version": -1,
         **{k: "xxh128:" + "1" * 32 for k in ("manifest", "map")}}]})
    until("events", lambda: {("WeightTransfer", "roles", "RoleMismatch"), ("Pod", "r-1", "RoleMismatch")}
          <= {e[:3] for e in api.events("n")})
    assert ("Pod", "r-0", "RoleMismatch") not in {e[:3] for e in api.events("n")}
    until("the reason", lambda: conditions(api.status("n", "roles"))["Ready"]["reason"] == "RoleMismatch")
    for _, _, s in held:
        s.close()


def pod_without_a_node(api):
    """The scheduler's words are the reason, until the pod has a node."""
    why = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    api.put("weighttransfers", transfer("n", "wide"))
    wait = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    api.put("pods", pod("n", "w-0", "wide", phase="Pending", conditions=[wait]))
    until("the reason", lambda: is_(api.status("n", "wide"), "Ready")[1] == "PodUnschedulable")
    text = conditions(api.status("n", "wide"))["MembersConnected"]["message"]
    assert f"pod w-0 has no node: Unschedulable: {why}" in text, text
    api.put("pods", pod("n", "w-0", "wide", phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}]))
    until("it has one", lambda: is_(api.status("n", "wide"), "Ready")[1] == "WaitingForAgents")


def stored(api, name, renewed_s_ago):
    """As an operator before has left it, of the spec before the one that is there now."""
    since = "2026-01-01T00:00:00Z"
    obj = api.put("weighttransfers", transfer("n", name, suspend=True))
    obj = api.put("weighttransfers", transfer("n", name))
    st = {"observedGeneration": 1, "operator": {"name": "before", "renewTime": stamp(renewed_s_ago)},
          "plan": {"term": 1, "number": 1, "digest": "xxh128:" + "0" * 32}, "engines": [],
          "conditions": [{"type": t, "status": "True", "reason": "Idle", "message": "", "observedGeneration": 1,
                          "lastTransitionTime": since} for t in ("Ready", "MembersConnected", "Planned", "UpToDate")]
          + [{"type": "Accepted", "status": "True", "reason": "SpecAccepted", "message": "", "observedGeneration": 2,
              "lastTransitionTime": since}]}
    api.put("weighttransfers", {**obj, "status": st})
    return st


def new_leader(api, op):
    """What it has only read keeps the generation that it was written for; it vouches for that in its turn, at once only
    where nobody has for long."""
    assert op.is_ready()
    until("confirmed", lambda: api.status("n", "old")["operator"]["name"].startswith("op-2"))
    st = api.status("n", "old")
    assert st["observedGeneration"] == 1, st
    assert all(c["observedGeneration"] == 1 for t, c in conditions(st).items() if t != "Accepted"), st
    assert is_(st, "Accepted") == ("True", "SpecAccepted", 2), st
    assert conditions(st)["Accepted"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert api.status("n", "recent")["operator"]["name"] == "before", api.status("n", "recent")
    assert not api.written("/recent/status")
    # Once it knows better, its status answers the spec of now.
    until("its own", lambda: api.status("n", "old").get("observedGeneration") == 2, 90)
    assert is_(api.status("n", "old"), "Ready")[0::2] == ("False", 2)


def edited(api, name, st, **spec):
    """An object whose first spec is in force, suspended, and which was edited since."""
    obj = api.put("weighttransfers", transfer("n", name, suspend=True))
    obj = api.put("weighttransfers", transfer("n", name, **spec))
    api.put("weighttransfers", {**obj, "status": {**st, "observedGeneration": 1}})


def new_leader_of_a_refused_edit(api, names):
    """The spec that was in force stays so, whoever leads: nothing else says what it was."""
    for name in names:
        until("refused", lambda n=name: is_(api.status("n", n), "Accepted") == ("False", "SpecRefused", 2), 90)
        until("told", lambda n=name: api.status("n", n)["operator"]["name"].startswith("op-2"))
        st = api.status("n", name)
        assert st["observedGeneration"] == 1 and st["acceptedSpec"]["suspend"] is True, st
        until("the spec before", lambda n=name: is_(api.status("n", n), "Ready") == ("False", "Suspended", 1))
        api.put("weighttransfers", transfer("n", name))
        until("accepted", lambda n=name: is_(api.status("n", n), "Accepted") == ("True", "SpecAccepted", 3))
        assert api.status("n", name)["acceptedSpec"]["suspend"] is False


def older_resource(api):
    """A resource that does not know the new fields gets a status without them, rather than none."""
    def refuse(_method, path, body):
        if path.endswith("/status") and "operator" in body["status"]:
            return 500, "failed to create typed patch object: .status.operator: field not declared in schema"
        return None
    api.refuse = refuse
    api.put("weighttransfers", transfer("n", "late"))
    st = until("a status", lambda: api.status("n", "late"))
    assert "operator" not in st and is_(st, "Accepted")[0] == "True", st
    api.refuse = lambda method, path, body: None


def event_whose_answer_was_lost(api, op):
    """It was written all the same: it goes on being counted."""
    lost = []
    api.lose = lambda method, path: method == "POST" and path.endswith("/n/events") and not lost and not lost.append(path)
    for i in range(2):
        api.put("weighttransfers", transfer("n", "lost", wrong=i))
        until("lost once", lambda: lost)
        until("counted", lambda i=i: [e[2:4] for e in api.events("n") if e[1] == "lost"] == [("SpecRefused", 1 + i)])
    assert op.metric("wb_events_left_out_total") == 1
    api.lose = lambda method, path: False


def config_map_that_is_filled(api):
    """What is longer than any authority is not kept, and goes; its namespace is named."""
    def ca():
        return (api.get("configmaps", "n", "weightbridge-ca") or {}).get("data", {}).get("ca.crt")
    api.put("weighttransfers", transfer("n", "t"))
    with open(api.cert[0], encoding="utf-8") as f:
        authority = f.read()
    with Operator(api, "--tls-ca", api.cert[0]) as op:
        until("written", lambda: ca() == authority)
        filled = api.get("configmaps", "n", "weightbridge-ca")
        for text in ("x" * 70000, "y" * 70001):
            api.put("configmaps", {**filled, "data": {"ca.crt": text}})
            until("written again", lambda: ca() == authority)
        said = [line for line in op.text().splitlines() if "a ConfigMap holds more than an authority" in line]
        assert len(said) == 1 and "70000" in said[0] and '"n"' in said[0], said


def config_map_with_false_owners(api):
    """More of them than are kept, before ours: it is written once, as is seen by what the API server says it wrote."""
    def writes():
        return len(api.written("/n/configmaps/weightbridge-ca"))

    def owned():
        return [o["name"] for o in (api.get("configmaps", "n", "weightbridge-ca") or {})
                .get("metadata", {}).get("ownerReferences", [])]

    def renewed(times):
        """The lease, every few seconds."""
        for _ in range(times):
            was = api.lease["metadata"]["resourceVersion"]
            until("the lease is renewed", lambda was=was: api.lease["metadata"]["resourceVersion"] != was)
    false = [{"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", "name": f"f{i}", "uid": f"false-{i}"}
             for i in range(64)]
    api.put("weighttransfers", transfer("n", "t"))
    with Operator(api, "--tls-ca", api.cert[0]):
        until("written", lambda: owned() == ["t"])
        filled = api.get("configmaps", "n", "weightbridge-ca")
        api.put("configmaps", {**filled, "metadata": {**filled["metadata"], "ownerReferences": false}})
        until("owned again", lambda: "t" in owned())
        renewed(2)  # by then it has seen what it wrote
        before = writes()
        renewed(2)  # written again and again it would be twice a second
        assert writes() == before, writes() - before
        api.put("weighttransfers", transfer("n", "second"))
        until("the second one owns it too", lambda: "second" in owned())


def main():
    with tempfile.TemporaryDirectory() as d:
        with FakeApi(d) as api:
            api.put("weighttransfers", transfer("n", "t"))
            with Operator(api) as op:
                refused_edit(api)
                refused_at_creation(api)
                somebody_vouches(api, op)
                left = api.status("n", "t")
                pod_that_is_the_cause(api, op)
                pod_without_a_node(api)
                event_whose_answer_was_lost(api, op)
        with FakeApi(d) as api:
            stored(api, "old", 1000)
            stored(api, "recent", 5)
            edited(api, "away", left, commitPolicy="AllEngines")
            edited(api, "fixed", left, rollout={"workersPerEngine": 1, "engineLabelKey": "other/label"})
            with Operator(api) as op:
                new_leader(api, op)
                new_leader_of_a_refused_edit(api, ("away", "fixed"))
                older_resource(api)
                assert "apply crds/weighttransfer.yaml" in op.text()
        with FakeApi(d) as api:
            config_map_that_is_filled(api)
        with FakeApi(d) as api:
            config_map_with_false_owners(api)


if __name__ == "__main__":
    main()
