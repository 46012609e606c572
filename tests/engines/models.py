# SPDX-License-Identifier: Apache-2.0
"""Which tensors the checkpoint of a model holds: Hugging Face names, shapes, safetensors dtypes.

The models of tests/models.json by name, at full size or shrunk, and a user's own checkpoint by
its config.json.
"""
import dataclasses
import json
import os

MODELS_JSON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models.json")
ARCHS = ("qwen3", "qwen3_moe", "deepseek_v3")

# model_type of a Hugging Face config.json -> arch
HF_TYPES = {"qwen3": "qwen3", "qwen3_moe": "qwen3_moe", "deepseek_v3": "deepseek_v3",
            "kimi_k2": "deepseek_v3", "moonlight": "deepseek_v3"}


class ModelError(ValueError):
    """A model that cannot be used, with the sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters of one model.  Lengths in elements."""
    arch: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int
    intermediate: int
    dtype: str = "BF16"
    head_dim: int = 0             # qwen archs
    moe_intermediate: int = 0
    experts: int = 0
    experts_per_tok: int = 0
    shared_experts: int = 0
    first_dense_layers: int = 0   # layers before this one are dense
    q_lora_rank: int = 0          # deepseek_v3 only; 0 = no low-rank query
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    mtp_layers: int = 0           # extra layers after the last one, names model.layers.{layers+i}
    tie_word_embeddings: bool = False
    ckpt_stores_tied_lm_head: bool = False
    bias_dtype: str = "F32"       # of e_score_correction_bias

    def is_moe(self, layer):
        """True when this layer (an MTP layer too) has experts."""
        return self.experts > 0 and layer >= self.first_dense_layers

    @property
    def has_mla(self):
        return self.arch == "deepseek_v3"

    @property
    def has_lm_head(self):
        """True when lm_head is a tensor of its own that engines load."""
        return not self.tie_word_embeddings

    def to_dict(self):
        return dataclasses.asdict(self)


