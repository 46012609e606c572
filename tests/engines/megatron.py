# SPDX-License-Identifier: Apache-2.0
"""A Megatron-core trainer worker: TP, PP and EP, with mcore's fused parameters."""
from . import base


def stage_layers(spec, layers):
    """(first, end) of the layers of a worker's pipeline stage."""
    stages = spec["stages"]
    if stages is None:
        stages = [base.share(layers, spec["pp"], "layers")] * spec["pp"]
    if len(stages) != spec["pp"] or sum(stages) != layers:
        raise ValueError(f"stages {stages} do not cut {layers} layers in {spec['pp']}")
    first = sum(stages[:spec["pp_rank"]])
    return first, first + stages[spec["pp_rank"]]


class Engine(base.Engine):
    """Settings: see DEFAULTS.  Experts are not split over TP; they are dealt in blocks over EP.

    Layers are numbered within the stage, experts within the rank, as in mcore.
    """

    DEFAULTS = {"tp": 1, "tp_rank": 0, "pp": 1, "pp_rank": 0, "ep": 1, "ep_rank": 0,
                "stages": None,          # layers of each stage; even when None
                "vocab_multiple": 128}   # vocab is padded to a multiple of this times tp

    def _build(self):
        c, s = self.config, self.spec
        first, end = stage_layers(s, c.layers)
        is_first, is_last = s["pp_rank"] == 0, s["pp_rank"] == s["pp"] - 1
        if is_first or (is_last and c.mtp_layers):
            self._vocab("embedding.word_embeddings.weight", "model.embed_tokens.weight")
        for layer in range(first, end):
            self._layer(f"decoder.layers.{layer - first}.", layer)
        if not is_last:
            return
        self._whole("decoder.final_layernorm.weight", "model.norm.weight")
        if c.has_lm_head:
            self._vocab("output_layer.weight", "lm_head.weight")
        elif not is_first:
            # Tied, but on another stage than the embedding: a copy of its own.
            self._vocab("output_layer.weight", "model.embed_tokens.weight")
        for i in range(c.mtp_layers):
            self._mtp(f"mtp.layers.{i}.", c.layers + i)

    def _whole(self, name, tensor, dtype=None):
        shape = self._known[tensor]
        self._copy(tensor, self._add(name, shape, dtype))

    def _rows(self, name, tensor):
        rows, width = self._known[tensor]
        n = base.share(rows, self.spec["tp"], f"rows of {tensor}")
        at = n * self.spec["tp_rank"]
        self._copy(tensor, self._add(name, (n, width)), (slice(at, at + n),))

    def _columns(self, name, tensor, tp=None, rank=None):
        tp, rank = (self.spec["tp"], self.spec["tp_rank"]) if tp is None else (tp, rank)
        rows, width = self._known[tensor]
        n = base.share(width, tp, f"columns of {tensor}")
        at = n * rank
        self._copy(tensor, self._add(name, (rows, n)), (slice(None), slice(at, at + n)))

    def _vocab(self, name, tensor):
        vocab, width = self._known[tensor]
        tp = self.spec["tp"]
        step = self.spec["vocab_multiple"] * tp
        n = -(-vocab // step) * step // tp
        at = n * self.spec["tp_rank"]
        real = min(max(vocab - at, 0), n)
        dst = self._add(name, (n, width))
        self._copy(tensor, dst[:real], (slice(at, at + real),))
        self._pad(tensor, name, real)

    def _gate_up(self, name, prefix, tp=None, rank=None):
        tp, rank = (self.spec["tp"], self.spec["tp_rank"]) if tp is None else (tp, rank)
        rows, width = self._known[prefix + "gate_proj.weight"]
        n = base.share(rows, tp, f"rows of {prefix}gate_proj")
        dst = self._add(name, (2 * n, width)).reshape(2, n, width)
        mine = slice(n * rank, n * rank + n)
        self._copy(prefix + "gate_proj.weight", dst[0], (mine,))
        self._copy(prefix + "up_proj.weight", dst[1], (mine,))

    def _layer(self, p, layer):
        c, hf = self.config, f"model.layers.{layer}."
        if c.has_mla:
            self._whole(p + "input_layernorm.weight", hf + "input_layernorm.weight")
            self._mla(p + "self_attention.", hf + "self_attn.")
        else:
            self._whole(p + "self_attention.linear_qkv.layer_norm_weight",
                        hf + "input_layernorm.weight")
            self._gqa(p + "self_attention.", hf + "self_attn.")
        self._columns(p + "self_attention.linear_proj.weight", hf + "self_attn.o_proj.weight")
        if c.is_moe(layer):
            self._moe(p, hf)
            return
        self._whole(p + "mlp.linear_fc1.layer_norm_weight",
                    hf + "post_attention_layernorm.weight")
        self._gate_up(p + "mlp.linear_fc1.weight", hf + "mlp.")
        self._columns(p + "mlp.linear_fc2.weight", hf + "mlp.down_proj.weight")

    def _gqa(self, p, hf):
        """Per KV group: its query heads, its key head, its value head."""
        c, tp, rank = self.config, self.spec["tp"], self.spec["tp_rank"]
        d, width = c.head_dim, c.hidden
        queries = base.share(c.heads, c.kv_heads, "heads")
        if tp <= c.kv_heads:
            groups = base.share(c.kv_heads, tp, "kv_heads")
            q_cut = (slice(rank * groups, (rank + 1) * groups), slice(None))
            kv_cut = slice(rank * groups, (rank + 1) * groups)
            local = queries
        else:
            # A part of one group's query heads, beside a copy of its key and value.
            parts = base.share(tp, c.kv_heads, "tp")
            local = base.share(queries, parts, "heads of a group")
            group, part = divmod(rank, parts)
            q_cut = (slice(group, group + 1), slice(part * local * d, (part + 1) * local * d))
            kv_cut, groups = slice(group, group + 1), 1
        dst = self._add(p + "linear_qkv.weight", (groups * (local + 2) * d, width))
        dst = dst.reshape(groups, (local + 2) * d, width)
        self._copy(hf + "q_proj.weight", dst[:, :local * d], q_cut,
                   shape=(c.kv_heads, queries * d, width))
        self._copy(hf + "k_proj.weight", dst[:, local * d:-d], (kv_cut,),
                   shape=(c.kv_heads, d, width))
        self._copy(hf + "v_proj.weight", dst[:, -d:], (kv_cut,), shape=(c.kv_heads, d, width))
        self._whole(p + "q_layernorm.weight", hf + "q_norm.weight")
        self._whole(p + "k_layernorm.weight", hf + "k_norm.weight")

    def _mla(self, p, hf):
        if self.config.q_lora_rank:
            self._whole(p + "linear_q_down_proj.weight", hf + "q_a_proj.weight")
            self._whole(p + "linear_q_up_proj.layer_norm_weight", hf + "q_a_layernorm.weight")
            self._rows(p + "linear_q_up_proj.weight", hf + "q_b_proj.weight")
        else:
            self._rows(p + "linear_q_proj.weight", hf + "q_proj.weight")
        self._whole(p + "linear_kv_down_proj.weight", hf + "kv_a_proj_with_mqa.weight")
        self._whole(p + "linear_kv_up_proj.layer_norm_weight", hf + "kv_a_layernorm.weight")
        self._rows(p + "linear_kv_up_proj.weight", hf + "kv_b_proj.weight")

    def _moe(self, p, hf):
        c, s = self.config, self.spec
        self._whole(p + "pre_mlp_layernorm.weight", hf + "post_attention_layernorm.weight")
        self._whole(p + "mlp.router.weight", hf + "mlp.gate.weight")
        if c.arch == "deepseek_v3":
            self._whole(p + "mlp.router.expert_bias", hf + "mlp.gate.e_score_correction_bias",
                        "F32")
        local = base.share(c.experts, s["ep"], "experts")
        for e in range(local):
            src = hf + f"mlp.experts.{s['ep_rank'] * local + e}."
            self._gate_up(p + f"mlp.experts.linear_fc1.weight{e}", src, 1, 0)
            self._columns(p + f"mlp.experts.linear_fc2.weight{e}", src + "down_proj.weight", 1, 0)
        if c.shared_experts:
            self._gate_up(p + "mlp.shared_experts.linear_fc1.weight", hf + "mlp.shared_experts.")
            self._columns(p + "mlp.shared_experts.linear_fc2.weight",
                          hf + "mlp.shared_experts.down_proj.weight")

    def _mtp(self, p, layer):
        """The extra layer.  Its embedding and head are the model's; the file's are skipped."""
        hf = f"model.layers.{layer}."
        self._whole(p + "enorm.weight", hf + "enorm.weight")
        self._whole(p + "hnorm.weight", hf + "hnorm.weight")
        self._rows(p + "eh_proj.weight", hf + "eh_proj.weight")
        self._layer(p + "transformer_layer.", layer)
        self._whole(p + "final_layernorm.weight", hf + "shared_head.norm.weight")
