# SPDX-License-Identifier: Apache-2.0
"""A rank of an engine, or of a trainer, is killed between two updates: KILLED in matrix.py.

Of an engine: the trainer's ranks are told by name that nothing was sent, and each rank of the engine that lives keeps what it
has, byte by byte.  (An engine of one rank is gone whole: it is back before trainers send.)  Then of vLLM's engine the killed
rank is started again, of the others all ranks, since theirs connect together.  After the next update every rank of the engine
is byte by byte what the engine's own loader makes of the trainer's export.

Of a trainer, when it has stepped and before it sends: each rank that lives is told which rank is missing if it sends, and
its next collective call ends it, as a launcher would.  Each rank of the engine keeps what it has, and waits on.  Then all
ranks of the trainer are started again, from the checkpoint of the version before and with a new optimizer.  They find the
source maps that the killed ones kept, and compare them with their loaders as at any start.  After their first update every
rank of the engine is byte by byte what its own loader makes of their export, which is not what the killed trainer wrote."""
import filecmp
import os
import signal
import sys

import matrix
from fx import SLOW, WAIT, Cluster, Deployment, make_model, python, run

PATIENCE = 3.0 * SLOW  # s; of a trainer that tries to send


def equal(workers, version):
    for w in workers:
        m = w.expect(rf"equal {version}: (\d+) parameters, (\d+) bytes, (\d+) as before", WAIT)
        assert int(m[1]) > 10 and int(m[3]) == 0, m[0]
        print(f"{w.name}: {m[0]}", flush=True)


class Pair:
    """A trainer and an engine, and how one of them is started again."""

    def __init__(self, c, model, trainer, engine):
        self.trainer_env, self.trainer_kind, self.n, self.trainer_more = matrix.TRAINERS[trainer]
        self.engine_env, self.engine_kind, self.per_engine, engine_more = matrix.ENGINES[engine]
        make_model(model, c.path("model"))
        os.mkdir(c.path("exports"))
        self.d = Deployment(c, self.n, self.per_engine, forked=True)
        common = {"model": c.path("model"), "exports": c.path("exports"), "versions": 2}
        self.engine_more = {**common, **engine_more}
        self.trainer_more = {**common, **self.trainer_more, "dtype": "float32", "maps": c.path("maps")}
        self.t = [self.trainer(f"trainer{r}", r, group="t", paced=[2]) for r in range(self.n)]
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

    def new_trainer(self, checkpoint):
        self.t = [self.trainer(f"trainer{r} again", r, group="t-again", first=2, model=checkpoint) for r in range(self.n)]
        for w in self.t:
            w.expect("connected, its map was kept", WAIT)

    def trainer(self, name, rank, **said):
        return self.d.worker(self.trainer_env, name, "train", role="trainer", kind=self.trainer_kind, rank=rank, n=self.n,
                             **{**self.trainer_more, **said})

    def engine(self, name, rank, **said):
        return self.d.worker(self.engine_env, name, "serve", kind=self.engine_kind, rank=rank, n=self.per_engine, group="again",
                             **said, **self.engine_more)


def end(workers):
    for w in workers:
        w.kill()


def kill(c, agent, w):
    os.kill(w.p.pid, signal.SIGKILL)
    assert w.wait(WAIT) == -signal.SIGKILL
    c.agents[agent].expect("worker lost .*exited", WAIT, reject=None)


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


def left_alone(c, trainers, lost):
    """They try to send, and then go on without."""
    if trainers:
        c.until("the operator misses it", lambda: f"missing rank {lost}" in c.get(c.op, "/objects")[1], WAIT)
    for w in trainers:
        w.say(f"send {PATIENCE}")
    for w in trainers:
        m = w.expect(rf"not sent 2: WeightBridgeTimeout: .*trainer workers, missing rank {lost};.*", WAIT, reject="^sent")
        print(f"{w.name}: {m[0]}", flush=True)
        w.say("step")
    for w in trainers:
        m = w.expect("^error RuntimeError: .*closed.*", WAIT, reject="^sent|AssertionError")
        print(f"{w.name}: {m[0]}", flush=True)
        assert w.wait(WAIT) == 1, w.name


def sent(trainers, version):
    """The number of the transfer."""
    numbers = {int(w.expect(rf"sent {version}, transfer (\d+)", WAIT)[1]) for w in trainers}
    assert len(numbers) == 1, numbers
    return numbers.pop()


def differ(folder, other):
    """Whether no file of weights is the same in both."""
    names = {n for f in (folder, other) for n in os.listdir(f) if n.endswith(".safetensors")}
    return names and not filecmp.cmpfiles(folder, other, names, shallow=False)[0]


def the_engine_comes_back_exact(model, trainer, engine):
    python(matrix.TRAINERS[trainer][0])
    python(matrix.ENGINES[engine][0])
    with Cluster() as c:
        p = Pair(c, model, trainer, engine)
        equal(p.r, 1)
        for w in p.t:
            w.expect("ready 2", WAIT)
        kill(c, "serve", p.r[-1])
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


def the_trainer_comes_back_exact(model, trainer, engine):
    python(matrix.TRAINERS[trainer][0])
    python(matrix.ENGINES[engine][0])
    with Cluster() as c:
        p = Pair(c, model, trainer, engine)
        equal(p.r, 1)
        first = sent(p.t, 1)
        for w in p.t:
            w.expect("ready 2", WAIT)
        kill(c, "train", p.t[0])
        left_alone(c, p.t[1:], 0)
        look(p.r)
        os.rename(c.path("exports/v2"), c.path("exports/killed"))
        p.new_trainer(c.path("exports/v1"))
        equal(p.r, 2)
        assert sent(p.t, 2) > first
        assert differ(c.path("exports/v2"), c.path("exports/killed")), "what the killed trainer had would do as well"
        for w in (*p.t, *p.r):
            assert w.wait(WAIT) == 0, w.name


def tests():
    def test(row, comes_back, name):
        def one():
            comes_back(*row)
        one.__name__ = name.format(*row).replace(" ", "_")
        return one
    return [test(row, *what) for row in matrix.KILLED for what in (
        (the_engine_comes_back_exact, "{}_from_{}_to_{}_of_which_a_rank_is_killed"),
        (the_trainer_comes_back_exact, "{}_from_{}_of_which_a_rank_is_killed_to_{}"))]


if __name__ == "__main__":
    run(*[t for t in tests() if not sys.argv[1:] or any(word in t.__name__ for word in sys.argv[1:])])
