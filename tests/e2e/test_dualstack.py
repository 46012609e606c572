# SPDX-License-Identifier: Apache-2.0
"""IPv6 alone, both families, and none in common: what agents say of themselves, and what they dial.  The two
families are the loopback's, so that an agent has the addresses that it is told to have."""
import json
import os
import re
import socket
import subprocess
import sys

from cluster import BUILD, Cluster, run

V4, V6 = "127.0.0.1", "::1"
DEAD = "127.0.0.9"  # nobody listens there


def has_v6():
    with socket.socket(socket.AF_INET6) as s:
        try:
            s.bind((V6, 0))
        except OSError:
            return False
    return True


def agent(c, name, *addresses, listen=":0"):
    return c.agent(name, "--listen", listen, "--advertise", ",".join(addresses))


def pair(c, engines=1):
    t = c.worker("t", "trainer")
    return t, [c.worker(f"r{i}", "rollout", engine=f"e{i}") for i in range(engines)]


def versions(t, rollouts, *numbers):
    for v in numbers:
        t.say(f"send {v}")
        t.expect(f"sent {v} .*" + ".*".join(f"e{i}=Committed" for i in range(len(rollouts))))
        for r in rollouts:
            r.expect(f"update {v} ok")


def shown(c):
    return {x["name"]: x for x in json.loads(c.get(c.op, "/objects")[1])["items"][0]["detail"]["agents"]}


def planned(c):
    status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
    return next((x["status"], x.get("reason"), x["message"]) for x in status["conditions"] if x["type"] == "Planned")


def links(c, dialler):
    """What an agent dialled or took, peer to address: one at least, which it has said, though perhaps nobody has read it
    yet."""
    a, up = c.agents[dialler], r"peer up peer=(\S+) .*address=(\S+):\d+ "
    a.drain()
    if not any(re.search(up, x) for x in a.seen):
        a.expect(up, reject=None)
    return {m[1]: m[2] for m in (re.search(up, x) for x in a.seen) if m}


def everything_over_ipv6_alone():
    """Operator, agents, pages and probes; addresses are in brackets wherever a port follows."""
    with Cluster() as c:
        op = c.operator(host="[::1]")
        for name in ("t", "r0"):
            c.agent(name)
        t, rs = pair(c)
        for w in (t, *rs):
            w.expect("planned")
        versions(t, rs, 1, 2)
        status = json.loads(c.get(c.agents["t"], "/status")[1])
        assert status["host"] == V6 and status["bulk"] == f"[::1]:{status['port']}", status
        assert set(links(c, "t").values()) == {"[::1]"}, links(c, "t")
        assert "wb_bytes_total" in c.get(c.agents["r0"], "/metrics")[1]
        probe = subprocess.run([f"{BUILD}/bin/weightbridge-agent", "--probe=live", f"--http=[::1]:{c.agents['r0'].http}"],
                               capture_output=True, text=True, timeout=20, check=False)
        assert probe.returncode == 0, probe.stderr
        # A worker that has gone, and an operator that comes again: all of it once more.
        op.kill()
        c.operator(host="[::1]", port=op.port)
        c.agents["r0"].expect("operator connected", reject=None)
        versions(t, rs, 3)


def alone(c, name, address):
    """An agent of one family."""
    return agent(c, name, address, listen=f"[{V6}]:0" if address == V6 else f"{V4}:0")


def mixed(c, *engines):
    """A trainer of both families, and an engine of one for each address."""
    c.operator(engines=len(engines))
    agent(c, "t", V4, V6)
    for i, address in enumerate(engines):
        alone(c, f"r{i}", address)
    t, rs = pair(c, len(engines))
    for w in (t, *rs):
        w.expect("planned")
    return t, rs


def one_trainer_of_both_families_serves_engines_of_one_each():
    with Cluster() as c:
        t, rs = mixed(c, V4, V6)
        versions(t, rs, 1, 2, 3)
        assert links(c, "r0")["t"] == V4 and links(c, "r1")["t"] == f"[{V6}]", (links(c, "r0"), links(c, "r1"))
        said = shown(c)["t"]
        assert said["host"] == V4 and said["hosts"] == [V4, V6], said


