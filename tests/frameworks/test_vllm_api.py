# SPDX-License-Identifier: Apache-2.0
"""A trainer drives vLLM by vLLM's own interface for trainers: vLLM's factory makes its sender, which tells the whole vLLM
through vLLM's four calls what to do while the weights go through agents.  After each of two updates every tensor in every
worker of the engine is byte by byte what the trainer exported, and, where this is looked at, it generates what an engine
generates that was started from the export."""
import os
import subprocess
import sys

from fx import VERSIONS, WAIT, Cluster, Deployment, base_env, make_model, python, run


def deploy(c, model, n_senders, per_engine, n=2, generates=False, **more):
    make_model(model, c.path("model"))
    os.mkdir(c.path("exports"))
    d = Deployment(c, n_senders, per_engine)
    common = {"script": "vllm_api.py", "model": c.path("model"), "exports": c.path("exports"), "versions": VERSIONS,
              "calls": c.path("calls"), "wait": WAIT}
    r = d.worker("vllm", "llm", "serve", role="engine", group="e0", n=per_engine, generates=generates, **common)
    r.expect("listening", WAIT)
    return r, [d.worker("vllm", f"trainer{i}", "train", role="trainer", rank=i, n=n, group="t", dtype="float32",
                        engine_socket=c.agents["serve"].socket, **common, **more) for i in range(n)]


def updates(model, n_senders, per_engine, **more):
    python("torch")
    python("vllm")
    with Cluster() as c:
        r, t = deploy(c, model, n_senders, per_engine, **more)
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
             a_trainer_without_anything_to_send_is_told]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
