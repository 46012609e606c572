# SPDX-License-Identifier: Apache-2.0
"""The traces of real transfers are what the JSON trace event format says, so that any viewer opens
them: wbctl trace (all workers, in the operator's clock) and an agent's own /trace.

With TRACE_PROCESSOR=PATH (Perfetto's trace_processor_shell) they are loaded by it as well.
"""
import collections
import json
import math
import os
import subprocess

from cluster import BUILD, Cluster, run

PHASES = set("XBEiICbnestfMNODPRcv(")
METADATA = {"process_name": "name", "thread_name": "name", "process_labels": "labels",
            "process_sort_index": "sort_index", "thread_sort_index": "sort_index"}


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def is_id(x):
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 1 << 31


def check_event(e):
    """One event by itself."""
    assert isinstance(e, dict) and isinstance(e.get("name"), str) and e["name"], e
    assert isinstance(e.get("ph"), str) and len(e["ph"]) == 1 and e["ph"] in PHASES, e
    assert is_id(e.get("pid")), e
    assert isinstance(e.get("args", {}), dict), e
    if e["ph"] == "M":
        value = e["args"].get(METADATA[e["name"]])
        assert isinstance(value, int if "index" in e["name"] else str) and value != "", e
        assert e["name"].startswith("process") or is_id(e.get("tid")), e
        return
    assert is_id(e.get("tid")) and is_number(e.get("ts")) and e["ts"] >= 0, e
    assert isinstance(e.get("cat"), str) and e["cat"], e
    if e["ph"] == "X":
        assert is_number(e.get("dur")) and e["dur"] >= 0, e
    if e["ph"] in "iI":
        assert e.get("s", "t") in ("g", "p", "t"), e
    if e["ph"] in "stfbne":
        assert "id" in e or "id2" in e, e


def check_nesting(events):
    """Spans of a row lie in each other or apart; begins have ends."""
    rows, stack = collections.defaultdict(list), collections.defaultdict(list)
    for e in events:
        row = e["pid"], e.get("tid")
        if e["ph"] == "X":
            rows[row].append((e["ts"], -e["dur"], e))
        elif e["ph"] == "B":
            stack[row].append(e)
        elif e["ph"] == "E":
            assert stack[row] and stack[row].pop()["ts"] <= e["ts"], e
    assert not any(stack.values()), "begins without an end"
    for row in rows.values():
        open_ = []
        for ts, dur, e in sorted(row, key=lambda x: x[:2]):
            # Times have three digits after the point: half a nanosecond of rounding each.
            while open_ and open_[-1][0] <= ts + 0.002:
                open_.pop()
            assert not open_ or ts - dur <= open_[-1][0] + 0.002, (e, open_[-1][1])
            open_.append((ts - dur, e))


def check_flows(events):
    """Each start of a flow has its finish, later, and each step and finish its start."""
    flows = collections.defaultdict(list)
    for e in events:
        if e["ph"] in "stf":
            flows[e["cat"], e["name"], str(e.get("id", e.get("id2")))].append(e)
    for key, of in flows.items():
        of.sort(key=lambda e: e["ts"])
        kinds = [e["ph"] for e in of]
        assert kinds[0] == "s" and kinds[-1] == "f" and kinds.count("s") == kinds.count("f") == 1, \
            (key, kinds)
        for e in of:
            assert any(x["ph"] == "X" and (x["pid"], x["tid"]) == (e["pid"], e["tid"]) and
                       x["ts"] <= e["ts"] <= x["ts"] + x["dur"] for x in events), (key, e)


def check(text):
    """A whole trace; returns its events without metadata."""
    trace = json.loads(text)
    assert trace.get("displayTimeUnit") in ("ms", "ns"), trace.keys()
    events = trace["traceEvents"]
    assert isinstance(events, list) and events
    for e in events:
        check_event(e)
    names = collections.defaultdict(set)
    for e in events:
        if e["ph"] == "M" and e["name"].endswith("_name"):
            row = (e["pid"],) if e["name"] == "process_name" else (e["pid"], e["tid"])
            names[row].add(e["args"]["name"])
    assert all(len(x) == 1 for x in names.values()), names
    told = [e for e in events if e["ph"] != "M"]
    for e in told:
        assert (e["pid"],) in names and (e["pid"], e["tid"]) in names, ("no name for the row", e)
    check_nesting(told)
    check_flows(told)
    return told


