# SPDX-License-Identifier: Apache-2.0
"""send_weights while one is in flight: from other threads, from workers that are a version ahead."""
from cluster import Cluster, Failed, run
from test_transfer import deploy, send, sent, updated

SLOWLY = ("--rail-rate", "2M")  # a megabyte takes half a second


def a_second_send_of_the_same_worker_is_refused_and_the_first_arrives():
    with Cluster() as c:
        t, r = deploy(c, trainers=1, per_engine=1, args=SLOWLY, rows=512, cols=512, tensors=2)
        t[0].say("second 1")
        said = [t[0].expect(r"^refused (-\d+) (.*)", reject="^sent|^error") for _ in range(2)]
        assert any("another thread is inside send_weights of this worker" in m[2]
                   for m in said), [m[0] for m in said]
        assert any("(version 1) is still in flight after 0.3 s" in m[2] for m in said), \
            [m[0] for m in said]
        t[0].expect("^sent 1 .*e0=Committed")
        updated(r["e0"], 1)
        send(t, 2)
        sent(t, 2, "e0=Committed")
        updated(r["e0"], 2)


def workers_that_disagree_about_the_version_are_both_named():
    for pods, names in ((1, r"1 by t0/worker \d, 2 by t0/worker \d"), (2, "1 at t0, 2 at t1")):
        with Cluster() as c:
            t, r = deploy(c, trainers=2, pods=pods)
            t[0].say("send 1")
            t[1].say("send 2")
            for w in t:
                w.expect(f"error .*different versions.*({names}|{swapped(names)})", reject="^sent")
            send(t, 3)
            sent(t, 3, "e0=Committed")
            updated(r["e0"], 3)


def swapped(names):
    """The workers may attach in either order."""
    return ", ".join(reversed(names.split(", ")))


def a_worker_that_is_ahead_waits_for_the_others():
    with Cluster() as c:
        t, r = deploy(c, trainers=2, pods=2, args=SLOWLY, rows=256, cols=256)
        t[0].say("send 1")
        t[0].say("send 2")  # as soon as it has 1
        t[1].say("send 1")
        sent(t, 1, "e0=Committed")
        updated(r["e0"], 1)
        try:
            t[0].expect("(sent|released) 2", timeout=0.5)
            raise AssertionError("version 2 went out without the second trainer")
        except Failed:
            pass
        t[1].say("send 2")
        sent(t, 2, "e0=Committed")
        updated(r["e0"], 2)


if __name__ == "__main__":
    run(a_second_send_of_the_same_worker_is_refused_and_the_first_arrives,
        workers_that_disagree_about_the_version_are_both_named,
        a_worker_that_is_ahead_waits_for_the_others)
