# SPDX-License-Identifier: Apache-2.0
"""Agents of one node: each byte comes to the node once, and from one agent to the other through memory."""
import json
import os
import subprocess

from cluster import BUILD, Cluster, run
from deployed import Deployed

AUTO, TCP = "--transport shm,tcp", "--transport tcp"


def over_network(d, version):
    """Bytes of a transfer that crossed the network, as those who got them counted them."""
    d.version(version)
    return d.c.until("the transfer", lambda: (x := d.shown().get("lastTransfer", {})).get("version") == version and
                     x["networkBytes"])


def planned(d):
    """What `wbctl plan explain` says."""
    return json.loads(subprocess.run([f"{BUILD}/bin/wbctl", "plan", "explain", "--operator", f"127.0.0.1:{d.c.op.http}",
                                      "--json"], capture_output=True, text=True, check=True).stdout)


def two_agents_of_a_node_get_each_byte_once():
    """Two engines on this node, and one that is elsewhere, as it does not share its memory; nor does the trainer."""
    with Cluster() as c:
        d = Deployed(c, TCP, AUTO, AUTO, TCP)
        for v in (1, 2, 3):
            network, model = over_network(d, v), planned(d)["model_bytes"]
            print(f"version {v}: {network} bytes over the network, of a model of {model} for three engines")
            assert network == 2 * model, "once to each of two nodes"
        assert d.peers("r0")["r1"] == d.peers("r1")["r0"] == "shm", (d.peers("r0"), d.peers("r1"))
        assert set(d.peers("r2").values()) == {"tcp"}, d.peers("r2")
        plan = planned(d)
        assert (plan["domains"], plan["nodes"]) == (4, 3), plan
        assert plan["internal_near_bytes"] * 3 == plan["delivered_bytes"], plan["internal_near_bytes"]
        d.end()


def agents_that_do_not_share_memory_get_all_by_themselves():
    """By their transports, by folders of their own, or since what they move is to be encrypted."""
    with Cluster() as c:
        folders = [c.path(f) for f in ("one", "two")]
        for f in folders:
            os.mkdir(f)
        own = [f"{AUTO} --shm-folder {f}" for f in folders]
        for engines, operator in (((TCP, TCP), None), (own, None), ((AUTO, AUTO), {"transport": {"encryption": "TLS"}})):
            with Cluster() as c2:
                d = Deployed(c2, TCP, *engines, TCP, operator=operator)
                network = over_network(d, 1)
                plan = planned(d)
                assert (network, plan["nodes"]) == (3 * plan["model_bytes"], 4), (engines, network, plan["nodes"])
                d.end()


def a_trainer_beside_its_engine_sends_it_nothing_over_the_network():
    """All on this node: no rail has anything to carry, and the bound says so."""
    with Cluster() as c:
        d = Deployed(c, AUTO, AUTO, AUTO)
        d.version(1)
        plan = planned(d)
        assert plan["nodes"] == 1 and plan["receive_inside_bytes"] == plan["model_bytes"], plan
        assert plan["domain_pairs"] == [], plan["domain_pairs"]
        assert [d.peers(f"r{i}")["t0"] for i in range(2)].count("shm") == 2
        d.end()


run(two_agents_of_a_node_get_each_byte_once, agents_that_do_not_share_memory_get_all_by_themselves,
    a_trainer_beside_its_engine_sends_it_nothing_over_the_network)
