# SPDX-License-Identifier: Apache-2.0
"""An FSDP2 trainer worker: every Hugging Face parameter cut on dim 0 by torch.chunk."""
import math

from . import base, models


class Engine(base.Engine):
    """Settings: see DEFAULTS.  Names are those of the HF module tree.

    The last shards of a parameter may be shorter, or empty.  Buffers (the router's correction
    bias) are whole on every rank.  MTP layers are not part of the HF model and are skipped.
    """

    DEFAULTS = {"world": 1, "rank": 0,
                "masters": False,   # F32 parameters of a BF16 checkpoint
                "stacked": False,   # experts in one [E, 2I, H] and one [E, H, I] parameter
                "flat": False,      # FSDP1 and ZeRO-3: even 1-D cuts of each layer laid end to end
                "tied": "omit"}     # tied lm_head: "alias" registers the embedding twice

    def _build(self):
        c, units = self.config, {}
        for name, shape, _ in models.tensors(c):
            if name == "lm_head.weight" and not c.has_lm_head:
                continue
            is_layer = name.startswith("model.layers.")
            if is_layer and int(name.split(".")[2]) >= c.layers:
                continue
            if name.endswith("e_score_correction_bias"):
                self._copy(name, self._add(name, shape, "F32"))
            elif self.spec["flat"]:
                unit = ".".join(name.split(".")[:3]) if is_layer else "model"
                units.setdefault(unit, []).append(name)
            elif ".mlp.experts." in name and self.spec["stacked"]:
                if name.endswith(".experts.0.gate_proj.weight"):
                    self._stacked(name[:name.index("experts.") + len("experts.")])
            else:
                mine = self._chunk(shape[0])
                dst = self._add(name, (mine.stop - mine.start, *shape[1:]), self._dtype())
                self._copy(name, dst, (mine,))
        for unit, tensors in units.items():
            self._flat(unit + "._flat_param", tensors)
        if not c.has_lm_head and self.spec["tied"] == "alias" and not self.spec["flat"]:
            self.params["lm_head.weight"] = self.params["model.embed_tokens.weight"]

    def _dtype(self):
        return "F32" if self.spec["masters"] else self.config.dtype

    def _chunk(self, n):
        """This rank's part of n, as torch.chunk cuts it."""
        step = -(-n // self.spec["world"])
        at = min(step * self.spec["rank"], n)
        return slice(at, min(at + step, n))

    def _stacked(self, prefix):
        c = self.config
        mine = self._chunk(c.experts)
        n, wide = mine.stop - mine.start, c.moe_intermediate
        fused = self._add(prefix + "gate_up_proj", (n, 2 * wide, c.hidden), self._dtype())
        down = self._add(prefix + "down_proj", (n, c.hidden, wide), self._dtype())
        for i, e in enumerate(range(mine.start, mine.stop)):
            self._copy(f"{prefix}{e}.gate_proj.weight", fused[i, :wide])
            self._copy(f"{prefix}{e}.up_proj.weight", fused[i, wide:])
            self._copy(f"{prefix}{e}.down_proj.weight", down[i])

    def _flat(self, name, tensors):
        """One unit: its tensors end to end, padded with zeros, the rank's part of that."""
        sizes = [math.prod(self._known[t]) for t in tensors]
        n = -(-sum(sizes) // self.spec["world"])
        begin = n * self.spec["rank"]
        dst = self._add(name, (n,), self._dtype())
        at = 0
        for tensor, size in zip(tensors, sizes):
            first, end = max(at, begin), min(at + size, begin + n)
            if first < end:
                self._copy(tensor, dst[first - begin:end - begin],
                           (slice(first - at, end - at),), shape=(-1,))
            at += size
        self._pad(tensors[-1], name, max(0, min(n, at - begin)))