def config(fields):
    """Config from a dict of its fields (a spec's "model").  Unknown keys are refused."""
    known = {f.name for f in dataclasses.fields(Config)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ModelError(f"unknown model fields: {', '.join(unknown)}")
    c = Config(**fields)
    if c.arch not in ARCHS:
        raise ModelError(f"arch {c.arch!r} is not supported: {', '.join(ARCHS)} are")
    return c


def names(path=MODELS_JSON):
    """Names of the models of models.json."""
    with open(path, encoding="utf-8") as f:
        return [k for k in json.load(f) if not k.startswith("_")]


def load(name, layers=None, width=1, path=MODELS_JSON, **changes):
    """Config of a model of models.json.

    layers: keep only so many.  width: divide every length but the numbers of heads and experts
    by this; a length that does not divide is refused.  changes: fields replaced at the end.
    """
    with open(path, encoding="utf-8") as f:
        table = json.load(f)
    if name not in table or name.startswith("_"):
        raise ModelError(f"no model {name!r}; there are {', '.join(names(path))}")
    known = {f.name for f in dataclasses.fields(Config)}
    c = config({k: v or 0 for k, v in table[name].items() if k in known})
    return shrink(c, layers, width, **changes)


def shrink(c, layers=None, width=1, **changes):
    """A smaller model of the same shape: see load()."""
    if layers is not None:
        changes.setdefault("layers", layers)
    for field in ("hidden", "head_dim", "intermediate", "moe_intermediate", "q_lora_rank",
                  "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "vocab"):
        full = getattr(c, field)
        if full % width:
            raise ModelError(f"{field} {full} is not a multiple of width {width}")
        changes.setdefault(field, full // width)
    return dataclasses.replace(c, **changes)


def from_hf(directory):
    """Config from the config.json of a user's checkpoint.  ModelError says why not."""
    path = os.path.join(directory, "config.json")
    try:
        with open(path, encoding="utf-8") as f:
            hf = json.load(f)
    except OSError as e:
        raise ModelError(f"{path}: {e.strerror}") from e
    except ValueError as e:
        raise ModelError(f"{path}: not JSON: {e}") from e
    try:
        return _from_hf(hf)
    except KeyError as e:
        raise ModelError(f"{path}: {e.args[0]} is missing") from e
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from e


def _from_hf(hf):
    kind = hf.get("model_type")
    if kind not in HF_TYPES:
        raise ModelError(f"model_type {kind!r} is not supported; supported are "
                         f"{', '.join(sorted(HF_TYPES))}")
    if hf.get("quantization_config"):
        raise ModelError("quantised checkpoints are not supported; supported are BF16, F16 and "
                         f"F32 checkpoints of {', '.join(sorted(HF_TYPES))}")
    if hf.get("attention_bias"):
        raise ModelError("attention_bias is not supported; supported are "
                         f"{', '.join(sorted(HF_TYPES))} without it")
    arch = HF_TYPES[kind]
    heads = hf["num_attention_heads"]
    dtype = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}.get(
        hf.get("torch_dtype") or hf.get("dtype") or "bfloat16")
    if dtype is None:
        raise ModelError("dtype must be bfloat16, float16 or float32")
    f = {"arch": arch, "dtype": dtype, "layers": hf["num_hidden_layers"],
         "hidden": hf["hidden_size"], "heads": heads,
         "kv_heads": hf.get("num_key_value_heads") or heads, "vocab": hf["vocab_size"],
         "intermediate": hf["intermediate_size"],
         "tie_word_embeddings": bool(hf.get("tie_word_embeddings", False))}
    if arch == "deepseek_v3":
        if hf.get("moe_layer_freq", 1) != 1:
            raise ModelError("moe_layer_freq other than 1 is not supported")
        f.update(q_lora_rank=hf.get("q_lora_rank") or 0, kv_lora_rank=hf["kv_lora_rank"],
                 qk_nope_head_dim=hf["qk_nope_head_dim"],
                 qk_rope_head_dim=hf["qk_rope_head_dim"], v_head_dim=hf["v_head_dim"],
                 moe_intermediate=hf["moe_intermediate_size"], experts=hf["n_routed_experts"],
                 experts_per_tok=hf.get("num_experts_per_tok") or 1,
                 shared_experts=hf.get("n_shared_experts") or 0,
                 first_dense_layers=hf.get("first_k_dense_replace", 0),
                 mtp_layers=hf.get("num_nextn_predict_layers") or 0)
    else:
        f["head_dim"] = hf.get("head_dim") or hf["hidden_size"] // heads
    if arch == "qwen3_moe":
        if hf.get("decoder_sparse_step", 1) != 1 or hf.get("mlp_only_layers"):
            raise ModelError("decoder_sparse_step other than 1 and mlp_only_layers are not "
                             "supported")
        f.update(moe_intermediate=hf["moe_intermediate_size"], experts=hf["num_experts"],
                 experts_per_tok=hf.get("num_experts_per_tok") or 1)
    return config(f)


def to_hf(c):
    """What Hugging Face would have as the config.json of a model: the inverse of from_hf()."""
    out = {"model_type": c.arch, "torch_dtype": "bfloat16", "num_hidden_layers": c.layers,
           "hidden_size": c.hidden, "vocab_size": c.vocab, "num_attention_heads": c.heads,
           "num_key_value_heads": c.kv_heads, "intermediate_size": c.intermediate,
           "tie_word_embeddings": c.tie_word_embeddings}
    if c.has_mla:
        out |= {"q_lora_rank": c.q_lora_rank or None, "kv_lora_rank": c.kv_lora_rank,
                "qk_nope_head_dim": c.qk_nope_head_dim, "qk_rope_head_dim": c.qk_rope_head_dim,
                "v_head_dim": c.v_head_dim, "moe_intermediate_size": c.moe_intermediate,
                "n_routed_experts": c.experts, "n_shared_experts": c.shared_experts or None,
                "first_k_dense_replace": c.first_dense_layers,
                "num_nextn_predict_layers": c.mtp_layers, "moe_layer_freq": 1}
    else:
        out |= {"head_dim": c.head_dim, "attention_bias": False}
    if c.arch == "qwen3_moe":
        out |= {"num_experts": c.experts, "moe_intermediate_size": c.moe_intermediate}
    return out


def fit(c, present):
    """Adjust a config to the tensors that the files hold; ModelError lists what does not fit.

    present: dict name -> (shape, dtype) of the files.  The files decide dtypes, whether a tied
    lm_head is stored, and whether MTP layers are there; tensors that no engine loads may be more.
    """
    embed = present.get("model.embed_tokens.weight")
    if embed:
        c = dataclasses.replace(c, dtype=embed[1])
    if c.mtp_layers and f"model.layers.{c.layers}.eh_proj.weight" not in present:
        c = dataclasses.replace(c, mtp_layers=0)
    if c.tie_word_embeddings:
        c = dataclasses.replace(c, ckpt_stores_tied_lm_head="lm_head.weight" in present)
    for name, (_, dtype) in present.items():
        if name.endswith("e_score_correction_bias"):
            c = dataclasses.replace(c, bias_dtype=dtype)
            break
    bad = []
    for name, shape, dtype in tensors(c):
        if name not in present:
            bad.append(f"{name} is missing")
        elif (tuple(present[name][0]), present[name][1]) != (shape, dtype):
            bad.append(f"{name} is {present[name][1]} {list(present[name][0])}, expected "
                       f"{dtype} {list(shape)}")
    if bad:
        more = f" (and {len(bad) - 5} more)" if len(bad) > 5 else ""
        raise ModelError(f"the files do not fit config.json: {'; '.join(bad[:5])}{more}")
    return c


def tensors(c):
    """The checkpoint's tensors in file order: list of (name, shape, safetensors dtype)."""
    out = [("model.embed_tokens.weight", (c.vocab, c.hidden), c.dtype)]
    for layer in range(c.layers):
        out += _layer(c, layer)
    out.append(("model.norm.weight", (c.hidden,), c.dtype))
    if c.has_lm_head or c.ckpt_stores_tied_lm_head:
        out.append(("lm_head.weight", (c.vocab, c.hidden), c.dtype))
    for layer in range(c.layers, c.layers + c.mtp_layers):
        out += _mtp(c, layer)
    return out


def tensor_count(c):
    """(number of tensors, bytes) of the checkpoint."""
    size = {"BF16": 2, "F16": 2, "F32": 4}
    n = total = 0
    for _, shape, dtype in tensors(c):
        count = 1
        for d in shape:
            count *= d
        n, total = n + 1, total + count * size[dtype]
    return n, total


def _layer(c, layer):
    p = f"model.layers.{layer}."
    out = [(p + "input_layernorm.weight", (c.hidden,), c.dtype)]
    out += _mla(c, p + "self_attn.") if c.has_mla else _gqa(c, p + "self_attn.")
    out.append((p + "post_attention_layernorm.weight", (c.hidden,), c.dtype))
    if not c.is_moe(layer):
        return out + _mlp(c, p + "mlp.", c.intermediate)
    out.append((p + "mlp.gate.weight", (c.experts, c.hidden), c.dtype))
    if c.arch == "deepseek_v3":
        out.append((p + "mlp.gate.e_score_correction_bias", (c.experts,), c.bias_dtype))
    if c.shared_experts:
        out += _mlp(c, p + "mlp.shared_experts.", c.moe_intermediate * c.shared_experts)
    for e in range(c.experts):
        out += _mlp(c, p + f"mlp.experts.{e}.", c.moe_intermediate)
    return out


def _gqa(c, p):
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    return [(p + "q_proj.weight", (q, c.hidden), c.dtype),
            (p + "k_proj.weight", (kv, c.hidden), c.dtype),
            (p + "v_proj.weight", (kv, c.hidden), c.dtype),
            (p + "o_proj.weight", (c.hidden, q), c.dtype),
            (p + "q_norm.weight", (c.head_dim,), c.dtype),
            (p + "k_norm.weight", (c.head_dim,), c.dtype)]


def _mla(c, p):
    qk = c.qk_nope_head_dim + c.qk_rope_head_dim
    if c.q_lora_rank:
        out = [(p + "q_a_proj.weight", (c.q_lora_rank, c.hidden), c.dtype),
               (p + "q_a_layernorm.weight", (c.q_lora_rank,), c.dtype),
               (p + "q_b_proj.weight", (c.heads * qk, c.q_lora_rank), c.dtype)]
    else:
        out = [(p + "q_proj.weight", (c.heads * qk, c.hidden), c.dtype)]
    return out + [
        (p + "kv_a_proj_with_mqa.weight", (c.kv_lora_rank + c.qk_rope_head_dim, c.hidden), c.dtype),
        (p + "kv_a_layernorm.weight", (c.kv_lora_rank,), c.dtype),
        (p + "kv_b_proj.weight",
         (c.heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank), c.dtype),
        (p + "o_proj.weight", (c.hidden, c.heads * c.v_head_dim), c.dtype)]


def _mlp(c, p, width):
    return [(p + "gate_proj.weight", (width, c.hidden), c.dtype),
            (p + "up_proj.weight", (width, c.hidden), c.dtype),
            (p + "down_proj.weight", (c.hidden, width), c.dtype)]


def _mtp(c, layer):
    p = f"model.layers.{layer}."
    return [(p + "embed_tokens.weight", (c.vocab, c.hidden), c.dtype),
            (p + "enorm.weight", (c.hidden,), c.dtype),
            (p + "hnorm.weight", (c.hidden,), c.dtype),
            (p + "eh_proj.weight", (c.hidden, 2 * c.hidden), c.dtype)] + _layer(c, layer) + [
            (p + "shared_head.norm.weight", (c.hidden,), c.dtype),
            (p + "shared_head.head.weight", (c.vocab, c.hidden), c.dtype)]
