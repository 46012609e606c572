# SPDX-License-Identifier: Apache-2.0
"""The workers of charts/examples/rl-job, as processes: versions arrive, and are what the oracle says; while the object
is suspended trainers wait."""
import os
import signal
import sys

from cluster import BUILD, SLOW, Cluster, run

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def pod(c, name, role, workers, **env):
    return c._start("job-" + name, [sys.executable, os.path.join(TOP, "charts", "examples", "rl-job", "job.py")], env={
        "ROLE": role, "WORKERS": str(workers), "TRAINERS": "2", "POD_NAME": name, "STEP": "0.2", "LAYERS": "1", "WIDTH": "16",
        "WB_CACHE": c.path("checkpoint"), "WEIGHTBRIDGE_SOCKET": c.agents[name].socket, "WB_BUILD": BUILD, "MODEL": "",
        "JOB_PATH": ":".join(os.path.join(TOP, p) for p in ("tests", "tests/demo", "agent/python")), **env})


def suspended(c, pods):
    """Nobody ends; trainers say what they wait for, and go on by themselves."""
    for value in (True, False):
        c.spec(2, 2, suspend=value)
        c.op.p.send_signal(signal.SIGHUP)
        for p in pods[:2]:
            p.expect(r"send_weights\(\) waits, for \d+ s now: version \d+ is not sent: the WeightTransfer is suspended" if value else r"sent \d+ final",
                     timeout=60 * SLOW, reject=r"Error")
    assert all(p.p.poll() is None for p in pods)
    pods[2].expect(r"update \d+ ok", timeout=60 * SLOW, reject=r"Error|update \d+ (?!ok)")


def both_engines_hold_every_version():
    with Cluster() as c:
        c.operator(trainers=2, per_engine=2)
        pods = []
        for name, role, workers, env in (("trainer-0", "trainer", 1, {}), ("trainer-1", "trainer", 1, {}),
                                         ("rollout-0", "rollout", 2, {"WEIGHTBRIDGE_ENGINE": "e0"}), ("rollout-1", "rollout", 2, {"WEIGHTBRIDGE_ENGINE": "e1"})):
            c.agent(name)
            pods.append(pod(c, name, role, workers, **env))
        try:
            for p in pods[2:]:
                for _ in range(3 * 2):
                    line = p.expect(r"update \d+ .*", timeout=60 * SLOW, reject=r"Error|update \d+ (?!ok)").string
                    print(p.name, line)
                    assert line.endswith(" ok"), line
            pods[0].expect(r"sent 3 ", timeout=60 * SLOW)
            suspended(c, pods)
        finally:
            for p in pods:  # each ends its workers; killed, it would leave them behind
                p.stop(timeout=20)


if __name__ == "__main__":
    run(both_engines_hold_every_version)
