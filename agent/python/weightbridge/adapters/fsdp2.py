# SPDX-License-Identifier: Apache-2.0
"""Trainers under PyTorch's FSDP2 (fully_shard), DTensors in general.  Tested with torch 2.13.0, transformers 5.19.0.

    from weightbridge.adapters import fsdp2
    model = ...; fully_shard(model)                      # promoted and wrapped first
    sender = fsdp2.sender(model, dtype=torch.bfloat16, rank=rank).connect()     # on every rank
    optimizer.step(); sender.send_weights(version)                              # on every rank, the same version

Each rank sends its own shards out of their own memory; nothing is gathered.  FP32 masters are rounded to `dtype` on the
way.  connect() calls no collective: ranks need not probe together, and none hangs when another fails.

Before each transfer parameters that a forward pass left unsharded are sharded again (FSDPModule.reshard).

Embeddings that were resized to a round number of rows: weightbridge.adapters.transformers says how.  A rank whose shard is
padding alone has nothing to send of it.
"""

from . import SenderAdapter
from .exports import Exports, untied
from .transformers import _adapter, _exporter, _vocabulary


def exports(model, dtype=None, manifest=None):
    """The Exports of a sharded module; its `params` are this rank's shards.  Arguments as sender()'s."""
    plain = getattr(model, "_orig_mod", model)
    buffers = {n for n, _ in plain.named_buffers()}
    state = untied(plain)

    def sharded():
        _reshard(plain)
        return state()
    return Exports(sharded, _exporter(plain), dtype, buffers, _vocabulary(plain), manifest)


def _reshard(model):
    from torch.distributed.fsdp import FSDPModule

    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def sender(model, manifest=None, dtype=None, **options):
    """The SenderAdapter of one rank.  Arguments as weightbridge.adapters.transformers.sender's; give `rank`."""
    return _adapter(SenderAdapter, exports, model, manifest, dtype, options)
