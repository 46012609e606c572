# SPDX-License-Identifier: Apache-2.0
"""What agents can make the operator hold for them: plans that they do not read, messages that they do not end, reports of
what there never was.  Real sockets, real processes; each test prints the operator's memory before, at most, and after, and
another tenant gets its plan as fast as without.

AGENTS and TENSORS size the plan of the first two: 64 and 48000 are parts of 141 MiB in all.
"""
import os
import re
import time

from cluster import BUILD, Cluster, SANITIZED, SLOW, run

KEY = "a7" * 32
MIB = 1 << 20
MEMORY = 256  # MiB
LATE_S = 2.0
LARGE = (64, 3000 if SANITIZED else 24000)  # of which all together has more than MUCH
LISTED = (16, 4000)  # where each gets all of it
MUCH, LITTLE = 64 * MIB, 2 * MIB


def in_namespace(body, namespace):
    body["metadata"]["namespace"] = namespace
    return body


def memory(c):
    """MiB now, and at most so far."""
    with open(f"/proc/{c.op.p.pid}/status", encoding="utf-8") as f:
        text = f.read()
    return tuple(int(re.search(rf"{k}:\s+(\d+)", text)[1]) >> 10 for k in ("VmRSS", "VmHWM"))


def forget_peak(c):
    with open(f"/proc/{c.op.p.pid}/clear_refs", "w", encoding="utf-8") as f:
        f.write("5")


def metric(c, name, **labels):
    text = c.get(c.op, "/metrics")[1]
    for line in text.splitlines():
        if line.startswith(name) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def herd(c, name, half, *more):
    """Agents of an object, half of them trainers, the others one engine."""
    h = c._start("herd", ["nice", "-n", "5", f"{BUILD}/tools/herd", "--servers", f"127.0.0.1:{c.op.port}", "--key", KEY,
                          *map(str, more)], stdin=True)
    for role, engine in (("trainer", "-"), ("rollout", "e")):
        for i in range(half):
            h.p.stdin.write(f"{name}-{role}-{i} evil/{name} {role} {i} {half} {engine} -\n")
    h.p.stdin.close()
    return h


def start(c, half, size):
    c.operator(name="v", settle_ms=1000, args=("--memory", size), more=[in_namespace(Cluster.body(half, half, name="a"), "evil")])


def victim(c, n):
    """Seconds from attach to plan."""
    a = c.agent(f"pod-{n}", "--object", "default/v")
    t0 = time.monotonic()
    workers = [c.worker(f"pod-{n}", "trainer"), c.worker(f"pod-{n}", "rollout", engine="e")]
    for w in workers:
        w.expect("planned")
    took = time.monotonic() - t0
    for p in (*workers, a):  # they take leave: the next one need not wait until they count as lost
        p.stop()
    return took


def said(h, word):
    h.drain()
    return [x.split() for x in h.seen if x.startswith(word + " ")]


def sized(agents, tensors):
    return int(os.environ.get("AGENTS", agents)), int(os.environ.get("TENSORS", tensors))


def plan_arrives(agents, tensors, *how):
    """Equal tensors are one record of a plan: only where none is like another is it large.  Bytes that each agent got, and
    what the operator keeps."""
    half = agents // 2
    with Cluster() as c:
        start(c, half, "64Gi")
        before = memory(c)[0]
        h = herd(c, "a", half, "--uneven", "--tensors", tensors, "--rows", half, *how)
        c.until("a plan", lambda: metric(c, "wb_plans_total", result="planned"), 300 * SLOW)
        t0 = time.monotonic()
        planned, planning = memory(c)
        forget_peak(c)
        c.until("it is active", lambda: len(said(h, "active")) == agents, 300 * SLOW)
        took, sizes = time.monotonic() - t0, [int(x[2]) for x in said(h, "plan")]
        now, most = memory(c)
        kept = metric(c, "wb_budget_used", budget="plans", scope="all")
        print(f"{max(sizes) / MIB:.1f} MiB to each of {agents} agents, {sum(sizes) / MIB:.1f} MiB in all, in {took:.1f} s "
              f"{' '.join(how)}: operator {before} MiB before it was planned, {planning} at most until then, {planned} after, {most} "
              f"at most while it was sent, {now} at the end, {kept / MIB:.1f} of the plan", flush=True)
        assert len(sizes) == agents
        assert not said(h, "down"), "agents were lost while the plan was sent"
        assert most - planned < 16 + agents // 4 + (kept if how else max(sizes) / 2) / MIB, "the plan was copied"
    return sizes, kept


