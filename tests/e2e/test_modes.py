# SPDX-License-Identifier: Apache-2.0
"""The synchronisation modes through whole deployments of processes."""
import sys

from cluster import Cluster, run
from test_transfer import deploy, quit_all, updated


def a_hold_keeps_parameters_until_release():
    with Cluster() as c:
        t, r = deploy(c, engines=2)
        rollouts = sum(r.values(), [])
        for v in (1, 2, 3):
            for w in t:
                w.say(f"hold {v}")
            for w in t:
                w.expect(f"released {v}")
            if v == 2:  # the outcome does not wait for the end of the hold
                updated(rollouts, v)
            for w in t:
                w.say("release")
            for w in t:
                w.expect("let go")
                w.expect(f"sent {v} .*e0=Committed e1=Committed")
            if v != 2:
                updated(rollouts, v)
        quit_all(t + rollouts)


if __name__ == "__main__":
    names = sys.argv[1:]
    tests = [a_hold_keeps_parameters_until_release]
    run(*[t for t in tests if not names or t.__name__ in names])
