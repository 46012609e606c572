# SPDX-License-Identifier: Apache-2.0
"""Several transports in one agent: which pair goes by which, what is said of it, and what happens when the better one
cannot be had."""
import glob
import os

from cluster import Cluster, run
from deployed import Deployed
from test_transfer import engine
from test_verbs import fake


def pairs_of_one_transfer_go_each_by_the_best_they_have():
    with Cluster() as c:
        d = Deployed(c, "--transport auto", "--transport auto", "--transport auto", "--transport tcp")
        for v in (1, 2, 3):
            d.version(v)
        assert d.status("t0")["transport"] == "shm,tcp", d.status("t0")["transport"]
        assert [d.peers(f"r{i}").get("t0") for i in range(3)] == ["shm", "shm", "tcp"], [d.peers(f"r{i}") for i in range(3)]
        c.until("status", lambda: {x["name"]: x.get("transport", "").split(",")[0] for x in d.shown()["engines"]} ==
                {"e0": "shm", "e1": "shm", "e2": "tcp"})
        assert d.degraded()["reason"] == "AsExpected", d.degraded()
        d.end()


def rdma_beside_tcp():
    with Cluster() as c:
        both = ("--transport verbs,tcp", {"env": fake(c)})
        d = Deployed(c, both, both, "--transport tcp")
        for v in (1, 2):
            d.version(v)
        assert [d.peers(f"r{i}").get("t0") for i in range(2)] == ["verbs", "tcp"], [d.peers(f"r{i}") for i in range(2)]
        d.end()


def memory_that_cannot_be_shared_gives_way_to_tcp():
    with Cluster() as c:
        folder = c.path("shared")
        os.mkdir(folder)

        def lose():
            for f in glob.glob(folder + "/wb-*"):
                os.unlink(f)

        how = f"--transport shm,tcp --shm-folder {folder}"
        d = Deployed(c, how, how, between=lose)
        d.version(1)
        d.version(2)
        assert d.peers("r0") == {"t0": "tcp"}, d.peers("r0")
        said = c.agents["r0"].expect(r"another transport is taken .*", reject=None)[0]
        assert "peer=t0 was=shm is=tcp" in said and "No such file" in said, said
        assert "another transport" not in c.agents["r0"].drain()
        d.end()


def rdma_that_does_not_reach_gives_way_to_tcp_within_the_transfer():
    """The two agents are in worlds of their own: connections stand, and no read arrives."""
    with Cluster() as c:
        def how(world):
            return "--transport verbs,tcp", {"env": {**fake(c), "FAKEVERBS_WORLD": c.path(world)}}

        d = Deployed(c, how("one"), how("two"))
        d.version(1)
        d.version(2)
        assert d.peers("r0") == {"t0": "tcp"}, d.peers("r0")
        said = c.agents["r0"].expect(r"another transport is taken .*", reject=None)[0]
        assert "peer=t0 was=verbs is=tcp" in said, said
        shown = c.until("degraded", lambda: (x := d.degraded())["reason"] == "TCPFallback" and x)
        assert "engine e0: agent t0 is reached by tcp and not verbs" in shown["message"], shown
        d.end()


def encrypted_bytes_do_not_go_by_rdma():
    with Cluster() as c:
        both = ("--transport verbs,tcp", {"env": fake(c)})
        d = Deployed(c, both, both, operator={"transport": {"encryption": "TLS"}})
        d.version(1)
        assert d.peers("r0") == {"t0": "tcp+tls"}, d.peers("r0")
        c.agents["r0"].expect(r"transport not used transport=verbs .*encryption is TLS", reject=None)
        d.end()


def protocols_say_which_may_be_used():
    with Cluster() as c:
        both = ("--transport auto", {"env": fake(c)})
        d = Deployed(c, both, both, operator={"transport": {"protocols": ["TCP"]}})
        d.version(1)
        assert d.status("r0")["transport"] == "shm,verbs,tcp"
        assert d.peers("r0") == {"t0": "shm"}, d.peers("r0")
        d.end()
    with Cluster() as c:
        both = ("--transport verbs,tcp", {"env": fake(c)})
        d = Deployed(c, both, both, operator={"transport": {"protocols": ["TCP", "Verbs"]}})
        d.version(1)
        assert d.peers("r0") == {"t0": "tcp"}, d.peers("r0")
        d.end()


def agents_of_the_version_before_have_the_one_they_name():
    """The receiver is the older one, then the source is."""
    old = {"program": "tools/agent-v1-1"}
    for t, r in (("--transport auto", ("--transport tcp", old)), (("--transport tcp", old), "--transport auto"),
                 (("--transport shm", old), "--transport shm")):
        with Cluster() as c:
            d = Deployed(c, t, r)
            d.version(1)
            if not isinstance(r, tuple):
                assert d.peers("r0") == {"t0": "shm" if "shm" in str(t) else "tcp"}, d.peers("r0")
            d.end()


def an_older_agent_with_another_transport_is_refused_by_name():
    """It knows of a newer one what every agent knows, tcp."""
    with Cluster() as c:
        c.operator()
        c.agent("t0", "--transport", "shm", program="tools/agent-v1-1")
        c.agent("r0", "--transport", "auto")
        t, r = c.worker("t0", "trainer"), engine(c, 0, 1)[0]
        for w in (t, r):
            w.expect("agent t0 moves weights over shm and agent r0 over tcp: start all agents of an object with the "
                     "same --transport", reject=None)


run(pairs_of_one_transfer_go_each_by_the_best_they_have, rdma_beside_tcp,
    memory_that_cannot_be_shared_gives_way_to_tcp, rdma_that_does_not_reach_gives_way_to_tcp_within_the_transfer,
    encrypted_bytes_do_not_go_by_rdma, protocols_say_which_may_be_used,
    agents_of_the_version_before_have_the_one_they_name, an_older_agent_with_another_transport_is_refused_by_name)
