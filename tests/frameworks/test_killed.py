# SPDX-License-Identifier: Apache-2.0
"""A rank of an engine is killed between two updates: KILLED in matrix.py.

The trainer's ranks are told by name that nothing was sent, and each rank of the engine that lives keeps what it has, byte by
byte.  (An engine of one rank is gone whole: it is back before trainers send.)  Then of vLLM's engine the killed rank is
started again, of the others all ranks, since theirs connect together.  After the next update every rank of the engine is byte
by byte what the engine's own loader makes of the trainer's export."""
import os
import signal
import sys

import matrix
from fx import WAIT, Cluster, Deployment, make_model, python, run


def equal(workers, version):
    for w in workers:
        m = w.expect(rf"equal {version}: (\d+) parameters, (\d+) bytes, (\d+) as before", WAIT)
        assert int(m[1]) > 10 and int(m[3]) == 0, m[0]
        print(f"{w.name}: {m[0]}", flush=True)


class Pair:
    """A trainer and an engine, and how the engine is started again."""

    def __init__(self, c, model, trainer, engine):
        env, kind, n, more = matrix.TRAINERS[trainer]
        self.engine_env, self.engine_kind, self.per_engine, engine_more = matrix.ENGINES[engine]
        make_model(model, c.path("model"))
        os.mkdir(c.path("exports"))
        self.d = Deployment(c, n, self.per_engine, forked=True)
        common = {"model": c.path("model"), "exports": c.path("exports"), "versions": 2}
        self.engine_more = {**common, **engine_more}
        self.t = self.d.trainers(env, kind, n, paced=[2], dtype="float32", **common, **more)
        self.r = self.d.rollouts(self.engine_env, self.engine_kind, self.per_engine, paced=[2], **self.engine_more)
        self.peers = []

    def new_engine(self):
        """vLLM's process groups want the killed rank's neighbours to come, too, and these are still the old processes: others
        are there for them."""
        ranks = range(self.per_engine)
        if self.engine_kind == "VLLM":
            ranks = ranks[-1:]
            self.peers = [self.engine(f"peer{r}", r, role="peer") for r in range(self.per_engine - 1)]
        else:
            end(self.r)
        new = [self.engine(f"e0-{r} again", r, role="rollout", engine="e0", first=2) for r in ranks]
        self.r = self.r[:ranks[0]] + new
        for w in new:
            w.expect("connected", WAIT)

    def engine(self, name, rank, **said):
        return self.d.worker(self.engine_env, name, "serve", kind=self.engine_kind, rank=rank, n=self.per_engine, group="again",
                             **said, **self.engine_more)


def end(workers):
    for w in workers:
        w.kill()


def kill(c, w):
    os.kill(w.p.pid, signal.SIGKILL)
    assert w.wait(WAIT) == -signal.SIGKILL
    c.agents["serve"].expect("worker lost .*exited", WAIT, reject=None)


def refused(trainers, lost):
    """They try to send, and nobody is told that an engine has what only some of its ranks could have."""
    for w in trainers:
        w.say("send")
    for w in trainers:
        m = w.expect(rf"not sent 2: TransferAborted: .* {lost} is not attached\.  The engines keep the weights they had", WAIT,
                     reject="^sent")
        print(f"{w.name}: {m[0]}", flush=True)


def look(engines):
    for w in engines:
        w.say("look")
    for w in engines:
        print(f"{w.name}:", w.expect("nothing for 2", WAIT)[0], flush=True)


def comes_back_exact(model, trainer, engine):
    python(matrix.TRAINERS[trainer][0])
    python(matrix.ENGINES[engine][0])
    with Cluster() as c:
        p = Pair(c, model, trainer, engine)
        equal(p.r, 1)
        for w in p.t:
            w.expect("ready 2", WAIT)
        kill(c, p.r[-1])
        if p.per_engine > 1:  # of one rank, nothing is left of it that could be asked
            refused(p.t, rf"serve/worker \d \(rank {p.per_engine - 1}\)")
            look(p.r[:-1])
        p.new_engine()
        for w in p.t:
            w.say("send")
        equal(p.r, 2)
        for w in p.t:
            w.expect("sent 2", WAIT)
        for w in (*p.t, *p.r):
            assert w.wait(WAIT) == 0, w.name
        end(p.peers)


def tests():
    def test(row):
        def one():
            comes_back_exact(*row)
        one.__name__ = "{}_from_{}_to_{}_of_which_a_rank_is_killed".format(*row).replace(" ", "_")
        return one
    return [test(row) for row in matrix.KILLED]


if __name__ == "__main__":
    run(*[t for t in tests() if not sys.argv[1:] or any(word in t.__name__ for word in sys.argv[1:])])
