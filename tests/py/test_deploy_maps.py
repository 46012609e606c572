# SPDX-License-Identifier: Apache-2.0
"""Maps from geometry alone (`wbctl simulate --dump-maps`) are those that are extracted from the
reference loaders of the same layouts, byte for byte."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), os.path.join(TOP, "tests"), HERE,
                os.path.join(TOP, "tests", "demo")]

import test_engines as te  # noqa: E402
import weightbridge as wb  # noqa: E402
from engines import deploy, make, models  # noqa: E402

# Of tiny models every eighth worker; WB_ALL=1 compares all (half a minute on a quiet core).
EVERY = 1 if os.environ.get("WB_ALL") else 8
WBCTL = os.path.join(os.environ["WB_BUILD"], "bin", "wbctl")


def narrow(name, **sizes):
    """A model with all its layers and experts, and fewer rows and columns."""
    return dataclasses.replace(models.load(name), **sizes)


# A config.json does not say whether a tied checkpoint stores its lm_head all the same.
TIED = dataclasses.replace(te.TIED, ckpt_stores_tied_lm_head=False)
UNEVEN = dataclasses.replace(te.DENSE, vocab=1153, layers=5)
TINY = {"dense": te.DENSE, "tied": TIED, "moe": te.MOE, "mla": te.MLA, "mla-q": te.MLA_Q,
        "uneven": UNEVEN}
MOONLIGHT = narrow("Moonlight-16B-A3B", hidden=64, intermediate=176, moe_intermediate=24,
                   kv_lora_rank=32, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, vocab=5120)
QWEN_30B = narrow("Qwen3-30B-A3B", hidden=64, moe_intermediate=24, vocab=4096, head_dim=8)
QWEN_235B = narrow("Qwen3-235B-A22B", hidden=32, moe_intermediate=8, vocab=4160, head_dim=8)
KIMI = narrow("Kimi-K2-Instruct", layers=9, hidden=32, intermediate=64, moe_intermediate=32,
              q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=4,
              vocab=4096)
QWEN_32B = narrow("Qwen3-32B", hidden=80, intermediate=400, vocab=4096, head_dim=8)
SCALED = {"moonlight": MOONLIGHT, "qwen-30b": QWEN_30B, "qwen-235b": QWEN_235B, "kimi": KIMI,
          "qwen-32b": QWEN_32B}


def megatron(world, **settings):
    return lambda c: deploy.megatron(c, world, **settings)


def fsdp2(world, **settings):
    return lambda c: deploy.fsdp2(c, world, **settings)


def transformers(world, **settings):
    """Each rank holds the whole model."""
    return lambda c: deploy.fsdp2(c, 1, **settings) * world


def sglang(tp, **settings):
    return lambda c: deploy.engine("sglang", c, tp, **settings)


def vllm(tp, dp=1, **settings):
    """tp * dp workers; only experts are shared by all of them."""
    return lambda c: deploy.engine("vllm", c, tp * dp, dp=dp, dense_tp=tp, shared_tp=tp, **settings)


# Models, layouts as the command takes them, and as the reference loaders do.
DENSE, MOE = ("dense", "tied", "uneven"), ("moe", "mla", "mla-q")
PAIRS = (
    (DENSE + MOE, "megatron", megatron(1), "vllm", vllm(1)),
    (DENSE + MOE, "megatron:tp2,cp2", megatron(4, tp=2), "sglang:tp2", sglang(2)),
    (("dense", "tied", "moe", "mla"), "megatron:tp4,pp2", megatron(8, tp=4, pp=2), "vllm:tp4,pp2",
     vllm(4, pp=2)),
    (DENSE + MOE, "megatron:tp8", megatron(8, tp=8), "sglang:tp8", sglang(8)),
    (MOE, "megatron:tp4,ep8", megatron(8, tp=4, ep=8), "sglang:tp8,ep8", sglang(8, ep=8)),
    (MOE, "megatron:tp2,ep4,dp4,pp2", megatron(16, tp=2, ep=4, pp=2), "sglang:tp4,ep2",
     sglang(4, ep=2)),
    (MOE, "megatron:tp2,pp3,ep2,layers1+1+2", megatron(6, tp=2, ep=2, pp=3, stages=[1, 1, 2]),
     "sglang:tp4,dp2,ep4,dense_tp1", sglang(4, dp=2, ep=4, dense_tp=1)),
    (("uneven",), "megatron:pp3,last1", megatron(3, pp=3, stages=[2, 2, 1]),
     "vllm:tp2,layers1+4", vllm(2, pp=2, stages=[1, 4])),
    (("uneven",), "fsdp2:3", fsdp2(3), "sglang:tp2,pp2,last2", sglang(2, pp=2, stages=[3, 2])),
    (DENSE + MOE, "fsdp2:7", fsdp2(7), "vllm:tp2,dp2", vllm(2, dp=2)),
    (("dense", "tied"), "fsdp2:4,masters", fsdp2(4, masters=True), "vllm:tp2,dp2,pp2",
     vllm(2, dp=2, pp=2)),
    (MOE, "fsdp2:5,stacked", fsdp2(5, stacked=True), "vllm:tp2,dp2,ep4", vllm(2, dp=2, ep=4)),
    (MOE, "fsdp2:5,stacked,masters", fsdp2(5, stacked=True, masters=True), "vllm:tp4,ep4",
     vllm(4, ep=4)),
    (DENSE + MOE, "transformers:2", transformers(2), "vllm:tp2", vllm(2)),
    (MOE, "transformers:2,stacked", transformers(2, stacked=True), "sglang:tp2", sglang(2)),
)
# Real models at all their tensors: two ranks of each side.
SOME = (
    ("moonlight", "megatron:tp2,ep8", megatron(8, tp=2, ep=8), "sglang:tp8,ep8", sglang(8, ep=8)),
    ("qwen-30b", "megatron:tp4,ep8,dp4", megatron(16, tp=4, ep=8), "sglang:tp8,ep8",
     sglang(8, ep=8)),
    ("qwen-235b", "megatron:tp4,pp4,cp2,ep16,last22",
     megatron(64, tp=4, pp=4, ep=16, stages=[24, 24, 24, 22]), "sglang:tp32,ep32",
     sglang(32, ep=32)),
    ("kimi", "megatron:tp8,pp8,cp4,ep32,last2",
     megatron(256, tp=8, pp=8, ep=32, stages=[1] * 7 + [2]), "sglang:tp32,dp8,ep32,dense_tp1",
     sglang(32, dp=8, ep=32, dense_tp=1)),
    ("qwen-32b", "megatron:tp8,pp2", megatron(16, tp=8, pp=2), "sglang:tp8", sglang(8)),
)


def simulate(*args):
    return subprocess.run([WBCTL, "simulate", *args], capture_output=True, text=True, check=False)


def dumped(folder, name, trainer, rollout):
    """Folder with the maps of a deployment."""
    out = os.path.join(folder, "maps")
    done = simulate("--model", os.path.join(folder, name + ".json"), "--trainer", trainer,
                    "--rollout", rollout, "--dump-maps", out)
    assert done.returncode == 0, (name, trainer, rollout, done.stderr)
    return out


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


SEEN = {}


def extracted(spec):
    key = json.dumps(spec, sort_keys=True)
    if key not in SEEN:
        engine = make(spec)
        SEEN[key] = wb.extract(engine.load_weights, models.tensors(engine.config), engine.params,
                               progress=False)
    return SEEN[key]


def compare(spec, folder, name):
    """One map: byte for byte, so each element comes from the same place, in the same boxes."""
    found = extracted(spec)
    assert read(folder, "manifest.bin") == found.manifest_blob(), (name, "manifest")
    assert read(folder, name) == found.map_blob(), (name, spec)


def check(folder, c, name, trainer, trainers, rollout, engine, some):
    out, n = dumped(folder, name, trainer, rollout), 0
    for side, specs in (("trainer", trainers(c)), ("rollout", engine(c))):
        files = [f for f in os.listdir(out) if f.startswith(side)]
        assert len(files) == len(specs), (name, side, len(files), len(specs))
        ranks = {len(specs) // 3, len(specs) - 1} if some else range(len(specs))[::EVERY]
        for rank in ranks:
            compare(specs[rank], out, f"{side}-{rank}.bin")
            n += 1
    subprocess.run(["rm", "-r", out], check=True)
    return n


def main():
    n = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, c in (TINY | SCALED).items():
            with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
                json.dump(models.to_hf(c), f)
        for names, *pair in PAIRS:
            for name in names:
                n += check(folder, TINY[name], name, *pair, False)
        for name, *pair in SOME:
            n += check(folder, SCALED[name], name, *pair, True)
    print(f"{n} maps, {len(SEEN)} of them extracted, are byte for byte those of wbctl simulate")


main()
