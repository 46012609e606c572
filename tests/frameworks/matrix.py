#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""matrix.py   Which trainer sends which model to which engine in these tests, and why the others do not: a line a combination.
matrix.py --table   The table of README.md.

The tests take their pairs from ROWS, so that what is said to run is what runs.  tests/py/test_matrix.py wants every other
combination to have a reason, and README to have this table."""
import sys

# name: (environment, class of frameworks.py, ranks, what worker.py is told more)
TRAINERS = {
    "Transformers": ("torch", "Transformers", 1, {}),
    "FSDP2 on 2 ranks": ("torch", "FSDP2", 2, {}),
    "FSDP2 on 3 ranks": ("torch", "FSDP2", 3, {}),
    "Megatron TP2": ("megatron", "Megatron", 2, {"parallel": {"tp": 2}}),
    "Megatron PP2": ("megatron", "Megatron", 2, {"parallel": {"pp": 2}}),
    "Megatron EP2": ("megatron", "Megatron", 2, {"parallel": {"ep": 2}}),
    "Megatron TP2 EP2": ("megatron", "Megatron", 2, {"parallel": {"tp": 2, "ep": 2}}),
    "Megatron PP2 VP2": ("megatron", "Megatron", 2, {"parallel": {"pp": 2, "vp": 2}}),
    "Megatron DP2 DDP": ("megatron", "Megatron", 2, {"parallel": {"wrapped": True}, "moves": 2}),
    "Megatron EP2 DDP": ("megatron", "Megatron", 2, {"parallel": {"ep": 2, "wrapped": True}, "moves": 2}),
}
ENGINES = {
    "Transformers": ("torch", "Transformers", 1, {}),
    "vLLM TP1": ("vllm", "VLLM", 1, {}),
    "vLLM TP2": ("vllm", "VLLM", 2, {}),
    "vLLM TP2 EP2": ("vllm", "VLLM", 2, {"ep": True}),
    "SGLang TP1": ("sglang", "SGLang", 1, {}),
    "SGLang TP2": ("sglang", "SGLang", 2, {}),
    "SGLang TP2 EP2": ("sglang", "SGLang", 2, {"ep": True}),
    "SGLang DP2": ("sglang", "SGLang", 2, {"dp": True}),
}
# kind of make_model.py: as the table calls it.  Each has a vocabulary of 1000, which vLLM and SGLang pad to 1024, but for
# those with a multiple below.
MODELS = {"llama": "L", "llama-tied": "Lt", "qwen2": "Q2", "qwen3": "Q3", "qwen3-tied": "Q3t", "qwen3-moe": "M", "deepseek-v3": "D",
          "llama-deep": "L4", "qwen3-moe-deep": "M4",
          "llama-odd": "Lo", "qwen3-tied-odd": "Qo", "qwen3-moe-odd": "Mo", "deepseek-v3-odd": "Do"}
# What trainers pad the vocabulary of 293 of these models to a multiple of, Megatron times its TP; vLLM and SGLang pad it to
# 320.  With 128 every rank has words and some have padding, too: 512 rows in Megatron TP2, 384 in the others.  With 512 there
# are ranks that have padding alone: the second of Megatron TP2 (of 1024 rows), the third of FSDP2 on 3 (of 512).
PAD = {"llama-odd": 128, "qwen3-tied-odd": 512, "qwen3-moe-odd": 512, "deepseek-v3-odd": 128}
DEEP = ("llama-deep", "qwen3-moe-deep")  # four layers: two virtual stages on each of two pipeline stages
EXPERTS = ("qwen3-moe", "deepseek-v3", "qwen3-moe-deep", "qwen3-moe-odd", "deepseek-v3-odd")

# model, trainer, engine.  Each trainer and each engine has every model it can have at least once, mostly with another partner.
ROWS = [
    ("llama-tied", "Transformers", "Transformers"),
    ("qwen3-moe", "Transformers", "Transformers"),
    ("llama", "FSDP2 on 2 ranks", "Transformers"),
    ("qwen3-tied", "FSDP2 on 2 ranks", "Transformers"),
    ("qwen3-moe", "FSDP2 on 2 ranks", "Transformers"),
    ("qwen2", "FSDP2 on 3 ranks", "Transformers"),  # uneven and empty shards
    ("qwen3-tied", "FSDP2 on 3 ranks", "Transformers"),
    ("deepseek-v3", "Transformers", "Transformers"),
    ("qwen3-moe", "Megatron TP2 EP2", "Transformers"),
    ("qwen2", "Megatron PP2", "Transformers"),
    ("llama-tied", "Megatron PP2", "Transformers"),
    ("qwen3-moe", "Megatron EP2", "Transformers"),
    ("qwen3", "Megatron TP2", "Transformers"),
    ("deepseek-v3", "Megatron TP2", "Transformers"),
    ("deepseek-v3", "Megatron PP2", "Transformers"),
    ("deepseek-v3", "Megatron EP2", "Transformers"),
    ("deepseek-v3", "Megatron TP2 EP2", "Transformers"),
    ("llama", "Transformers", "vLLM TP1"),
    ("llama-tied", "Megatron TP2", "vLLM TP1"),
    ("qwen2", "FSDP2 on 3 ranks", "vLLM TP1"),
    ("qwen3", "FSDP2 on 2 ranks", "vLLM TP1"),
    ("qwen3-tied", "Megatron PP2", "vLLM TP1"),
    ("qwen3-moe", "Megatron EP2", "vLLM TP1"),
    ("deepseek-v3", "Transformers", "vLLM TP1"),
    ("llama", "FSDP2 on 3 ranks", "vLLM TP2"),
    ("llama-tied", "FSDP2 on 2 ranks", "vLLM TP2"),
    ("qwen2", "Megatron TP2", "vLLM TP2"),
    ("qwen3", "Megatron PP2", "vLLM TP2"),
    ("qwen3-tied", "FSDP2 on 2 ranks", "vLLM TP2"),
    ("qwen3-moe", "Transformers", "vLLM TP2"),
    ("deepseek-v3", "FSDP2 on 2 ranks", "vLLM TP2"),
    ("qwen3-moe", "FSDP2 on 2 ranks", "vLLM TP2 EP2"),
    ("qwen3-moe", "Megatron TP2 EP2", "vLLM TP2 EP2"),
    ("deepseek-v3", "FSDP2 on 3 ranks", "vLLM TP2 EP2"),
    ("llama", "Megatron TP2", "SGLang TP1"),
    ("llama-tied", "FSDP2 on 3 ranks", "SGLang TP1"),
    ("qwen2", "FSDP2 on 2 ranks", "SGLang TP1"),
    ("qwen3", "Transformers", "SGLang TP1"),
    ("qwen3-tied", "Megatron TP2", "SGLang TP1"),
    ("qwen3-moe", "FSDP2 on 3 ranks", "SGLang TP1"),
    ("deepseek-v3", "FSDP2 on 2 ranks", "SGLang TP1"),
    ("llama", "Megatron PP2", "SGLang TP2"),
    ("llama-tied", "FSDP2 on 2 ranks", "SGLang TP2"),
    ("qwen2", "Transformers", "SGLang TP2"),
    ("qwen3", "FSDP2 on 3 ranks", "SGLang TP2"),
    ("qwen3-tied", "Transformers", "SGLang TP2"),
    ("qwen3-moe", "Megatron TP2", "SGLang TP2"),
    ("deepseek-v3", "Transformers", "SGLang TP2"),  # latent attention, a shared expert, a router's bias
    ("qwen3-moe", "FSDP2 on 2 ranks", "SGLang TP2 EP2"),
    ("qwen3-moe", "Megatron EP2", "SGLang TP2 EP2"),
    ("deepseek-v3", "FSDP2 on 3 ranks", "SGLang TP2 EP2"),
    ("llama", "FSDP2 on 2 ranks", "SGLang DP2"),
    ("llama-tied", "Transformers", "SGLang DP2"),
    ("qwen2", "Megatron PP2", "SGLang DP2"),
    ("qwen3", "Transformers", "SGLang DP2"),
    ("qwen3-tied", "FSDP2 on 3 ranks", "SGLang DP2"),
    ("qwen3-moe", "FSDP2 on 2 ranks", "SGLang DP2"),
    ("qwen3-moe", "Megatron PP2", "SGLang DP2"),
    ("deepseek-v3", "FSDP2 on 2 ranks", "SGLang DP2"),
    # Padding on the trainer's side, by each that pads to each way of padding and cutting in engines.
    ("llama-odd", "FSDP2 on 3 ranks", "Transformers"),
    ("qwen3-tied-odd", "Megatron PP2", "Transformers"),
    ("llama-odd", "Megatron TP2", "vLLM TP1"),
    ("llama-odd", "FSDP2 on 2 ranks", "vLLM TP1"),
    ("qwen3-tied-odd", "Transformers", "vLLM TP1"),
    ("qwen3-tied-odd", "Megatron TP2", "vLLM TP2"),
    ("qwen3-tied-odd", "FSDP2 on 2 ranks", "vLLM TP2"),
    ("llama-odd", "Transformers", "vLLM TP2"),
    ("qwen3-tied-odd", "Megatron TP2", "SGLang TP1"),
    ("qwen3-tied-odd", "FSDP2 on 2 ranks", "SGLang TP1"),
    ("llama-odd", "Transformers", "SGLang TP1"),
    ("llama-odd", "Megatron TP2", "SGLang TP2"),
    ("llama-odd", "FSDP2 on 2 ranks", "SGLang TP2"),
    ("qwen3-tied-odd", "Transformers", "SGLang TP2"),
    ("llama-odd", "Megatron PP2", "SGLang DP2"),
    ("qwen3-tied-odd", "FSDP2 on 3 ranks", "SGLang DP2"),
    # The same with experts: once by each trainer.
    ("qwen3-moe-odd", "Transformers", "SGLang DP2"),
    ("qwen3-moe-odd", "FSDP2 on 2 ranks", "vLLM TP2 EP2"),
    ("qwen3-moe-odd", "Megatron EP2", "vLLM TP1"),
    ("qwen3-moe-odd", "Megatron TP2 EP2", "SGLang TP2 EP2"),
    ("deepseek-v3-odd", "FSDP2 on 3 ranks", "SGLang TP2 EP2"),
    ("deepseek-v3-odd", "Megatron TP2", "vLLM TP2"),
    ("deepseek-v3-odd", "Megatron PP2", "SGLang TP1"),
    ("deepseek-v3-odd", "Megatron EP2", "Transformers"),
    # Chunks of the layers; Megatron's DDP with its distributed optimizer.
    ("llama-deep", "Megatron PP2 VP2", "Transformers"),
    ("qwen3-moe-deep", "Megatron PP2 VP2", "vLLM TP2 EP2"),
    ("llama", "Megatron DP2 DDP", "SGLang TP2"),
    ("qwen3-tied", "Megatron DP2 DDP", "vLLM TP2"),
    ("qwen3-moe", "Megatron EP2 DDP", "Transformers"),
]

# Rows in which a rank is killed between the two updates: the last of the engine, and in another run the first of the trainer.
KILLED = [
    ("llama-tied", "FSDP2 on 2 ranks", "vLLM TP2"),
    ("qwen3-moe", "Megatron TP2", "SGLang TP2"),
    ("llama-tied", "Transformers", "Transformers"),
]

PARTS = "not this pair: trainer and engine have this model in others"
APART = "not this pair: the trainer pads a model with experts in another, the engine has these experts in another"
STAGES = "models of four layers are for virtual stages, and these for them"
UNSEEN = "not this pair: an engine sees nothing of virtual stages, and has this kind of model with two layers in another"
WRAPPED = "not this pair: DDP sees nothing of the model, which the same trainer has without it in another"


def test_of(row):
    """The file of tests/frameworks that runs a row."""
    _, trainer, engine = row
    named = {"vLLM": "test_vllm_loader", "SGLang": "test_sglang"}.get(engine.split()[0])
    return named or ("test_megatron" if trainer.startswith("Megatron") else "test_trainers")


def reason(model, trainer, engine):
    """Why a combination does not run; None where there is no reason."""
    for side in (trainer, engine):
        if "EP2" in side and model not in EXPERTS:
            return "the model has no experts"
    if (model in DEEP) != ("VP2" in trainer):
        return STAGES
    at = {(m, t) for m, t, _ in ROWS}, {(m, e) for m, _, e in ROWS}
    if (model, trainer) in at[0] and (model, engine) in at[1]:
        return PARTS
    if model in DEEP and (model.removesuffix("-deep"), engine) in at[1]:
        return UNSEEN
    if trainer.endswith("DDP") and any(m == model and t.startswith("Megatron") for m, t in at[0]):
        return WRAPPED
    # An engine does not see how a trainer pads, and a trainer pads the same two parameters with whatever experts.
    pads = {t for m, t in at[0] if m in PAD and m in EXPERTS}
    is_apart = model in PAD and model in EXPERTS and trainer in pads and (model.removesuffix("-odd"), engine) in at[1]
    return APART if is_apart else None


def combinations():
    return [(m, t, e) for m in MODELS for t in TRAINERS for e in ENGINES]


def table():
    out = ["| | " + " | ".join(ENGINES) + " |", "|---" * (len(ENGINES) + 1) + "|"]
    for t in TRAINERS:
        cells = [" ".join(MODELS[m] for m in MODELS if (m, t, e) in ROWS) or "-" for e in ENGINES]
        out.append(f"| {t} | " + " | ".join(cells) + " |")
    why = {}
    for c in combinations():
        if c not in ROWS:
            why[reason(*c)] = why.get(reason(*c), 0) + 1
    out += ["", f"{len(ROWS)} of {len(combinations())} combinations run. The others, by reason:", ""]
    return "\n".join(out + [f"- {n}: {text}" for text, n in why.items()])


def main():
    if "--table" in sys.argv:
        print(table())
    else:
        for c in combinations():
            print(", ".join(c) + ": " + (test_of(c) if c in ROWS else f"not run, {reason(*c)}"))


if __name__ == "__main__":
    main()
