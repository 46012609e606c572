# SPDX-License-Identifier: Apache-2.0
"""What the rollout workers of vLLM and SGLang have in common: TP, PP and EP geometry."""
from . import base


class Rollout(base.Engine):
    """Settings: see DEFAULTS.  Subclasses give the names and the MLA parts that differ."""

    DEFAULTS = {"tp": 1, "tp_rank": 0, "pp": 1, "pp_rank": 0,
                "stages": None,           # layers of each pipeline stage; even when None
                "ep": 1,                  # experts: ep blocks, each split over tp/ep ranks
                "dp": 1,                  # attention data parallel: attention TP is tp/dp
                "dense_tp": 0,            # TP of dense MLPs; 0 = tp, 1 = replicated
                "shared_tp": 0,           # TP of shared experts; 0 = tp
                "vocab_multiple": 64,
                "tied": "omit",           # tied lm_head: "alias" registers the embedding twice
                "bias_dtype": "F32",      # of the router's correction bias
                "gate_up": "rows",        # or "transposed": [H, 2I], and [I, H] for experts
                "interleave": False,      # gate and up rows in turns
                "swap": False,            # up before gate
                "draft": False}           # the MTP layers, as a draft model of this worker

    KV_A = "kv_a_proj_with_mqa.weight"

    def _build(self):
        c, s = self.config, self.spec
        if s["gate_up"] not in ("rows", "transposed") or s["tied"] not in ("omit", "alias"):
            raise ValueError("gate_up is rows or transposed, tied is omit or alias")
        self.attn_tp = base.share(s["tp"], s["dp"], "tp")
        self.attn_rank = s["tp_rank"] % self.attn_tp
        first, end = self._stage()
        is_last = s["pp_rank"] == s["pp"] - 1
        if s["pp_rank"] == 0 or (is_last and not c.has_lm_head):
            self._vocab("model.embed_tokens.weight")
        for layer in range(first, end):
            self._layer(f"model.layers.{layer}.", layer)
        if is_last:
            self._whole("model.norm.weight", "model.norm.weight")
            if c.has_lm_head:
                self._vocab("lm_head.weight")
            elif s["tied"] == "alias":
                self.params["lm_head.weight"] = self.params["model.embed_tokens.weight"]
        if s["draft"]:
            if s["pp"] > 1 or c.mtp_layers != 1:
                raise ValueError("a draft model needs one MTP layer and no pipeline")
            self._draft(c.layers)

    def _stage(self):
        s = self.spec
        stages = s["stages"] or [base.share(self.config.layers, s["pp"], "layers")] * s["pp"]
        if len(stages) != s["pp"] or sum(stages) != self.config.layers:
            raise ValueError(f"stages {stages} do not cut {self.config.layers} layers")
        first = sum(stages[:s["pp_rank"]])
        return first, first + stages[s["pp_rank"]]

    def _whole(self, name, tensor, dtype=None):
        self._copy(tensor, self._add(name, self._known[tensor], dtype))

    def _vocab(self, name):
        vocab, width = self._known[name]
        multiple = self.spec["vocab_multiple"]
        n = base.share(-(-vocab // multiple) * multiple, self.attn_tp, "padded vocab")
        at = n * self.attn_rank
        real = min(max(vocab - at, 0), n)
        dst = self._add(name, (n, width))
        self._copy(name, dst[:real], (slice(at, at + real),))
        self._pad(name, name, real)

    def _rows(self, name, tensor):
        rows, width = self._known[tensor]
        n = base.share(rows, self.attn_tp, f"rows of {tensor}")
        at = n * self.attn_rank
        self._copy(tensor, self._add(name, (n, width)), (slice(at, at + n),))

    def _columns(self, name, tensor, tp, rank):
        rows, width = self._known[tensor]
        n = base.share(width, tp, f"columns of {tensor}")
        self._copy(tensor, self._add(name, (rows, n)),
                   (slice(None), slice(n * rank, n * rank + n)))

    def _layer(self, p, layer):
        c, hf = self.config, f"model.layers.{layer}."
        self._whole(p + "input_layernorm.weight", hf + "input_layernorm.weight")
        if c.has_mla:
            self._mla(p + "self_attn.", hf + "self_attn.")
        else:
            self._gqa(p + "self_attn.", hf + "self_attn.")
        self._columns(p + "self_attn.o_proj.weight", hf + "self_attn.o_proj.weight",
                      self.attn_tp, self.attn_rank)
        self._whole(p + "post_attention_layernorm.weight", hf + "post_attention_layernorm.weight")
        if c.is_moe(layer):
            self._moe(p + "mlp.", hf + "mlp.")
        else:
            tp = self.spec["dense_tp"] or self.spec["tp"]
            self._mlp(p + "mlp.", hf + "mlp.", tp, self.spec["tp_rank"] % tp)

    def _gqa(self, p, hf):
        """Query heads, key heads, value heads of this rank; KV heads are shared by ranks."""
        c, tp, rank = self.config, self.attn_tp, self.attn_rank
        q = base.share(c.heads, tp, "heads") * c.head_dim
        if tp <= c.kv_heads:
            kv = base.share(c.kv_heads, tp, "kv_heads") * c.head_dim
            kv_at = rank * kv
        else:
            kv = c.head_dim
            kv_at = rank // base.share(tp, c.kv_heads, "tp") * kv
        dst = self._add(p + "qkv_proj.weight", (q + 2 * kv, c.hidden))
        self._copy(hf + "q_proj.weight", dst[:q], (slice(rank * q, rank * q + q),))
        self._copy(hf + "k_proj.weight", dst[q:q + kv], (slice(kv_at, kv_at + kv),))
        self._copy(hf + "v_proj.weight", dst[q + kv:], (slice(kv_at, kv_at + kv),))
        self._whole(p + "q_norm.weight", hf + "q_norm.weight")
        self._whole(p + "k_norm.weight", hf + "k_norm.weight")

    def _mla(self, p, hf):
        c = self.config
        if c.q_lora_rank:
            self._fused_a(p, hf)
            self._whole(p + "q_a_layernorm.weight", hf + "q_a_layernorm.weight")
            self._rows(p + "q_b_proj.weight", hf + "q_b_proj.weight")
        else:
            self._rows(p + "q_proj.weight", hf + "q_proj.weight")
            self._whole(p + self.KV_A, hf + self.KV_A)
        self._whole(p + "kv_a_layernorm.weight", hf + "kv_a_layernorm.weight")
        self._rows(p + "kv_b_proj.weight", hf + "kv_b_proj.weight")

    def _fused_a(self, p, hf):
        raise NotImplementedError

    def _halves(self, dst, axis):
        """The places of gate and up in a fused parameter, by this worker's options."""
        n = dst.shape[axis] // 2
        if self.spec["interleave"]:
            cuts = [slice(0, None, 2), slice(1, None, 2)]
        else:
            cuts = [slice(0, n), slice(n, None)]
        if self.spec["swap"]:
            cuts.reverse()
        return [dst[(slice(None),) * axis + (cut,)] for cut in cuts]

    def _fuse(self, dst, hf, cut):
        """Gate and up of one MLP into dst, which is [2n, H], or [H, 2n] when transposed."""
        transposed = self.spec["gate_up"] == "transposed"
        gate, up = self._halves(dst, 1 if transposed else 0)
        self._copy(hf + "gate_proj.weight", gate, (cut,), transpose=transposed)
        self._copy(hf + "up_proj.weight", up, (cut,), transpose=transposed)

    def _mlp(self, p, hf, tp, rank):
        rows, width = self._known[hf + "gate_proj.weight"]
        n = base.share(rows, tp, f"rows of {hf}gate_proj")
        shape = (2 * n, width) if self.spec["gate_up"] == "rows" else (width, 2 * n)
        self._fuse(self._add(p + "gate_up_proj.weight", shape), hf, slice(n * rank, n * rank + n))
        self._columns(p + "down_proj.weight", hf + "down_proj.weight", tp, rank)

    def _moe(self, p, hf):
        c, s = self.config, self.spec
        self._whole(p + "gate.weight", hf + "gate.weight")
        if c.arch == "deepseek_v3":
            self._whole(p + "gate.e_score_correction_bias", hf + "gate.e_score_correction_bias",
                        s["bias_dtype"])
        transposed = s["gate_up"] == "transposed"
        split = base.share(s["tp"], s["ep"], "tp")
        block, part = divmod(s["tp_rank"], split)
        local, n = base.share(c.experts, s["ep"], "experts"), base.share(
            c.moe_intermediate, split, "moe_intermediate")
        cut = slice(part * n, part * n + n)
        w13 = self._add(p + "experts.w13_weight",
                        (local, c.hidden, 2 * n) if transposed else (local, 2 * n, c.hidden))
        w2 = self._add(p + "experts.w2_weight",
                       (local, n, c.hidden) if transposed else (local, c.hidden, n))
        for i in range(local):
            src = f"{hf}experts.{block * local + i}."
            self._fuse(w13[i], src, cut)
            self._copy(src + "down_proj.weight", w2[i], (slice(None), cut), transpose=transposed)
        if c.shared_experts:
            tp = s["shared_tp"] or s["tp"]
            self._mlp(p + "shared_experts.", hf + "shared_experts.", tp, s["tp_rank"] % tp)

    def _draft(self, layer):
        """The MTP layer as a second model that shares embedding and head with the first."""
        hf, p = f"model.layers.{layer}.", "draft.model."
        self._whole(p + "enorm.weight", hf + "enorm.weight")
        self._whole(p + "hnorm.weight", hf + "hnorm.weight")
        self._whole(p + "eh_proj.weight", hf + "eh_proj.weight")
        self._layer(p + self.DRAFT_LAYER.format(layer=layer), layer)
        self._whole(p + "shared_head.norm.weight", hf + "shared_head.norm.weight")
        self.params[p + "embed_tokens.weight"] = self.params["model.embed_tokens.weight"]
        if self.config.has_lm_head:
            self.params["draft.lm_head.weight"] = self.params["lm_head.weight"]
