# SPDX-License-Identifier: Apache-2.0
"""Agents that move weights over RDMA: real processes on a libibverbs without devices, and without one."""
import json
import os
import subprocess
import sys

from cluster import BUILD, Cluster, Failed, run
from test_transfer import engine, move_three_versions, quit_all, send, sent, updated

VERBS = ("--transport", "verbs")


def fake(c):
    """What an agent's environment has for devices fake0 and fake1, which all agents of `c` share."""
    return {"LD_LIBRARY_PATH": os.path.join(BUILD, "fake"), "FAKEVERBS_WORLD": c.path("world")}


def versions_arrive(*args, **spec):
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2, engines=1, transport={"protocols": ["Verbs"]}, **spec)
        for name in ("t0", "r0"):
            c.agent(name, *VERBS, *args, env=fake(c))
        t = [c.worker("t0", "trainer", i, 2, rows=1024, cols=512) for i in range(2)]
        r = engine(c, 0, 2, rows=1024, cols=512)
        for w in t + r:
            w.expect("planned")
        move_three_versions(c, t, r)


def over_one_rail():
    versions_arrive()


def over_two_rails_each_with_its_device_and_staged():
    versions_arrive("--rails", "2", "--rail-device", "fake0,fake1",
                    staging={"trainer": "HostMemory", "rollout": "HostMemory"})


def over_rails_that_are_the_network_interfaces_of_devices():
    versions_arrive("--rail", "127.99.0.1", "--rail", "127.99.1.1")


def keys_are_in_the_status_and_windows_can_be_turned_off():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, engines=1, transport={"protocols": ["Verbs"]})
        windows = {**fake(c), "FAKEVERBS_WINDOWS": "1"}
        c.agent("t0", *VERBS, env=windows)
        c.agent("r0", *VERBS, "--no-rdma-windows", env=windows)
        t, r = [c.worker("t0", "trainer", 0, 1, rows=1024, cols=512)], engine(c, 0, 1, rows=1024, cols=512)
        for w in t + r:
            w.expect("planned")
        for name, words in (("t0", "of a queue pair each, by memory windows"),
                            ("r0", "of regions, memory windows are turned off")):
            keys = json.loads(c.get(c.agents[name], "/status")[1])["rdmaKeys"]
            assert keys == f"fake0: {words}; fake1: {words}", keys
        move_three_versions(c, t, r)


def port(c, device, is_up):
    """A port of all these agents' world goes down or comes up."""
    code = f"import ctypes; ctypes.CDLL('libibverbs.so.1').fakeverbs_port({device}, 1, ctypes.c_bool({is_up}))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **fake(c)}, check=True, timeout=60)


def a_port_that_is_down_is_in_the_status_until_it_is_up():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, engines=1, transport={"protocols": ["Verbs"]})
        for name in ("t0", "r0"):
            c.agent(name, *VERBS, "--rails", "2", env=fake(c))
        t, r = [c.worker("t0", "trainer", 0, 1)], engine(c, 0, 1)
        for w in t + r:
            w.expect("planned")

        def degraded():
            items = json.loads(c.get(c.op, "/objects")[1])["items"]
            return next(x for x in items[0]["status"]["conditions"] if x["type"] == "Degraded")

        def version(v):
            send(t, v)
            sent(t, v, "Committed")
            updated(r, v)
        version(1)
        assert degraded()["status"] == "False", degraded()
        port(c, 1, False)
        c.until("the port that is down is told", lambda: degraded()["reason"] == "ReducedRails")
        said = degraded()["message"]
        assert "agent " in said and "fake1 port 1" in said and "1 of 2 ports are up" in said, said
        version(2)
        port(c, 1, True)
        c.until("it is up again", lambda: degraded()["reason"] == "AsExpected")
        version(3)
        quit_all(t + r)


def without_a_device_it_is_said_and_it_ends():
    with Cluster() as c:
        c.operator()
        none = {**fake(c), "FAKEVERBS_DEVICES": " "}
        for env, more, words in ((None, (), "no RDMA"), (none, (), "no device that may be opened"),
                                 (fake(c), ("--rail-device", "fake1,fake7"), "no device 'fake7', which rail 1 names")):
            try:
                c.agent("t0", *VERBS, *more, env=env)
            except Failed as e:
                assert words in str(e), e
            else:
                raise AssertionError("an agent without a device has started")


if __name__ == "__main__":
    run(over_one_rail, over_two_rails_each_with_its_device_and_staged,
        over_rails_that_are_the_network_interfaces_of_devices,
        keys_are_in_the_status_and_windows_can_be_turned_off, a_port_that_is_down_is_in_the_status_until_it_is_up,
        without_a_device_it_is_said_and_it_ends)
