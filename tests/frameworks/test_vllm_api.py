# SPDX-License-Identifier: Apache-2.0
"""A trainer drives vLLM by vLLM's own interface for trainers: vLLM's factory makes its sender, which tells the whole vLLM
through vLLM's four calls what to do while the weights go through agents.  After each of two updates every tensor in every
worker of the engine is byte by byte what the trainer exported, and, where this is looked at, it generates what an engine
generates that was started from the export."""
import os
import signal
import subprocess
import sys

from fx import VERSIONS, WAIT, Cluster, Deployment, base_env, make_model, python, run
from vllm_api import Client


def deploy(c, model, n_senders, per_engine, n=2, generates=False, **more):
    """The engine, and what starts the trainer's ranks; they may be told other things each time."""
    make_model(model, c.path("model"))
    os.mkdir(c.path("exports"))
    d = Deployment(c, n_senders, per_engine)
    common = {"script": "vllm_api.py", "model": c.path("model"), "exports": c.path("exports"), "versions": VERSIONS,
              "calls": c.path("calls"), "wait": WAIT}
    r = d.worker("vllm", "llm", "serve", role="engine", group="e0", n=per_engine, generates=generates, **common)
    r.expect("listening", WAIT)
    common.update(role="trainer", n=n, group="t", dtype="float32", engine_socket=c.agents["serve"].socket, **more)
    return r, lambda **said: [d.worker("vllm", f"trainer{i}", "train", rank=i, **{**common, **said}) for i in range(n)]


def updates(model, n_senders, per_engine, **more):
    python("torch")
    python("vllm")
    with Cluster() as c:
        r, trainers = deploy(c, model, n_senders, per_engine, **more)
        t = trainers()
        for version in range(1, VERSIONS + 1):
            m = r.expect(rf"received {version}: (\d+) tensors in {per_engine} workers, (\d+) as before", WAIT)
            assert int(m[1]) > 10 and int(m[2]) == 0, m[0]
            print(f"{model}: {m[0]}", flush=True)
            for w in t:
                w.expect(f"sent {version}", WAIT)
            if version == 1 and more.get("numbered"):
                for w in t:
                    print(w.name, w.expect("not sent: .*different versions.*", WAIT)[0], flush=True)
        for version in range(1, VERSIONS + 1) if more.get("generates") else ():
            print(f"{model}:", r.expect(f"equal {version}: .*", WAIT)[0], flush=True)
        for w in (*t, r):
            assert w.wait(WAIT) == 0, w.name


def a_trainer_sends_its_shards():
    updates("llama", 2, 2, gives="sender", numbered=True, generates=True)


def a_trainer_that_was_killed_is_started_again():
    """In the middle of its calls; to the engine, which it had connected, the new one's calls are like the first one's."""
    python("torch")
    python("vllm")
    with Cluster() as c:
        r, trainers = deploy(c, "llama", 1, 1, n=1, gives="sender")
        t, = trainers(dies=2)
        print(r.expect("received 1: .* 0 as before", WAIT)[0], flush=True)
        assert t.wait(WAIT) == -signal.SIGKILL
        try:
            Client(c.path("calls")).init_weight_transfer_engine({"engine": "e1"})
        except RuntimeError as e:
            assert "this engine is connected already, as Init(engine='e0'" in str(e), e
        else:
            raise AssertionError("an engine took another name")
        t, = trainers(first=2, model=c.path("exports/v1"), group="t-again")
        t.expect("^connected", WAIT)
        print(r.expect("received 2: .* 0 as before", WAIT)[0], flush=True)
        assert t.wait(WAIT) == r.wait(WAIT) == 0


def a_trainer_without_anything_to_send_is_told():
    python("torch")
    python("vllm")
    with Cluster() as c:
        make_model("llama", c.path("model"))
        d = Deployment(c, 1, 1)
        t = d.worker("vllm", "trainer0", "train", script="vllm_api.py", role="trainer", rank=0, n=1, group="t", gives="nothing",
                     model=c.path("model"), wait=WAIT, engine_socket="", calls="")
        print(t.expect("^error .*nothing to send: give TrainerInit a `sender`, or the factory a `source`", WAIT, reject=None)[0])


def after_a_transfer_that_failed_the_next_one_can_be_sent():
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm_rounds.py")
    p = subprocess.run([python("vllm"), script], env=base_env(), capture_output=True, text=True, timeout=WAIT)
    assert p.returncode == 0, p.stdout + p.stderr
    print(p.stdout, end="", flush=True)


if __name__ == "__main__":
    tests = [after_a_transfer_that_failed_the_next_one_can_be_sent, a_trainer_sends_its_shards,
             a_trainer_that_was_killed_is_started_again, a_trainer_without_anything_to_send_is_told]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