def the_family_that_comes_first_here_is_taken():
    """Both have both: each dials by its own order."""
    for first, other in ((V4, V6), (V6, V4)):
        with Cluster() as c:
            c.operator()
            agent(c, "t", first, other)
            agent(c, "r0", first, other)
            t, rs = pair(c)
            for w in (t, *rs):
                w.expect("planned")
            versions(t, rs, 1)
            want = f"[{V6}]" if first == V6 else V4
            assert set(links(c, "t").values()) == {want}, (first, links(c, "t"))


def the_other_family_is_dialled_when_the_first_does_not_answer():
    with Cluster() as c:
        c.operator()
        for name in ("t", "r0"):
            agent(c, name, DEAD, V6, listen=f"[{V6}]:0")
        t, rs = pair(c)
        for w in (t, *rs):
            w.expect("planned")
        versions(t, rs, 1, 2)
        assert set(links(c, "t").values()) == {f"[{V6}]"}, links(c, "t")
        # The bytes went the same way, after one try at the dead address.
        c.agents["r0"].drain()
        tries = [x for x in c.agents["r0"].seen if "bulk: connection ended" in x and "peer=t" in x]
        assert len(tries) <= 2, tries


def both_addresses_are_named_when_none_answers():
    with Cluster() as c:
        c.operator(transferDeadlineSeconds=3)
        agent(c, "t", V4, V6)
        agent(c, "r0", DEAD, "::2", listen=f"{V4}:0")
        t, rs = pair(c)
        for w in (t, *rs):
            w.expect("planned")
        t.say("send 1")
        m = c.agents["t"].expect(r"peer down peer=r0 .*reason=(.*)", reject=None)
        assert "none of its addresses can be reached" in m[1] or "no answer within" in m[1], m[1]
        assert f"{DEAD}:" in m[1] and "[::2]:" in m[1], m[1]


def no_common_family_is_a_sentence_in_the_status():
    with Cluster() as c:
        c.operator()
        agent(c, "t", V4)
        agent(c, "r0", V6)
        t, rs = pair(c)
        status, reason, message = c.until("the plan is refused", lambda: (
            lambda p: p[1] not in (None, "WaitingForSourceMaps") and p)(planned(c)))
        assert (status, reason) == ("False", "NoCommonAddressFamily"), (status, reason, message)
        assert "have no address family in common" in message, message
        assert f"agent t (IPv4 {V4})" in message and f"agent r0 (IPv6 {V6})" in message, message
        # One that has both instead of it: the plan goes on without anybody's help.
        c.agents["r0"].kill()
        for w in (t, *rs):
            w.kill()  # they were told, and ended
        agent(c, "r0", V6, V4)
        t, rs = pair(c)
        for w in (t, *rs):
            w.expect("planned")
        versions(t, rs, 1)


def an_engine_is_fed_by_one_that_it_reaches():
    """e0, which comes first, has no address in common with e1, e2 has: it is asked at once."""
    with Cluster() as c:
        t, rs = mixed(c, V4, V6, V6)
        versions(t, rs, 1)
        c.agents["r1"].kill()
        alone(c, "r1", V6)
        c.op.expect("engine e1 gets version 1 from engine e2", reject="from engine e0")
        rs[1].expect("update 1 ok")
        versions(t, rs, 2)


def an_engine_that_reaches_none_that_has_the_version_is_named():
    with Cluster() as c:
        t, rs = mixed(c, V4, V6)
        versions(t, rs, 1)
        c.agents["r1"].kill()
        alone(c, "r1", V6)
        c.op.expect("engine e1 is behind and cannot be fed: of 1 engines with version 1 none has addresses",
                    reject="gets version 1")
        versions(t, rs, 2)


TESTS = (everything_over_ipv6_alone, one_trainer_of_both_families_serves_engines_of_one_each,
         the_family_that_comes_first_here_is_taken, the_other_family_is_dialled_when_the_first_does_not_answer,
         both_addresses_are_named_when_none_answers, no_common_family_is_a_sentence_in_the_status,
         an_engine_is_fed_by_one_that_it_reaches, an_engine_that_reaches_none_that_has_the_version_is_named)

if __name__ == "__main__":
    if not has_v6():
        print("no IPv6 on this machine's loopback")
        sys.exit(77)
    run(*[t for t in TESTS if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])],
        together=int(os.environ.get("TOGETHER", "3")))
