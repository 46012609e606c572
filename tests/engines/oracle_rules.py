# SPDX-License-Identifier: Apache-2.0
"""The oracle's rules: which checkpoint row each row of a parameter is, by formula.

Written separately from the engines: they place tensors in parameters; here every row of a
parameter is asked where it comes from.  rules(spec) lists a worker's parameters.
"""
import numpy as np

from . import models


class Block:
    """A 2-D part of a parameter: row i is row src[i] of tensor names[tid[i]], from column col.

    index: where in the parameter the part lies (prefix of indices).  turned: the part is the
    transpose of what is described.  tid -1 is a row of zeros.  1-D parameters are one column.
    flat: the tensors are seen as one column too, src counts their elements.
    """

    def __init__(self, names, tid, src, width, col=0, index=(), turned=False, flat=False):
        self.names = [names] if isinstance(names, str) else list(names)
        self.src = np.asarray(src, np.int64)
        self.tid = np.broadcast_to(np.asarray(tid, np.int64), self.src.shape)
        self.width, self.col, self.index, self.turned = width, col, index, turned
        self.flat = flat


class Rule:
    """A parameter: shape, dtype, and a function that gives its blocks."""

    def __init__(self, shape, dtype, blocks):
        self.shape, self.dtype, self.blocks = tuple(shape), dtype, blocks


