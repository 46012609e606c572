# SPDX-License-Identifier: Apache-2.0
"""A rank of a real engine is killed between two updates: vLLM's model classes cut over two ranks, fed by FSDP2 on two ranks.
The other rank and the trainers are told what is so, the killed rank is started again, and after the next update both ranks
are byte by byte what vLLM's loader makes of the trainer's export."""
import os
import signal
import sys

from fx import SHARDED, VLLM, WAIT, Cluster, Deployment, make_model, python, run


def equal(workers, version):
    for w in workers:
        m = w.expect(rf"equal {version}: (\d+) parameters, (\d+) bytes, (\d+) as before", WAIT)
        assert int(m[1]) > 10 and int(m[3]) == 0, m[0]
        print(f"{w.name}: {m[0]}", flush=True)


def start(c):
    make_model("qwen2", c.path("model"))
    os.mkdir(c.path("exports"))
    d = Deployment(c, 2, 2)
    common = {"model": c.path("model"), "exports": c.path("exports"), "versions": 2, "paced": [2]}
    return d, common, d.trainers(*SHARDED, 2, dtype="float32", **common), d.rollouts(*VLLM, 2, **common)


def again(d, common):
    """The rank anew.  vLLM's process groups want its neighbour to come, too, and that one is still the old process: another
    one is there for them."""
    peer = d.worker(*VLLM[:1], "peer", "serve", role="peer", kind=VLLM[1], rank=0, n=2, group="again", **common)
    return peer, d.worker(*VLLM[:1], "e0-1 again", "serve", role="rollout", kind=VLLM[1], rank=1, n=2, engine="e0",
                          group="again", first=2, **common)


def a_rank_killed_between_two_updates_comes_back_exact():
    python("torch")
    python("vllm")
    with Cluster() as c:
        d, common, t, r = start(c)
        equal(r, 1)
        for w in t:
            w.expect("sent 1", WAIT)
            w.expect("ready 2", WAIT)
        pid = r[1].p.pid
        os.kill(pid, signal.SIGKILL)
        assert r[1].wait(WAIT) == -signal.SIGKILL
        c.agents["serve"].expect("worker lost .*exited", WAIT, reject=None)
        for w in t:  # nobody is told that an engine has what only one of its ranks could have
            w.say("send")
        for w in t:
            m = w.expect(r"not sent 2: TransferAborted: .* serve/worker \d \(rank 1\) is not attached\.  The engines keep the "
                         "weights they had", WAIT, reject="^sent")
            print(f"{w.name}: {m[0]}", flush=True)
        r[0].say("look")
        r[0].expect("nothing for 2", WAIT)
        common.pop("paced")
        peer, new = again(d, common)
        new.expect("connected", WAIT)
        for w in t:
            w.say("send")
        equal([r[0], new], 2)
        for w in t:
            w.expect("sent 2", WAIT)
        for w in (*t, r[0], new):
            assert w.wait(WAIT) == 0, w.name
        peer.kill()


if __name__ == "__main__":
    tests = [a_rank_killed_between_two_updates_comes_back_exact]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
