# SPDX-License-Identifier: Apache-2.0
"""FSDP2 sends to the whole vLLM: after each update it generates what a vLLM generates that was started from the
checkpoint that the trainer exported: the same tokens with the same probabilities."""
import os
import sys

from fx import SHARDED, VERSIONS, WAIT, Cluster, Deployment, make_model, python, run


def pair(model, per_engine):
    python("torch")
    python("vllm")
    with Cluster() as c:
        folder = c.path("model")
        make_model(model, folder)
        os.mkdir(c.path("exports"))
        d = Deployment(c, 2, per_engine)
        common = {"model": folder, "exports": c.path("exports"), "versions": VERSIONS}
        t = d.trainers(*SHARDED, 2, dtype="float32", **common)
        r = d.worker("vllm", "llm", "serve", script="llm.py", engine="e0", group="e0", n=per_engine, wait=WAIT, **common)
        for version in range(1, VERSIONS + 1):
            r.expect(f"updated {version}", WAIT)
            for w in t:
                w.expect(f"sent {version}", WAIT)
        for version in range(1, VERSIONS + 1):
            print(f"{model}, TP{per_engine}:", r.expect(f"equal {version}: .*", WAIT)[0], flush=True)
        for w in (*t, r):
            assert w.wait(WAIT) == 0, w.name


def a_model_with_tied_weights_says_the_same():
    pair("qwen3-tied", 1)


def a_model_cut_over_two_workers_says_the_same():
    pair("llama", 2)


def experts_are_refused_by_name():
    python("torch")
    python("vllm")
    with Cluster() as c:
        make_model("qwen3-moe", c.path("model"))
        d = Deployment(c, 1, 1)
        r = d.worker("vllm", "llm", "serve", script="llm.py", engine="e0", group="e0", n=1, wait=WAIT, versions=1,
                     model=c.path("model"), exports="")
        print(r.expect(r"layer model\.layers\.0\.\S+ holds experts, which .* does not load anew", WAIT, reject="^connected")[0])


if __name__ == "__main__":
    tests = [a_model_with_tied_weights_says_the_same, a_model_cut_over_two_workers_says_the_same, experts_are_refused_by_name]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
