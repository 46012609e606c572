# SPDX-License-Identifier: Apache-2.0
"""An SGLang rollout worker: MLA keeps derived copies, and parks tensors until their pair came."""
import numpy as np

from . import base, rollout


class Engine(rollout.Rollout):
    """Settings: see rollout.Rollout.DEFAULTS.

    w_kc and w_vc are not parameters of the module; they are copies made of kv_b_proj at the end of
    load_weights, and are registered beside it because a transfer must write them too.
    """

    DRAFT_LAYER = "decoder."

    def _build(self):
        self._derived = []
        super()._build()

    def _fused_a(self, p, hf):
        names = (hf + "q_a_proj.weight", hf + self.KV_A)
        rows = sum(self._known[n][0] for n in names)
        dst = self._add(p + "fused_qkv_a_proj_with_mqa.weight", (rows, self.config.hidden))
        self._together(names, lambda pair: np.copyto(
            dst, base.cast(np.concatenate(pair, axis=0), dst.dtype)))

    def _mla(self, p, hf):
        super()._mla(p, hf)
        c = self.config
        heads, nope, v, lora = (c.heads // self.attn_tp, c.qk_nope_head_dim, c.v_head_dim,
                                c.kv_lora_rank)
        kv_b = self.params[p + "kv_b_proj.weight"][0].reshape(heads, nope + v, lora)
        self._derived.append((kv_b, nope, self._add(p + "w_kc", (heads, lora, nope)),
                              self._add(p + "w_vc", (heads, v, lora))))

    def _after_load(self):
        for kv_b, nope, w_kc, w_vc in self._derived:
            np.copyto(w_kc, kv_b[:, :nope].transpose(0, 2, 1))
            np.copyto(w_vc, kv_b[:, nope:])
