# SPDX-License-Identifier: Apache-2.0
"""What a warm transfer costs beside its bytes: control messages do not grow with the model, and the
agents' memory grows neither with the model nor with the number of transfers."""
import re
import time

from cluster import Cluster, Failed, SANITIZED, TIMEOUT, run

# Counted here: all frames of the agents' channels to the operator, to each other and to workers, as
# they are given to TLS or the socket; heartbeats apart, as they come by the clock; grants and
# trailers apart, as they come with the chunks and so with the bytes.
CONFIRMS = 6  # who has nothing to answer for 200 ms confirms what it got
GRANT_BYTES, ANSWER_BYTES, TRAILER_BYTES = 64, 32, 32  # per chunk
LACK_BYTES = 2 * 8  # per chunk: a number of each of two agents
PER_WORKER = 64 << 10
TRANSFERS = 4
LARGE = 8 if SANITIZED else 100  # MiB
RESIDENT_MAX = 32 << 20
# What a transfer takes while it runs (2.6 MiB) may be there or not when we look, and the ring of
# traces fills.  With 240 transfers a leak of 13 KiB each is above it.
GROWTH_MAX = 3 << 20


def metrics(c, agent):
    out = {}
    for line in c.get(agent, "/metrics")[1].splitlines():
        m = re.match(r"(wb_\w+)(?:\{(.*)\})? (\S+)$", line)
        if m:
            out[m[1], m[2] or ""] = float(m[3])
    return out


def deploy(c, rows, cols):
    """2 trainers cut by rows, 1 engine of 2 workers cut by columns; an agent each."""
    c.operator(trainers=2, per_engine=2, engines=1)
    for name in ("t0", "t1", "r0", "r1"):
        c.agent(name)
    t = [c.worker(f"t{i}", "trainer", i, 2, rows=rows, cols=cols, tensors=1) for i in (0, 1)]
    r = [c.worker(f"r{i}", "rollout", i, 2, engine="e0", cut="cols", rows=rows, cols=cols,
                  tensors=1) for i in (0, 1)]
    for w in t + r:
        w.expect("planned", timeout=4 * TIMEOUT)
    return t, r


def transfer(t, r, version):
    for w in t:
        w.say(f"send {version}")
    for w in t:
        w.expect(rf"sent {version} .*Committed", timeout=4 * TIMEOUT)
    for w in r:
        w.expect(f"update {version} ok", timeout=4 * TIMEOUT)


def settled(c):
    """Metrics of all agents once nothing is said any more."""
    end, last = time.monotonic() + TIMEOUT, None
    while time.monotonic() < end:
        now = {n: metrics(c, a) for n, a in c.agents.items()}
        control = {n: {k: v for k, v in m.items() if k[0].startswith("wb_control")}
                   for n, m in now.items()}
        if control == last:
            return now
        last = control
        time.sleep(0.25)
    raise Failed(f"agents keep on talking: {last}")


def cost(mib):
    """{agent: {series: what one warm transfer added}} for a model of that size: the least of a few, since
    who is late is asked again."""
    with Cluster() as c:
        t, r = deploy(c, 512 * mib, 512)
        for v in (1, 2):
            transfer(t, r, v)
        seen = [settled(c)]
        for v in range(3, 3 + TRANSFERS):
            transfer(t, r, v)
            seen.append(settled(c))
        return {n: {k: min(b[n][k] - a[n].get(k, 0) for a, b in zip(seen, seen[1:]))
                    for k in m if all(k in b[n] for b in seen[1:])} for n, m in seen[-1].items()}


def resident(agent):
    """(anonymous, of files) bytes of a process.  Slots and workers' memory are memfds, which count
    as shared memory, so neither is in these."""
    with open(f"/proc/{agent.p.pid}/status", encoding="ascii") as f:
        kib = dict(re.findall(r"(Rss\w+):\s+(\d+) kB", f.read()))
    return int(kib["RssAnon"]) << 10, int(kib["RssFile"]) << 10


def stay_small(mib, windows):
    """`windows`: number of transfers in each; the last two are compared by their greatest."""
    with Cluster() as c:
        t, r = deploy(c, 512 * mib, 512)
        seen, v = [], 0
        for n in windows:
            seen.append({a: (0, 0) for a in c.agents})
            for _ in range(n):
                v += 1
                transfer(t, r, v)
                for a, p in c.agents.items():
                    seen[-1][a] = max(seen[-1][a], resident(p))
        for a, (anon, file) in seen[-1].items():
            before = seen[-2][a][0]
            print(f"{mib} MiB, {a}: {anon >> 10} KiB anonymous ({windows[-1]} transfers before: "
                  f"{before >> 10}), {file >> 10} of files")
            assert anon + file < RESIDENT_MAX, a
            assert anon - before < GROWTH_MAX, a


def agents_stay_small():
    if SANITIZED:
        print("not with a sanitizer, whose own memory would be counted")
        return
    stay_small(LARGE, (5, 15, 20))
    stay_small(1, (20, 40, 240))


def of(delta, what, channel=None):
    return int(sum(v for k, v in delta.items()
                   if k[0] == what and (not channel or f'channel="{channel}"' in k[1])))


def show(mib, one):
    for agent, d in sorted(one.items()):
        chunks = of(d, "wb_chunks_total")
        print(f"{mib} MiB, {agent}: {of(d, 'wb_control_bytes_total')} bytes of control in "
              f"{of(d, 'wb_control_messages_total')} messages; on the rails "
              f"{chunks * (GRANT_BYTES + ANSWER_BYTES + TRAILER_BYTES)} bytes of grants and "
              f"trailers for {chunks} chunks; heartbeats {of(d, 'wb_heartbeat_bytes_total')}")


def control_does_not_grow_with_the_model():
    small, large = cost(1), cost(LARGE)
    show(1, small)
    show(LARGE, large)
    for agent, a in small.items():
        b = large[agent]
        for d in (a, b):
            assert of(d, "wb_control_bytes_total") <= PER_WORKER, agent
        for channel, extra in (("operator", 0), ("agent", CONFIRMS)):
            n = [of(d, "wb_control_messages_total", channel) for d in (a, b)]
            assert abs(n[0] - n[1]) <= extra, (agent, channel, n)
            n = [of(d, "wb_control_bytes_total", channel) for d in (a, b)]
            # Times and byte counts are decimal numbers: some have a digit more. And a trainers' agent that could let its
            # workers go asks what each engine's agent lacks of it: numbers of chunks that fit into its slots.
            lacks = LACK_BYTES * max(of(d, "wb_chunks_total") for d in (a, b)) if channel == "agent" else 0
            assert abs(n[0] - n[1]) <= 64 + 128 * extra + lacks, (agent, channel, n)
        # A worker that has not yet reached the step of its engine is told to go on, and says when
        # it is there: some small messages more or fewer, as it happens.
        n = [of(d, "wb_control_messages_total", "worker") for d in (a, b)]
        assert abs(n[0] - n[1]) <= 4, (agent, n)
        n = [of(d, "wb_control_bytes_total", "worker") for d in (a, b)]
        assert abs(n[0] - n[1]) <= 96, (agent, n)


if __name__ == "__main__":
    run(control_does_not_grow_with_the_model, agents_stay_small)