def plan_of_more_than_64_mib_arrives_in_small_parts():
    agents, tensors = sized(*LARGE)
    sizes, kept = plan_arrives(agents, tensors)
    assert kept > MUCH or (agents, tensors) != LARGE or SANITIZED, kept
    assert max(sizes) < LITTLE or (agents, tensors) != LARGE, max(sizes)
    assert sum(sizes) < kept * 1.2, "more was sent than there is"


def large_plan_is_listed_once_for_agents_of_version_1():
    sizes, _ = plan_arrives(*sized(*LISTED), "--old")
    assert len(set(sizes)) == 1, "it is the same list for all"


def attack(what, agents, *how, until, mib=MEMORY, also=None):
    half = agents // 2
    with Cluster() as c:
        start(c, half, f"{mib}Mi")
        quiet, before = victim(c, "quiet"), memory(c)[0]
        forget_peak(c)
        h = herd(c, "a", half, "--rows", half, *how)
        c.until("the attack has begun", lambda: until(c, h), 120 * SLOW)
        took = victim(c, "busy")
        now, most = memory(c)
        print(f"{what}: operator {before} MiB before, {most} at most, {now} now; attach to plan {quiet:.2f} s before, {took:.2f} s "
              f"beside it; {also(c, h) if also else ''}", flush=True)
        assert c.op.p.poll() is None
        assert most < mib, f"{most} MiB"
        assert took < quiet + LATE_S * SLOW, (quiet, took)


def plans_that_nobody_reads(*how, tensors=6000, most=50 * MIB):
    attack(f"a plan that 60 agents do not read {' '.join(how)}", 60, "--deaf", *how, "--uneven", "--tensors", tensors, mib=2048,
           until=lambda c, h: metric(c, "wb_plans_total", result="planned") and metric(c, "wb_content_bytes_total", dir="out") > most,
           also=lambda c, h: f"plans {metric(c, 'wb_budget_used', budget='plans', scope='all') / MIB:.1f} MiB charged")


def lists_that_nobody_reads():
    plans_that_nobody_reads("--old")


def parts_that_nobody_reads():
    plans_that_nobody_reads(most=5 * MIB)


def messages_that_do_not_end():
    def also(c, h):
        c.until("who does not go on is told so", lambda: any("has begun a frame of" in " ".join(x) for x in said(h, "refused")), 60 * SLOW)
        return f"{metric(c, 'wb_budget_used', budget='frames', scope='all') / MIB:.0f} MiB charged; " \
            f"refused {len(said(h, 'refused'))}: {' '.join(said(h, 'refused')[-1][2:])}"
    attack("messages of 4 MiB that 200 agents do not end", 200, "--half",
           until=lambda c, h: len(said(h, "up")) > 150, also=also)


def reports_of_what_never_was():
    attack("reports of 4 agents", 4, "--reports",
           until=lambda c, h: metric(c, "wb_budget_refused_total", budget="reports", scope="object") > 5,
           also=lambda c, h: f"{metric(c, 'wb_budget_used', budget='reports', scope='all') / MIB:.1f} MiB charged")


if __name__ == "__main__":
    run(plan_of_more_than_64_mib_arrives_in_small_parts, large_plan_is_listed_once_for_agents_of_version_1,
        lists_that_nobody_reads, parts_that_nobody_reads, messages_that_do_not_end, reports_of_what_never_was)
