# SPDX-License-Identifier: Apache-2.0
"""A tenant who takes all that it can get of a real operator, and another one who is to notice nothing: memory stays
within what budgets were sized from, and from attach to plan takes no longer than without the attack."""
import re
import struct
import time

from cluster import BUILD, Cluster, SLOW, run

KEY = "a7" * 32
MIB = 1 << 20
MEMORY = 256  # MiB
TRIES = 5
# Of one try, not of the operator: another test beside it, a page that was not there.
NOISE = 0.15 * SLOW


def in_namespace(body, namespace):
    body["metadata"]["namespace"] = namespace
    return body


def rss(p):
    with open(f"/proc/{p.p.pid}/status", encoding="utf-8") as f:
        text = f.read()
    return tuple(int(re.search(rf"{k}:\s+(\d+)", text)[1]) << 10 for k in ("VmRSS", "VmHWM"))


def metric(c, name, **labels):
    text = c.get(c.op, "/metrics")[1]
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def attach_to_plan(c, name):
    """Seconds from the victim's attach to its plan; agent and workers end again."""
    a = c.agent(f"pod-{name}", "--object", f"victim/{name}")
    t0 = time.monotonic()
    workers = [c.worker(f"pod-{name}", "trainer"), c.worker(f"pod-{name}", "rollout", engine="e")]
    for w in workers:
        w.expect("planned")
    took = time.monotonic() - t0
    for p in (*workers, a):
        p.kill()
    return took


def flood(c, name, workers, size, seconds, nice=19):
    return c._start("flood", ["nice", "-n", str(nice), f"{BUILD}/tools/flood", "127.0.0.1", str(c.op.port), KEY,
                              f"evil/{name}", str(workers), str(size), str(seconds)])


def operator(c, workers, n_evil):
    victims = [in_namespace(Cluster.body(1, 1, name=f"v{i}"), "victim") for i in range(2 * TRIES)]
    evil = [in_namespace(Cluster.body(workers, 1, name=f"a{i}"), "evil") for i in range(n_evil)]
    c.operator(settle_ms=500, args=("--memory", f"{MEMORY}Mi"), more=[*victims, *evil])


# What the attackers upload: maps of 1 GiB, refused at their first part; as many as fit, held for as long as they can.
ATTACKS = {"huge": (64, 1 << 30), "many": (64, 4 * MIB), "small": (1000, 64 << 10)}


def one_attack(kind):
    workers, size = ATTACKS[kind]
    with Cluster() as c:
        operator(c, workers, 4)
        quiet = min(attach_to_plan(c, f"v{i}") for i in range(TRIES))
        floods = [flood(c, f"a{i}", workers, size, 600) for i in range(4)]
        c.until("the attack has begun",
                lambda: metric(c, "wb_budget_refused_total", budget="maps", scope="object") +
                metric(c, "wb_budget_refused_total", budget="maps", scope="namespace") +
                metric(c, "wb_refused_total", what="budget") > 20 or metric(c, "wb_content_bytes_total", dir="in") > 64 * MIB)
        busy = min(attach_to_plan(c, f"v{TRIES + i}") for i in range(TRIES))
        now, peak = rss(c.op)
        used = metric(c, "wb_budget_used", budget="maps", scope="all")
        print(f"{kind}: attach to plan {quiet:.3f} s quiet, {busy:.3f} s under attack; operator {now // MIB} MiB, "
              f"at most {peak // MIB} MiB; of maps {used / MIB:.1f} MiB used; "
              f"{metric(c, 'wb_content_bytes_total', dir='in') / MIB:.0f} MiB came", flush=True)
        assert peak < MEMORY * MIB, f"{peak / MIB} MiB"
        assert used <= MEMORY / 8 * MIB
        assert busy <= 1.2 * quiet + NOISE, (quiet, busy)
        for f in floods:
            f.kill()
        c.until("what it held is given back",
                lambda: metric(c, "wb_budget_used", budget="maps", scope="namespace") < 4 * MIB)


def uploads_of_one_gib():
    one_attack("huge")


def uploads_as_many_as_fit():
    one_attack("many")


def a_thousand_small_ones():
    one_attack("small")


def refusal_names_budget_figures_and_remedy():
    with Cluster() as c:
        operator(c, 4, 1)
        said = flood(c, "a0", 4, 1 << 30, 3 * SLOW, nice=0).expect(r"sent \d+ refused (\d+) (.*)")
        assert int(said[1]) > 0
        for words in ("WeightTransfer evil/a0 has 0 KiB of manifests and source maps", "1024 MiB more",
                      "above the budget of 16 MiB", "resources.limits.memory", "--budget maps", "budgets.maps"):
            assert words in said[2], (words, said[2])


def frame_that_is_announced_before_hello_takes_no_memory():
    with Cluster() as c:
        operator(c, 1, 1)
        head = b"WBP1" + struct.pack("<BBHII", 1, 0, 0x205, 4 * MIB - 16, 0)
        for _ in range(3):
            p = c._start("stranger", [f"{BUILD}/tools/tls_peer", "127.0.0.1", str(c.op.port), "weightbridge", KEY],
                         stdin=True)
            p.expect("open")
            p.say(head.hex())
            p.expect("closed", reject=None)
        c.op.expect("it has not shown yet who it is", reject=None)
        attach_to_plan(c, "v0")  # who has may send as much


if __name__ == "__main__":
    import sys
    tests = [uploads_of_one_gib, uploads_as_many_as_fit, a_thousand_small_ones, refusal_names_budget_figures_and_remedy,
             frame_that_is_announced_before_hello_takes_no_memory]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
