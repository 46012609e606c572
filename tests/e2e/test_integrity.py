# SPDX-License-Identifier: Apache-2.0
"""Bytes that change, and bytes put in the wrong place: caught, repaired, counted, by name."""
import json
import re
import subprocess
import sys

from cluster import BUILD, Cluster, run
from test_transfer import sent, updated


def mismatches(c, pod):
    """By place, as Prometheus sees them; all places are there from the start."""
    text = c.get(c.agents[pod], "/metrics")[1]
    got = dict(re.findall(r'^wb_checksum_mismatches_total\{place="(\w+)"\} (\d+)$', text, re.M))
    assert set(got) == {"wire", "slot", "relay", "install"}, text
    return {k: int(v) for k, v in got.items() if v != "0"}


def wbctl(*args):
    return subprocess.run([f"{BUILD}/bin/wbctl", *args], capture_output=True, text=True,
                          check=True).stdout


SLOTS = {"trainers": 2, "trainer_cut": "cols"}  # short runs: through slots and lanes


def caught(fault, pod, place, at=None, engines=1, trainers=1, trainer_cut="rows",
           checksums="Wire", rail="", source=r"\w+", **kw):
    """`fault` in `pod` is found in agent `at` at `place`, and every version arrives."""
    at = at or pod
    with Cluster() as c:
        c.operator(trainers=trainers, per_engine=1, engines=engines, checksums=checksums)
        for name in ["t0"] + [f"r{e}" for e in range(engines)]:
            # The second engine is slow: the first chunk that another has is one that it passes on.
            slow = ["--rail-rate", "2M"] if name == "r1" else []
            c.agent(name, *slow, env={"WB_FAULT": fault} if name == pod else None)
        t = [c.worker("t0", "trainer", i, trainers, cut=trainer_cut, **kw) for i in range(trainers)]
        r = [c.worker(f"r{e}", "rollout", engine=f"e{e}", **kw) for e in range(engines)]
        for w in t + r:
            w.expect("planned")
        for a in c.agents:
            assert mismatches(c, a) == {}
        for v in (1, 2):
            # What is found bad after the trainers have let go, as on a loaded machine, has no source any more.
            for w in t:
                w.say(f"hold {v}")
            updated(r, v)
            for w in t:
                w.expect(f"released {v}")
                w.say("release")
            sent(t, v, " ".join(f"e{e}=Committed" for e in range(engines)))
        seen = {a: m for a in c.agents if (m := mismatches(c, a))}
        assert seen.get(at, {}).get(place, 0) >= 1, (fault, seen)
        named(c, at, place, seen[at][place], source, rail)
        print(f"  {fault} in {pod}: {seen}; {c.agents[at].said}")


def named(c, at, place, n, source, rail):
    """In the log, in wbctl status, and (what was found before it reported) in wbctl describe."""
    agent = c.agents[at]
    agent.said = agent.expect(
        rf'checksum differs what="({place}: chunk \d+ of class \d+, parameter part\.\d+ of '
        rf'r\d/worker \d \(rank \d\), from {source}/worker \d \(rank \d\){rail}[^"]*)"', reject=None)[1]
    status = json.loads(c.get(agent, "/status")[1])
    assert status["mismatches"][place] == n, status["mismatches"]
    assert "parameter part." in status["lastMismatch"], status["lastMismatch"]
    shown = wbctl("status", "--agent", f"127.0.0.1:{agent.http}")
    assert f"Mismatches, {place}:" in shown and status["lastMismatch"] in shown, shown
    if place == "relay":
        return
    operator = ["describe", "--operator", f"127.0.0.1:{c.op.http}"]
    c.until("the operator knows", lambda: "parameter part." in wbctl(*operator))
    c.until("it is counted", lambda: re.search(r"^wb_checksum_mismatches_total [1-9]", c.get(c.op, "/metrics")[1], re.M))


def a_bit_flipped_on_the_wire():
    caught("flip=wire:chunk=1", "t0", "wire", at="r0", rail=", rail 0")


def a_bit_flipped_in_the_slot_after_arrival():
    caught("flip=slot:chunk=1", "r0", "slot", rail=", rail 0", **SLOTS)


def a_bit_flipped_at_a_relay():
    # What is passed on differs from what was summed when it was packed: the next one sees it.
    caught("flip=relay:chunk=1", "r0", "slot", at="r1", source="r0", engines=2, **SLOTS)


def a_parameter_that_changes_after_install_is_found_by_the_next_reader():
    caught("flip=install:chunk=1", "r0", "relay", engines=2, **SLOTS)


def a_parameter_that_changes_after_install_is_found_by_reading_it_back():
    caught("flip=install:chunk=1", "r0", "install", checksums="Installed")
    caught("flip=install:chunk=1", "r0", "install", checksums="Installed", **SLOTS)


def a_run_put_in_the_wrong_place_is_found_by_the_next_reader():
    caught("misplace=assemble:chunk=1", "r0", "relay", engines=2, **SLOTS)


def a_run_put_in_the_wrong_place_is_found_by_reading_it_back():
    for kw in ({}, SLOTS, {**SLOTS, "heap": True}):
        caught("misplace=assemble:chunk=1;misplace=assemble:chunk=3", "r0", "install",
               checksums="Installed", **kw)


def a_copy_of_the_staging_area(checksums, heap):
    """Rollouts are staged: bits of parameters go bad after their area was copied into them."""
    def test():
        with Cluster() as c:
            c.operator(trainers=1, per_engine=2, engines=1, staging={"rollout": "HostMemory"},
                       checksums=checksums)
            c.agent("t0")
            c.agent("r0", env={"WB_FAULT": "flip=copy:version=2"})
            t = c.worker("t0", "trainer")
            r = [c.worker("r0", "rollout", i, 2, engine="e0", cut="cols", heap=heap)
                 for i in range(2)]
            for w in [t] + r:
                w.expect("planned")
            for v in (1, 2, 3):
                t.say(f"send {v}")
                sent([t], v, "e0=Committed")
                if v == 2 and checksums != "Installed":  # nobody has looked
                    for w in r:
                        w.expect("update 2 bad", reject=None)
                    assert mismatches(c, "r0") == {}
                else:
                    updated(r, v)
            if checksums != "Installed":
                return
            assert mismatches(c, "r0") == {"install": 2}, mismatches(c, "r0")
            for i in (1, 2):
                c.agents["r0"].expect(
                    r'checksum differs what="install: parameter part\.\d of r0/worker \d[^,]*, '
                    r'copied from its staging area', reject=None)
            status = json.loads(c.get(c.agents["r0"], "/status")[1])
            assert "parameter part." in status["lastMismatch"], status["lastMismatch"]
    test.__name__ = f"a_copy_of_the_staging_area: {checksums} {'heap' if heap else 'memfd'}"
    return test


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [a_bit_flipped_on_the_wire, a_bit_flipped_in_the_slot_after_arrival,
             a_bit_flipped_at_a_relay,
             a_parameter_that_changes_after_install_is_found_by_the_next_reader,
             a_parameter_that_changes_after_install_is_found_by_reading_it_back,
             a_run_put_in_the_wrong_place_is_found_by_the_next_reader,
             a_run_put_in_the_wrong_place_is_found_by_reading_it_back,
             a_copy_of_the_staging_area("Wire", False),
             a_copy_of_the_staging_area("Installed", False),
             a_copy_of_the_staging_area("Installed", True)]
    run(*[t for t in tests if not names or any(n in t.__name__ for n in names)], together=2)