def load(c, text):
    """Let Perfetto count the spans, where it is there."""
    shell = os.environ.get("TRACE_PROCESSOR")
    if not shell:
        return None
    path, query = c.path("trace.json"), c.path("query.sql")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    with open(query, "w", encoding="utf-8") as f:
        f.write("select count(*) as n from slice where dur >= 0;\n")
    out = subprocess.run([shell, "-q", query, path], capture_output=True, text=True, check=True)
    return int(out.stdout.split()[-1])


def wbctl(c):
    return subprocess.run([f"{BUILD}/bin/wbctl", "trace", "--operator", f"127.0.0.1:{c.op.http}"],
                          capture_output=True, text=True, check=True).stdout


def traces_are_in_order():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2, engines=2)
        for name in ("t0", "r0", "r1"):
            c.agent(name)
        size = {"rows": 512, "cols": 512}
        t = [c.worker("t0", "trainer", i, 2, **size) for i in (0, 1)]
        r = [c.worker(f"r{e}", "rollout", i, 2, engine=f"e{e}", cut="cols", **size)
             for e in (0, 1) for i in (0, 1)]
        for w in t + r:
            w.expect("planned")
        for v in (1, 2, 3):
            for w in t:
                w.say(f"send {v}")
            for w in t:
                w.expect(f"sent {v}")
            for w in r:
                w.expect(f"update {v} ok")
        text = c.until("a trace of all three", lambda: (x := wbctl(c)).count('"version 3"') >= 4 and x)
        told = check(text)
        load(c, text)
        spans = [e for e in told if e["name"] == "version 3"]
        rows = {(e["pid"], e["tid"]) for e in spans}
        assert len(rows) >= 4, rows  # every worker of both engines
        # One transfer happens at one time, in the operator's clock, but trainers may go on early.
        trainers = {e["pid"] for e in json.loads(text)["traceEvents"] if e["name"] == "process_name" and "t0" in e["args"]["name"]}
        assert len(trainers) == 1, trainers
        ends = [e["ts"] + e["dur"] for e in spans if e["pid"] not in trainers]
        begins = [e["ts"] for e in spans if e["pid"] not in trainers]
        assert max(begins) < min(ends) and len(ends) == 4, spans
        assert all(e["ts"] < min(ends) for e in spans), spans
        assert {e["args"]["transfer"] for e in told} == {1, 2, 3}
        assert {"drain", "wire", "after"} <= {e["name"] for e in told}
        # The times of all workers, by clocks that were compared, give the end-to-end time.
        done = json.loads(c.get(c.op, "/objects")[1])["items"][0]["detail"]["transfers"]
        assert all(0 < x["endToEndUncertaintyMilliseconds"] < 100 for x in done), done
        span = max(e["ts"] + e["dur"] for e in spans) - min(e["ts"] for e in spans)
        assert abs(done[0]["endToEndMilliseconds"] - span / 1e3) < 0.01, (done[0], span)
        for name, a in c.agents.items():
            own = c.get(a, "/trace")[1]
            names = {e["name"] for e in check(own)}
            load(c, own)
            assert "transfer" in names if name == "t0" else "update" in names, (name, names)


def an_aborted_transfer_has_its_times():
    """One worker of the engine has stopped, the other is in a long step until the deadline."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=2, engineStepDeadlineSeconds=2)
        c.agent("t0")
        c.agent("r0")
        t = c.worker("t0", "trainer")
        r = [c.worker("r0", "rollout", i, 2, engine="e0", args=("--step-ms", "30000") if i else ())
             for i in (0, 1)]
        for w in (t, *r):
            w.expect("planned")
        t.say("send 1")
        t.expect("(error .*|sent 1 .*)", reject=None)
        text = c.until("the times of both sides", lambda: (x := wbctl(c)).count('"version 1"') >= 2 and x)
        spans = [e for e in check(text) if e["name"] == "version 1"]
        assert {e["args"]["transfer"] for e in spans} == {1}, spans
        # The one that stopped stood still until the deadline; so did the trainer.
        assert len(spans) == 2 and all(1e6 < e["dur"] < 20e6 for e in spans), spans


if __name__ == "__main__":
    run(traces_are_in_order, an_aborted_transfer_has_its_times)
