# SPDX-License-Identifier: Apache-2.0
"""Worker extensions of vLLM that keep AMX out of its workers, by being imported there.

A virtual machine may say that it has AMX and lose a thread's tiles when another thread runs.  The next instruction on
a tile is an illegal one then: `VLLM::Worker` ended by SIGILL in `tilezero`, in one run of three."""
import hashlib

import torch

from weightbridge.adapters import vllm as wb

torch.cpu._is_amx_tile_supported = lambda: False


class Plain:
    """A worker as it is."""


class Rollout(wb.Extension):
    """One that takes weights."""

    def received(self):
        """Name -> digest of each tensor that has come."""
        return {n: digest(t) for n, t in self.weight_transfer_engine._tensors.items()}


def digest(t):
    return hashlib.sha256(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
