# SPDX-License-Identifier: Apache-2.0
"""Source maps of the reference engines: they build what the oracle says, in as many ops as there
are rectangles."""

import dataclasses
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), os.path.join(TOP, "tests"), HERE,
                os.path.join(TOP, "tests", "demo")]

import numpy as np  # noqa: E402

import test_engines as te  # noqa: E402
import weightbridge as wb  # noqa: E402
from engines import deploy, make, models, oracle, versions  # noqa: E402


def narrow(name, **sizes):
    """A model with all its layers and experts, and fewer rows and columns."""
    return dataclasses.replace(models.load(name), **sizes)


A = narrow("Moonlight-16B-A3B", hidden=64, intermediate=176, moe_intermediate=24, kv_lora_rank=32,
           qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, vocab=5120)
B = narrow("Qwen3-30B-A3B", hidden=64, moe_intermediate=24, vocab=4096, head_dim=8)
E = narrow("Qwen3-32B", hidden=80, intermediate=400, vocab=4096, head_dim=8)
# Worker, parameters, (tensor, rectangle) pairs: known from another generator of the geometry.
COUNTS = ((deploy.megatron(A, 8, tp=2, ep=8)[5], 714, 949),
          (deploy.engine("sglang", A, 8, ep=8)[3], 404, 1057),
          (deploy.megatron(B, 16, tp=4, ep=8)[5], 1875, 2739),
          (deploy.engine("sglang", B, 8, ep=8)[3], 435, 2739),
          (deploy.megatron(E, 16, tp=8, pp=2)[1], 257, 353),
          (deploy.megatron(E, 16, tp=8, pp=2)[9], 258, 354),
          (deploy.engine("sglang", E, 8)[2], 515, 707))


def one(config, spec, ckpt):
    engine = make(spec)
    found = wb.extract(engine.load_weights, models.tensors(config), engine.params, progress=False)
    for array, _ in engine.params.values():
        assert not array.any(), "a parameter was not put back"
    got = found.apply({n: t for n, t in ckpt.items()})
    want = oracle.build(spec, ckpt)
    assert got.keys() == want.keys(), spec
    for name, words in want.items():
        have = np.ascontiguousarray(got[name])
        assert have.tobytes() == words.tobytes(), f"{spec}: {name} differs"
    return found


def check_counts():
    """As many ops as rectangles at the tensor counts of real deployments."""
    for spec, n_params, n_ops in COUNTS:
        engine = make(spec)
        found = wb.extract(engine.load_weights, models.tensors(models.config(spec["model"])),
                           engine.params, progress=False)
        assert (len(found.param_names), found.n_ops) == (n_params, n_ops), (spec, found)


def main():
    check_counts()
    ckpts, worse, digests, n = {}, [], {}, 0
    # Every fourth worker; WB_ALL=1 runs all (half a minute on a quiet core).
    every = list(te.specs())
    some = every if os.environ.get("WB_ALL") else every[::4]
    for config, spec in some:
        key = str(config)
        if key not in ckpts:
            ckpts[key] = versions.random_checkpoint(config, 7)
        found = one(config, spec, ckpts[key])
        n += 1
        if found.n_ops > oracle.count(spec)[1] and not spec.get("flat"):
            worse.append((spec, found.n_ops, oracle.count(spec)))
        digests.setdefault(found.digest, spec)
    for spec, ops, count in worse:
        print(f"{ops} ops for {count[1]} rectangles: "
              f"{ {k: v for k, v in spec.items() if k != 'model'} } {spec['model']['arch']}")
    assert not worse
    print(f"{n} workers, {len(digests)} layouts")


main()
