# SPDX-License-Identifier: Apache-2.0
"""A vLLM rollout worker.  W_UV and W_UK_T are views of kv_b_proj there: nothing to keep."""
from . import rollout


class Engine(rollout.Rollout):
    """Settings: see rollout.Rollout.DEFAULTS."""

    DRAFT_LAYER = "layers.{layer}.mtp_block."

    def _fused_a(self, p, hf):
        """Both low-rank down projections in one parameter, written as they come."""
        (q, width), (kv, _) = self._known[hf + "q_a_proj.weight"], self._known[hf + self.KV_A]
        dst = self._add(p + "fused_qkv_a_proj.weight", (q + kv, width))
        self._copy(hf + "q_a_proj.weight", dst[:q])
        self._copy(hf + self.KV_A, dst[q:])
