# SPDX-License-Identifier: Apache-2.0
"""A plan that cannot work between these agents is refused when it is made, by a sentence in the
status that names who and how much; nobody is Torn for it."""
import json
import resource

from cluster import Cluster, run

OPEN_FILES = 270  # 256 are kept for what is no connection
WAITING = ("WaitingForSourceMaps", "WaitingForAgents", "TransferInProgress", "AgentLost", "PlanOutdated")


def planned(c):
    """The condition, once a plan was tried."""
    status = json.loads(c.get(c.op, "/objects")[1])["items"][0]["status"]
    for cond in status["conditions"]:
        if (cond["type"], cond["status"]) == ("Planned", "False") and cond["reason"] not in WAITING:
            return cond
    return None


def pods(c, **args):
    """A trainer and two engines, each at an agent of its own.  `args`: by pod, how its agent is started."""
    for name in ("t0", "r0", "r1"):
        given = args.get(name, {})
        c.agent(name, *given.get("args", ()), prefix=given.get("prefix", ()))


def workers(c):
    return [c.worker("t0", "trainer")] + [c.worker(f"r{i}", "rollout", engine=f"e{i}") for i in range(2)]


def refused(c, reason, *sentences):
    """Until the plan is refused for a reason, with a sentence of one of the agents."""
    cond = c.until("the plan is refused", lambda: planned(c))
    assert (cond["status"], cond["reason"]) == ("False", reason), cond
    assert any(s in cond["message"] for s in sentences), cond
    print(cond["message"])


def soft_limits_of_open_files_are_raised():
    with Cluster() as c:
        was = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, was[1]))
        try:
            c.operator(engines=2)
            pods(c)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, was)
        for daemon in (c.op, *c.agents.values()):
            assert resource.prlimit(daemon.p.pid, resource.RLIMIT_NOFILE) == (was[1], was[1]), daemon.name
        for w in workers(c):
            w.expect("planned")


def too_few_open_files_refuse_the_plan():
    with Cluster() as c:
        c.operator(engines=2)
        pods(c, r0={"prefix": ("prlimit", f"--nofile={OPEN_FILES}")})
        workers(c)
        refused(c, "OpenFilesLimitTooSmall",
                "agent r0 cannot take the plan: the 3 agents of this plan, with the plan that will follow it "
                "and other objects here, take up to 276 open files, and the hard limit is 270: raise it")


def two_transports_refuse_the_plan():
    with Cluster() as c:
        c.operator(engines=2)
        pods(c, r1={"args": ("--transport", "shm")})
        workers(c)
        refused(c, "NoCommonTransport",
                "agent t0 moves weights over tcp and agent r1 over shm: start all agents of an object with "
                "the same --transport",
                "agent r0 moves weights over tcp and agent r1 over shm",
                "agent r1 moves weights over shm and agent t0 over tcp")


if __name__ == "__main__":
    run(soft_limits_of_open_files_are_raised, too_few_open_files_refuse_the_plan, two_transports_refuse_the_plan)
