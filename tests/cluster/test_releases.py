# SPDX-License-Identifier: Apache-2.0
"""Two releases of the operator that both serve all namespaces: one does, the other says so and stays idle."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import ApiServer, wait_for  # noqa: E402
from op import API, Operator, Worker, status, transfer_object  # noqa: E402

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"


def release(c, name):
    return Operator(c, 0, args=["--lease", f"default/{name}"])


def second_stays_idle(c):
    first = release(c, "first")
    wait_for(lambda: first.metric("wb_leader") == 1, 20)
    second = release(c, "second")
    wait_for(lambda: "this operator is idle" in second.text(), 20)
    assert "another release, with Lease default/first, serves the WeightTransfers of all namespaces" in second.text()
    wait_for(second.is_ready, 20)  # as a standby is
    assert second.metric("wb_leader") == 0 and second.metric("wb_objects") == 0
    w = Worker(c, second.ports["listen"], "lost", "trainer", 0, 1)
    wait_for(lambda: "this operator is idle" in w.agent.text(), 20)
    w.end()
    assert status(c)["conditions"] and second.text().count("cluster: this operator is idle") == 1
    return first, second


def its_replica_takes_over_from_it(c, first, second):
    """A change of leaders is not the end of a release."""
    replica = release(c, "first")
    wait_for(replica.is_ready, 20)
    assert first.stop() == 0
    wait_for(lambda: replica.metric("wb_leader") == 1, 30)
    assert second.metric("wb_leader") == 0
    return replica


def it_is_uninstalled(c, first, second):
    assert first.stop() == 0
    c.raw(LEASES.format("default", "first"), "DELETE")
    t0 = time.monotonic()
    wait_for(lambda: second.metric("wb_leader") == 1, 30)
    print(f"the second served {time.monotonic() - t0:.1f} s after the first one's Lease was gone")
    w = Worker(c, second.ports["listen"], "train", "trainer", 0, 1)
    wait_for(lambda: "operator connected" in w.agent.text(), 20)
    w.end()
    assert second.stop() == 0
    c.raw(LEASES.format("default", "second"), "DELETE")


def both_start_at_once(c):
    both = [release(c, f"race{i}") for i in range(2)]
    wait_for(lambda: [o.metric("wb_leader") for o in both].count(1) == 1, 40)
    idle = next(o for o in both if o.metric("wb_leader") == 0)
    wait_for(lambda: "this operator is idle" in idle.text(), 20)
    assert sum(o.metric("wb_leader") for o in both) == 1
    for o in both:
        assert o.stop() == 0


def main():
    with ApiServer() as c:
        c.install_crd()
        c.post(API, json.loads(transfer_object()))
        first, second = second_stays_idle(c)
        first = its_replica_takes_over_from_it(c, first, second)
        it_is_uninstalled(c, first, second)
        both_start_at_once(c)


if __name__ == "__main__":
    main()
