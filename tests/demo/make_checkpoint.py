# SPDX-License-Identifier: Apache-2.0
"""make_checkpoint.py [--model NAME] [--layers N] [--width N] [--shards N] [--finite] [--seed N]

Print the folder of a safetensors checkpoint with a model's names and shapes and pseudo-random
content; make it first when it is not there.  It lies outside the tree, in $WB_CACHE, else
$XDG_CACHE_HOME/weightbridge, else ~/.cache/weightbridge, under a name made of its parameters.
With MODEL=DIR in the environment nothing is made: that folder is checked and printed.
"""
import argparse
import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from engines import generic, models, safetensors_io  # noqa: E402

FORMAT = 1               # raise when the content of a checkpoint of the same key changes
CHUNK = 4 << 20          # bytes drawn at a time
FINITE = {"BF16": (np.uint16, 0xBFFF), "F16": (np.uint16, 0xBFFF), "F32": (np.uint32, 0xBFFFFFFF)}


def cache_dir():
    """Folder of made checkpoints."""
    base = os.environ.get("WB_CACHE")
    if base:
        return base
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                        "weightbridge")


def hf_config(c):
    """config.json of a Config, in Hugging Face's words."""
    hf = {"model_type": c.arch, "num_hidden_layers": c.layers, "hidden_size": c.hidden,
          "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
          "vocab_size": c.vocab, "intermediate_size": c.intermediate,
          "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[c.dtype],
          "tie_word_embeddings": c.tie_word_embeddings}
    if c.experts:
        hf.update(moe_intermediate_size=c.moe_intermediate, num_experts_per_tok=c.experts_per_tok)
        hf["n_routed_experts" if c.has_mla else "num_experts"] = c.experts
    if c.has_mla:
        hf.update(q_lora_rank=c.q_lora_rank or None, kv_lora_rank=c.kv_lora_rank,
                  qk_nope_head_dim=c.qk_nope_head_dim, qk_rope_head_dim=c.qk_rope_head_dim,
                  v_head_dim=c.v_head_dim, n_shared_experts=c.shared_experts,
                  first_k_dense_replace=c.first_dense_layers,
                  num_nextn_predict_layers=c.mtp_layers)
    else:
        hf["head_dim"] = c.head_dim
    return hf


def content(tensors, seed, finite):
    """Iterator of arrays: the bytes of the tensors, one generator over all.

    F32 tensors are finite always (routers and biases take part in casts); BF16 and F16 ones hold
    any bit pattern unless asked otherwise, which is the harder test of a mover of bytes.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    for _, shape, dtype in tensors:
        words, mask = FINITE[dtype]
        left = math.prod(shape) * np.dtype(words).itemsize
        while left:
            n = min(left, CHUNK)
            raw = rng.integers(0, 1 << 64, -(-n // 8), np.uint64).view(np.uint8)[:n]
            if finite or dtype == "F32":
                np.bitwise_and(raw.view(words), words(mask), out=raw.view(words))
            yield raw
            left -= n


def split(tensors, shards):
    """Cut the list of tensors into files of about equal bytes."""
    size = [math.prod(s) * np.dtype(safetensors_io.WORDS[d]).itemsize for _, s, d in tensors]
    total, at, out = sum(size), 0, [[] for _ in range(shards)]
    for t, n in zip(tensors, size):
        out[min(shards - 1, (at + n // 2) * shards // total)].append(t)
        at += n
    return [part for part in out if part]


def write(folder, c, shards, seed, finite):
    """Write config.json, the files, and an index when there are several."""
    parts = split(models.tensors(c), shards)
    where = {}
    for i, part in enumerate(parts):
        name = "model.safetensors" if len(parts) == 1 else \
            f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        safetensors_io.write(os.path.join(folder, name), part, content(part, [seed, i], finite),
                             {"format": "pt"})
        where.update({t[0]: name for t in part})
    if len(parts) > 1:
        with open(os.path.join(folder, safetensors_io.INDEX), "w", encoding="utf-8") as f:
            json.dump({"metadata": {}, "weight_map": where}, f, indent=1)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(hf_config(c), f, indent=1)


def key(c, shards, seed, finite):
    """Name of a checkpoint: the same parameters, the same bytes."""
    raw = json.dumps([FORMAT, c.to_dict(), shards, seed, finite], sort_keys=True)
    return hashlib.sha256(raw.encode()).hexdigest()[:16]


def make(c, shards=1, seed=1, finite=False, where=None, say=lambda text: None):
    """Folder of the checkpoint, made when absent.  Several processes may call this at once."""
    root = where or cache_dir()
    folder = os.path.join(root, f"ckpt-{key(c, shards, seed, finite)}")
    if os.path.isdir(folder):
        return folder
    os.makedirs(root, exist_ok=True)
    size = models.tensor_count(c)[1]
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            return folder
        if shutil.disk_usage(root).free < size + (64 << 20):
            raise OSError(f"{root}: needs {size / 1e9:.1f} GB for a checkpoint; set WB_CACHE to "
                          "a folder with room, or make fewer LAYERS")
        start, new = time.monotonic(), folder + ".new"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new)
        write(new, c, shards, seed, finite)
        os.rename(new, folder)
        took = time.monotonic() - start
        say(f"made a checkpoint of {size / 1e9:.2f} GB in {took:.1f} s")
    return folder


def find(model="Qwen3-0.6B", layers=None, width=1, shards=1, seed=1, finite=False,
         say=lambda text: None):
    """(folder, Config) of the checkpoint to use: the user's MODEL, or one made here.

    A checkpoint of no known architecture has a generic.Model instead of a Config."""
    user = os.environ.get("MODEL")
    if user:
        info = safetensors_io.Checkpoint(user).info()
        try:
            return user, models.fit(models.from_hf(user), info)
        except models.ModelError as e:
            m = generic.Model(info)
            say(f"layout      generic, rows shared by the trainer's workers, columns by an engine's: "
                f"{e}" + (f"; {len(m.left_out)} tensors without elements are left out"
                          if m.left_out else ""))
            return user, m
    c = models.load(model, layers, width)
    return make(c, shards, seed, finite, say=say), c


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[1])
    p.add_argument("--model", default="Qwen3-0.6B")
    p.add_argument("--layers", type=int, default=int(os.environ.get("LAYERS") or 0) or None)
    p.add_argument("--width", type=int, default=1)
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--finite", action="store_true")
    a = p.parse_args()
    try:
        print(find(a.model, a.layers, a.width, a.shards, a.seed, a.finite,
                   lambda text: print(text, file=sys.stderr))[0])
    except (models.ModelError, safetensors_io.FormatError, OSError) as e:
        sys.exit(f"make_checkpoint: {e}")


if __name__ == "__main__":
    main()