class Rules:
    """Collects rules; `get` is a setting of the spec or its default."""

    def __init__(self, spec):
        self.spec, self.c, self.out = spec, models.config(spec["model"]), {}
        c = self.c
        self.shape = {n: s for n, s, _ in models.tensors(c)}
        self.tp, self.t = spec.get("tp", 1), spec.get("tp_rank", 0)

    def get(self, key, default):
        value = self.spec.get(key)
        return default if value is None else value

    def add(self, name, shape, blocks, dtype=None):
        self.out[name] = Rule(shape, dtype or self.c.dtype, blocks)

    def whole(self, name, tensor, dtype=None):
        shape = self.shape[tensor]
        rows, width = shape[0], shape[1] if len(shape) > 1 else 1
        self.add(name, shape, lambda: [Block(tensor, 0, np.arange(rows), width)], dtype)

    def rows(self, name, tensor, parts, part):
        total, width = self.shape[tensor]
        n = total // parts
        self.add(name, (n, width), lambda: [Block(tensor, 0, part * n + np.arange(n), width)])

    def columns(self, name, tensor, parts, part):
        rows, total = self.shape[tensor]
        w = total // parts
        self.add(name, (rows, w), lambda: [Block(tensor, 0, np.arange(rows), w, part * w)])

    def vocab(self, name, tensor, multiple, parts, part):
        total, width = self.shape[tensor]
        n = (total + multiple - 1) // multiple * multiple // parts

        def blocks():
            row = part * n + np.arange(n)
            return [Block(tensor, np.where(row < total, 0, -1), row, width)]
        self.add(name, (n, width), blocks)

    def layers(self):
        """Numbers of the layers of this pipeline stage."""
        pp, rank = self.get("pp", 1), self.get("pp_rank", 0)
        stages = self.get("stages", None)
        if stages is None:
            return [x for x in range(self.c.layers) if x * pp // self.c.layers == rank]
        owner = np.repeat(np.arange(pp), stages)
        return [int(x) for x in np.flatnonzero(owner == rank)]


def fused_blocks(prefix, n, width, at=0, index=(), turned=False, weave=False, swap=False):
    """Gate and up rows, n of each from row `at` on, in one part."""
    r = np.arange(2 * n)
    half, i = (r % 2, r // 2) if weave else (r // n, r % n)
    if swap:
        half = 1 - half
    return [Block([prefix + "gate_proj.weight", prefix + "up_proj.weight"], half, at + i, width,
                  index=index, turned=turned)]


# Megatron-core.


def megatron(spec):
    m = Rules(spec)
    c, pp, rank = m.c, m.get("pp", 1), m.get("pp_rank", 0)
    multiple = m.get("vocab_multiple", 128) * m.tp
    last = rank == pp - 1
    mine = m.layers()
    if rank == 0 or (last and c.mtp_layers):
        m.vocab("embedding.word_embeddings.weight", "model.embed_tokens.weight", multiple,
                m.tp, m.t)
    for local, layer in enumerate(mine):
        _megatron_layer(m, f"decoder.layers.{local}.", f"model.layers.{layer}.", c.is_moe(layer))
    if last:
        m.whole("decoder.final_layernorm.weight", "model.norm.weight")
        if not c.tie_word_embeddings:
            m.vocab("output_layer.weight", "lm_head.weight", multiple, m.tp, m.t)
        elif pp > 1:
            m.vocab("output_layer.weight", "model.embed_tokens.weight", multiple, m.tp, m.t)
        for i in range(c.mtp_layers):
            p, hf = f"mtp.layers.{i}.", f"model.layers.{c.layers + i}."
            for name in ("enorm", "hnorm"):
                m.whole(f"{p}{name}.weight", f"{hf}{name}.weight")
            m.rows(p + "eh_proj.weight", hf + "eh_proj.weight", m.tp, m.t)
            m.whole(p + "final_layernorm.weight", hf + "shared_head.norm.weight")
            _megatron_layer(m, p + "transformer_layer.", hf, c.is_moe(c.layers + i))
    return m.out


def _megatron_layer(m, p, hf, is_moe):
    c, a, s = m.c, p + "self_attention.", hf + "self_attn."
    m.columns(a + "linear_proj.weight", s + "o_proj.weight", m.tp, m.t)
    if c.arch == "deepseek_v3":
        m.whole(p + "input_layernorm.weight", hf + "input_layernorm.weight")
        m.whole(a + "linear_kv_down_proj.weight", s + "kv_a_proj_with_mqa.weight")
        m.whole(a + "linear_kv_up_proj.layer_norm_weight", s + "kv_a_layernorm.weight")
        m.rows(a + "linear_kv_up_proj.weight", s + "kv_b_proj.weight", m.tp, m.t)
        if c.q_lora_rank == 0:
            m.rows(a + "linear_q_proj.weight", s + "q_proj.weight", m.tp, m.t)
        else:
            m.whole(a + "linear_q_down_proj.weight", s + "q_a_proj.weight")
            m.whole(a + "linear_q_up_proj.layer_norm_weight", s + "q_a_layernorm.weight")
            m.rows(a + "linear_q_up_proj.weight", s + "q_b_proj.weight", m.tp, m.t)
    else:
        m.whole(a + "linear_qkv.layer_norm_weight", hf + "input_layernorm.weight")
        m.whole(a + "q_layernorm.weight", s + "q_norm.weight")
        m.whole(a + "k_layernorm.weight", s + "k_norm.weight")
        _megatron_qkv(m, a + "linear_qkv.weight", s)
    norm = hf + "post_attention_layernorm.weight"
    if not is_moe:
        m.whole(p + "mlp.linear_fc1.layer_norm_weight", norm)
        _megatron_mlp(m, p + "mlp.", hf + "mlp.", c.intermediate)
        return
    m.whole(p + "pre_mlp_layernorm.weight", norm)
    m.whole(p + "mlp.router.weight", hf + "mlp.gate.weight")
    if c.arch == "deepseek_v3":
        m.whole(p + "mlp.router.expert_bias", hf + "mlp.gate.e_score_correction_bias", "F32")
    if c.shared_experts:
        _megatron_mlp(m, p + "mlp.shared_experts.", hf + "mlp.shared_experts.",
                      c.moe_intermediate * c.shared_experts)
    local, w = c.experts // m.get("ep", 1), c.moe_intermediate
    for e in range(local):
        src = f"{hf}mlp.experts.{m.get('ep_rank', 0) * local + e}."
        m.add(f"{p}mlp.experts.linear_fc1.weight{e}", (2 * w, c.hidden),
              lambda src=src: fused_blocks(src, w, c.hidden))
        m.whole(f"{p}mlp.experts.linear_fc2.weight{e}", src + "down_proj.weight")


def _megatron_qkv(m, name, s):
    c, d = m.c, m.c.head_dim
    per_group = c.heads // c.kv_heads
    names = [s + f"{x}_proj.weight" for x in "qkv"]
    if m.tp <= c.kv_heads:
        # Row f of the whole fused tensor; this rank has an even part of it.
        group_rows = (per_group + 2) * d
        n = group_rows * c.kv_heads // m.tp

        def blocks():
            g, w = np.divmod(m.t * n + np.arange(n), group_rows)
            q = w < per_group * d
            k = ~q & (w < (per_group + 1) * d)
            return [Block(names, np.where(q, 0, np.where(k, 1, 2)),
                          np.where(q, g * per_group * d + w, g * d + w % d), c.hidden)]
    else:
        heads = c.heads // m.tp
        group = m.t * c.kv_heads // m.tp
        n = (heads + 2) * d

        def blocks():
            slot, w = np.divmod(np.arange(n), d)
            return [Block(names, np.maximum(slot - heads + 1, 0),
                          np.where(slot < heads, m.t * heads + slot, group) * d + w, c.hidden)]
    m.add(name, (n, c.hidden), blocks)


def _megatron_mlp(m, p, hf, wide):
    n, h = wide // m.tp, m.c.hidden
    m.add(p + "linear_fc1.weight", (2 * n, h), lambda: fused_blocks(hf, n, h, m.t * n))
    m.columns(p + "linear_fc2.weight", hf + "down_proj.weight", m.tp, m.t)


# FSDP2.


def fsdp2(spec):
    m = Rules(spec)
    c, world, rank = m.c, m.get("world", 1), m.get("rank", 0)
    dtype = "F32" if m.get("masters", False) else c.dtype

    def held(n):
        step = (n + world - 1) // world
        i = np.arange(n)
        return i[i // step == rank]

    def shard(name, shape):
        rows, width = held(shape[0]), shape[1] if len(shape) > 1 else 1
        m.add(name, (len(rows), *shape[1:]), lambda: [Block(name, 0, rows, width)], dtype)

    def stack(p):
        experts, h, w = held(c.experts), c.hidden, c.moe_intermediate
        m.add(p + "gate_up_proj", (len(experts), 2 * w, h), lambda: [
            b for i, e in enumerate(experts)
            for b in fused_blocks(f"{p}{e}.", w, h, index=(i,))], dtype)
        m.add(p + "down_proj", (len(experts), h, w), lambda: [
            Block(f"{p}{e}.down_proj.weight", 0, np.arange(h), w, index=(i,))
            for i, e in enumerate(experts)], dtype)

    def flat(unit, names):
        ends = np.cumsum([int(np.prod(m.shape[x])) for x in names])
        n = (int(ends[-1]) + world - 1) // world

        def blocks():
            i = rank * n + np.arange(n)
            t = np.searchsorted(ends, i, side="right")
            src = i - np.concatenate(([0], ends))[t]
            return [Block(names, np.where(t < len(names), t, -1), src, 1, flat=True)]
        m.add(unit + "._flat_param", (n,), blocks, dtype)

    units = {}
    extra = tuple(f"model.layers.{c.layers + i}." for i in range(c.mtp_layers))
    for name, shape in m.shape.items():
        if (extra and name.startswith(extra)) or (name == "lm_head.weight"
                                                  and c.tie_word_embeddings):
            continue
        if name.endswith("correction_bias"):
            m.whole(name, name, "F32")
        elif m.get("flat", False):
            inner = name.removeprefix("model.layers.")
            unit = "model" if inner == name else "model.layers." + inner.partition(".")[0]
            units.setdefault(unit, []).append(name)
        elif m.get("stacked", False) and ".mlp.experts." in name:
            p = name.split(".experts.")[0] + ".experts."
            if p + "down_proj" not in m.out:
                stack(p)
        else:
            shard(name, shape)
    for unit, names in units.items():
        flat(unit, names)
    if c.tie_word_embeddings and m.get("tied", "omit") == "alias" and not units:
        m.out["lm_head.weight"] = m.out["model.embed_tokens.weight"]
    return m.out


# vLLM and SGLang.


def rollout(spec):
    m = Rules(spec)
    c, pp, rank = m.c, m.get("pp", 1), m.get("pp_rank", 0)
    m.attn = m.tp // m.get("dp", 1)
    m.a = m.t % m.attn
    multiple = m.get("vocab_multiple", 64)
    embed, head = "model.embed_tokens.weight", "lm_head.weight"
    last = rank == pp - 1
    if rank == 0 or (last and c.tie_word_embeddings):
        m.vocab(embed, embed, multiple, m.attn, m.a)
    for layer in m.layers():
        p = f"model.layers.{layer}."
        _rollout_layer(m, p, p, c.is_moe(layer))
    if last:
        m.whole("model.norm.weight", "model.norm.weight")
        if not c.tie_word_embeddings:
            m.vocab(head, head, multiple, m.attn, m.a)
        elif m.get("tied", "omit") == "alias":
            m.out[head] = m.out[embed]
    if m.get("draft", False):
        hf, p = f"model.layers.{c.layers}.", "draft.model."
        for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm"):
            m.whole(f"{p}{name}.weight", f"{hf}{name}.weight")
        inner = "decoder." if spec["framework"] == "sglang" else f"layers.{c.layers}.mtp_block."
        _rollout_layer(m, p + inner, hf, c.is_moe(c.layers))
        m.out["draft." + embed] = m.out[embed]
        if not c.tie_word_embeddings:
            m.out["draft." + head] = m.out[head]
    return m.out


def _rollout_layer(m, p, hf, is_moe):
    c, a, s = m.c, p + "self_attn.", hf + "self_attn."
    for name in ("input_layernorm", "post_attention_layernorm"):
        m.whole(f"{p}{name}.weight", f"{hf}{name}.weight")
    m.columns(a + "o_proj.weight", s + "o_proj.weight", m.attn, m.a)
    if c.arch == "deepseek_v3":
        _rollout_mla(m, a, s)
    else:
        _rollout_qkv(m, a + "qkv_proj.weight", s)
        m.whole(a + "q_norm.weight", s + "q_norm.weight")
        m.whole(a + "k_norm.weight", s + "k_norm.weight")
    if not is_moe:
        tp = m.get("dense_tp", 0) or m.tp
        _rollout_mlp(m, p + "mlp.", hf + "mlp.", c.intermediate, tp, m.t % tp)
        return
    m.whole(p + "mlp.gate.weight", hf + "mlp.gate.weight")
    if c.arch == "deepseek_v3":
        m.whole(p + "mlp.gate.e_score_correction_bias", hf + "mlp.gate.e_score_correction_bias",
                m.get("bias_dtype", "F32"))
    if c.shared_experts:
        tp = m.get("shared_tp", 0) or m.tp
        _rollout_mlp(m, p + "mlp.shared_experts.", hf + "mlp.shared_experts.",
                     c.shared_experts * c.moe_intermediate, tp, m.t % tp)
    _rollout_experts(m, p + "mlp.experts.", hf + "mlp.experts.")


def _rollout_qkv(m, name, s):
    c, d = m.c, m.c.head_dim
    heads, kv = c.heads // m.attn, max(1, c.kv_heads // m.attn)
    first_kv = m.a * c.kv_heads // m.attn

    def blocks():
        slot, w = np.divmod(np.arange((heads + 2 * kv) * d), d)
        tid = np.where(slot < heads, 0, np.where(slot < heads + kv, 1, 2))
        head = np.where(tid == 0, m.a * heads + slot, first_kv + (slot - heads) % kv)
        return [Block([s + f"{x}_proj.weight" for x in "qkv"], tid, head * d + w, c.hidden)]
    m.add(name, ((heads + 2 * kv) * d, c.hidden), blocks)


def _rollout_mla(m, a, s):
    c = m.c
    is_sglang = m.spec["framework"] == "sglang"
    kv_rows = c.kv_lora_rank + c.qk_rope_head_dim
    kv_a = "kv_a_proj_with_mqa.weight"
    if c.q_lora_rank:
        q = c.q_lora_rank
        name = "fused_qkv_a_proj_with_mqa.weight" if is_sglang else "fused_qkv_a_proj.weight"

        def blocks():
            r = np.arange(q + kv_rows)
            return [Block([s + "q_a_proj.weight", s + kv_a], r >= q, np.where(r < q, r, r - q),
                          c.hidden)]
        m.add(a + name, (q + kv_rows, c.hidden), blocks)
        m.whole(a + "q_a_layernorm.weight", s + "q_a_layernorm.weight")
        m.rows(a + "q_b_proj.weight", s + "q_b_proj.weight", m.attn, m.a)
    else:
        m.rows(a + "q_proj.weight", s + "q_proj.weight", m.attn, m.a)
        m.whole(a + kv_a, s + kv_a)
    m.whole(a + "kv_a_layernorm.weight", s + "kv_a_layernorm.weight")
    m.rows(a + "kv_b_proj.weight", s + "kv_b_proj.weight", m.attn, m.a)
    if not is_sglang:
        return
    nope, v, lora, heads = c.qk_nope_head_dim, c.v_head_dim, c.kv_lora_rank, c.heads // m.attn

    def head_blocks(at, n, turned):
        return [Block(s + "kv_b_proj.weight", 0,
                      (m.a * heads + h) * (nope + v) + at + np.arange(n), lora, index=(h,),
                      turned=turned) for h in range(heads)]
    m.add(a + "w_kc", (heads, lora, nope), lambda: head_blocks(0, nope, True))
    m.add(a + "w_vc", (heads, v, lora), lambda: head_blocks(nope, v, False))


def _rollout_mlp(m, p, hf, wide, tp, rank):
    n, h = wide // tp, m.c.hidden
    turned = m.get("gate_up", "rows") == "transposed"
    weave, swap = m.get("interleave", False), m.get("swap", False)
    m.add(p + "gate_up_proj.weight", (h, 2 * n) if turned else (2 * n, h),
          lambda: fused_blocks(hf, n, h, rank * n, (), turned, weave, swap))
    m.columns(p + "down_proj.weight", hf + "down_proj.weight", tp, rank)


def _rollout_experts(m, p, hf):
    c, h, ep = m.c, m.c.hidden, m.get("ep", 1)
    turned = m.get("gate_up", "rows") == "transposed"
    weave, swap = m.get("interleave", False), m.get("swap", False)
    per_block = m.tp // ep
    local, n = c.experts // ep, c.moe_intermediate // per_block
    first, part = m.t // per_block * local, m.t % per_block
    m.add(p + "w13_weight", (local, h, 2 * n) if turned else (local, 2 * n, h), lambda: [
        b for i in range(local)
        for b in fused_blocks(f"{hf}{first + i}.", n, h, part * n, (i,), turned, weave, swap)])
    m.add(p + "w2_weight", (local, n, h) if turned else (local, h, n), lambda: [
        Block(f"{hf}{first + i}.down_proj.weight", 0, np.arange(h), n, part * n, (i,), turned)
        for i in range(local)])


def rules(spec):
    """dict name -> Rule of every parameter of a worker."""
    return {"megatron": megatron, "fsdp2": fsdp2, "vllm": rollout,
            "sglang": rollout}[spec["framework"]](spec)
