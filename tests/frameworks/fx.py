# SPDX-License-Identifier: Apache-2.0
"""What tests with real frameworks have in common: environments, tiny models, trainers and engines as processes.

A test runs in any Python; what imports a framework is a process of its own (worker.py, make_model.py)."""
import atexit
import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading

import forks
import matrix

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(TOP, "tests", "e2e"))

from cluster import Cluster, SLOW, Proc, limited, run  # noqa: E402,F401

WAIT = 240.0 * SLOW  # s; a framework takes 20 s to import on a busy machine


MADE = {}  # kind of a model: its folder


def base_env():
    """Bytecode of the frameworks is kept beside their environments: without it each start compiles it anew."""
    cache = os.environ.get("WB_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME")
                                                       or os.path.expanduser("~/.cache"), "weightbridge")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPYCACHEPREFIX": os.path.join(cache, "engines", "bytecode"), "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.path.join(TOP, "agent", "python"), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}  # no AMX: no_amx.py says why


@functools.cache
def python(name):
    """The Python of an environment; ends this test as skipped when there is none."""
    done = subprocess.run([sys.executable, os.path.join(HERE, "env.py"), name], stdout=subprocess.PIPE, text=True, check=False)
    said = done.stdout.strip().splitlines()
    if done.returncode:
        print(said[-1] if said else f"environment {name} cannot be made")
        sys.exit(77 if done.returncode == 77 else 1)
    return said[-1]


def make_model(kind, folder):
    """A tiny random model of that kind (make_model.py) in `folder`; it is made once by a test and copied from then on."""
    if kind not in MADE:
        made = os.path.join(tempfile.mkdtemp(prefix="wb-model-"), kind)
        atexit.register(shutil.rmtree, os.path.dirname(made))
        maker = Forked("maker", "torch", {"role": "maker", "kind": "Transformers", "model": kind, "folder": made})
        try:
            if maker.wait(WAIT):
                raise AssertionError(f"{kind} was not made: {maker.drain()}")
        finally:
            maker.kill()
        MADE[kind] = made  # whole: tests after one that failed here make it themselves
    shutil.copytree(MADE[kind], folder)


class Forked(Proc):
    """A worker of worker.py that was forked and not started."""

    def __init__(self, name, env, said):
        self.name, self.lines, self.seen, self.family = name, queue.Queue(), [], True
        self.p = forks.Forker.of(python(env), said["kind"], base_env()).fork(said)
        threading.Thread(target=self._read, daemon=True).start()


class Deployment:
    """An operator, an agent for trainers and one for engines, and their workers.  forked: these are of worker.py, by fork."""

    def __init__(self, c, trainers, per_engine, engines=("e0",), forked=False):
        self.c, self.engines, self.forked = c, engines, forked
        c.operator(trainers=trainers, per_engine=per_engine)
        c.agent("train")
        c.agent("serve")

    def worker(self, env, name, agent, script="worker.py", **said):
        """A process of worker.py, or of another script: what it is to be as JSON.  With `paced` it takes lines."""
        said = {"socket": self.c.agents[agent].socket, "store": self.c.path(f"store-{said['group']}"), **said}
        if self.forked:
            self.c.procs.append(Forked(name, env, said))
            return self.c.procs[-1]
        argv = ["nice", "-n", "2", python(env), os.path.join(HERE, script), json.dumps(said)]
        return self.c._start(name, argv, env=base_env(), family=True, stdin="paced" in said)

    def trainers(self, env, kind, n, **said):
        return [self.worker(env, f"trainer{r}", "train", role="trainer", kind=kind, rank=r, n=n, group="t", **said)
                for r in range(n)]

    def rollouts(self, env, kind, n, **said):
        return [self.worker(env, f"{e}-{r}", "serve", role="rollout", kind=kind, rank=r, n=n, engine=e, group=e, **said)
                for e in self.engines for r in range(n)]


# (environment, class of frameworks.py)
SHARDED, VLLM = ("torch", "FSDP2"), ("vllm", "VLLM")
VERSIONS = 2


def pair(model, trainer, engine):
    """A trainer and an engine of matrix.py: after every update each parameter of each rank of the engine is, byte by byte,
    what the engine's own loader makes of the checkpoint that the trainer's own exporter writes, and none is what it was
    before.  A trainer with PAD has more rows for the vocabulary than that checkpoint, and what is in them goes nowhere."""
    (env, kind, n, more), (engine_env, engine_kind, per_engine, engine_more) = matrix.TRAINERS[trainer], matrix.ENGINES[engine]
    python(env)
    python(engine_env)
    with Cluster() as c:
        folder = c.path("model")
        make_model(model, folder)
        os.mkdir(c.path("exports"))
        d = Deployment(c, n, per_engine, forked=True)
        common = {"model": folder, "exports": c.path("exports"), "versions": VERSIONS}
        t = d.trainers(env, kind, n, dtype="float32", begin=c.path("begin"), pad=matrix.PAD.get(model), **common, **more)
        r = d.rollouts(engine_env, engine_kind, per_engine, **common, **engine_more)
        for w in (*t, *r):  # or one that ends early would be looked for among those that wait for it
            w.expect("connected", WAIT)
        with open(c.path("begin"), "w", encoding="utf-8"):
            pass
        for version in range(1, VERSIONS + 1):
            for w in r:
                m = w.expect(rf"equal {version}: (\d+) parameters, (\d+) bytes, (\d+) as before", WAIT)
                assert int(m[1]) > 10 and int(m[3]) == 0, m[0]
                print(f"{model}, {w.name}: {m[0]}")
            for w in t:
                w.expect(f"sent {version}", WAIT)
        for w in (*t, *r):
            assert w.wait(WAIT) == 0, w.name


def pairs(file):
    """Runs the rows of matrix.py that are this file's, or those of them whose names are arguments."""
    def test(row):
        def one():
            pair(*row)
        one.__name__ = "{}_from_{}_to_{}".format(*row).replace(" ", "_")
        return one
    name = os.path.basename(file)[:-3]
    tests = [test(row) for row in matrix.ROWS if matrix.test_of(row) == name]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
