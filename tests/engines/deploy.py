# SPDX-License-Identifier: Apache-2.0
"""Specs of whole deployments: all workers of a trainer, all workers of an engine, layout pairs."""
from . import base, generic as any_model, models

# A dense model of 512 MiB (and some KiB of norms) for benchmarks of resharding.
BENCH_512M = models.config({
    "arch": "qwen3", "layers": 3, "hidden": 2048, "heads": 16, "kv_heads": 8, "head_dim": 128,
    "vocab": 38912, "intermediate": 8192, "tie_word_embeddings": True})


def megatron(c, world, tp=1, pp=1, ep=1, **settings):
    """Specs of a Megatron trainer by global rank: order tp, cp, ep, dp, pp; experts have TP 1."""
    stage = base.share(world, pp, "world")
    base.share(stage, tp, "workers of a stage")
    base.share(stage, ep, "workers of a stage")
    return [{"framework": "megatron", "model": c.to_dict(), "tp": tp, "tp_rank": r % stage % tp,
             "pp": pp, "pp_rank": r // stage, "ep": ep, "ep_rank": r % stage % ep, **settings}
            for r in range(world)]


def fsdp2(c, world, **settings):
    """Specs of an FSDP2 trainer by rank."""
    return [{"framework": "fsdp2", "model": c.to_dict(), "world": world, "rank": r, **settings}
            for r in range(world)]


def engine(framework, c, tp, pp=1, **settings):
    """Specs of the workers of one rollout engine, stage by stage."""
    return [{"framework": framework, "model": c.to_dict(), "tp": tp, "tp_rank": t, "pp": pp,
             "pp_rank": s, **settings} for s in range(pp) for t in range(tp)]


def generic(m, role, parts):
    """Specs of workers that share any tensors: see generic.py."""
    specs = [{"framework": "generic", "role": role, "parts": parts, "part": i, "tensors": m.tensors}
             for i in range(parts)]
    idle = sum(not any_model.holds(spec) for spec in specs)
    if idle:
        raise models.ModelError(f"tensors with elements: {len(m.tensors)}, which are too few to share by "
                                f"rows: nothing is left for {idle} of {parts} {role} workers")
    return specs


def demo(c):
    """(trainer specs, list of engines' specs) of `make demo`."""
    if isinstance(c, any_model.Model):
        return generic(c, "trainer", 4), [generic(c, "rollout", 2)] * 2
    return megatron(c, 4, tp=2, pp=2), [engine("vllm", c, 2, tied="alias")] * 2


def _uneven(c, stages, last):
    """Layers of each stage when the last one has fewer."""
    rest = base.share(c.layers - last, stages - 1, "layers before the last stage")
    return [rest] * (stages - 1) + [last]


def pair(name):
    """(trainer specs, list of engines' specs) of a layout pair at full size.

    Letters are deployments in use, e a dense model of agents: a Moonlight-16B,
    b Qwen3-30B, c Qwen3-235B, d Kimi-K2, e Qwen3-32B.
    """
    load = models.load
    if name == "same":
        c = load("Qwen3-0.6B")
        return megatron(c, 1), [engine("vllm", c, 1)]
    if name == "fsdp":
        c = load("Qwen3-0.6B")
        return fsdp2(c, 4), [engine("vllm", c, 1)]
    if name == "a":
        c = load("Moonlight-16B-A3B")
        return megatron(c, 8, tp=2, ep=8), [engine("sglang", c, 8, ep=8)]
    if name == "b":
        c = load("Qwen3-30B-A3B")
        return megatron(c, 16, tp=4, ep=8), [engine("sglang", c, 8, ep=8)] * 2
    if name == "c":
        c = load("Qwen3-235B-A22B")
        return (megatron(c, 128, tp=4, pp=4, ep=16, stages=_uneven(c, 4, 22)),
                [engine("sglang", c, 32, ep=32)] * 2)
    if name == "d":
        c = load("Kimi-K2-Instruct")
        return (megatron(c, 256, tp=8, pp=8, ep=32, stages=_uneven(c, 8, 5)),
                [engine("sglang", c, 32, ep=32, dp=8, dense_tp=1)] * 8)
    if name == "e":
        c = load("Qwen3-32B")
        return megatron(c, 16, tp=8, pp=2), [engine("sglang", c, 8)] * 2
    raise ValueError(f"no pair {name!r}: same, fsdp, a, b, c, d or e")
