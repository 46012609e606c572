# SPDX-License-Identifier: Apache-2.0
"""Modules of Hugging Face Transformers, as trainers or as engines.  Tested with transformers 5.19.0.

    from weightbridge.adapters import transformers
    sender = transformers.sender(model).connect()                       # a trainer of one process
    receiver = transformers.receiver(model, engine="e0").connect()      # who generates with the module itself

The checkpoint is what `model.save_pretrained` writes: its names, one tensor for each expert although Transformers 5 keeps
experts stacked, without second names of tied weights.  Persistent buffers (a router's bias) are part of it.
Parameters that several ranks share are fsdp2's; this module refuses them.

The module must be as it will be trained before connect(): types promoted (`model.float()`), layers wrapped.  A tensor that
gets other storage later is named by the next transfer (ParametersMoved).
"""

from ..errors import WeightBridgeError
from . import ReceiverAdapter, SenderAdapter
from .exports import Exports, untied


def exports(model, dtype=None):
    """The Exports of a module: its `manifest`, its `params` and its `load`.  dtype: see sender()."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    buffers = {n for n, _ in model.named_buffers()}
    return Exports(untied(model), _exporter(model), dtype, buffers)


def _exporter(model):
    """What save_pretrained does to the tensors before it writes them; None for a module that is not of Transformers."""
    if not hasattr(model, "save_pretrained"):
        return None
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5 modules are as their checkpoints are
        return None
    return lambda tensors: revert_weight_conversion(model, tensors)


def _refuse_shared(model):
    shared = [n for n, p in model.named_parameters() if hasattr(p, "to_local")]
    if shared:
        raise WeightBridgeError(f"parameter {shared[0]} is distributed over ranks: use weightbridge.adapters.fsdp2")


def _adapter(kind, model, manifest, dtype, options):
    found = exports(model, dtype)
    return kind(found.load, params=found.params, manifest=found.manifest if manifest is None else manifest, **options)


def sender(model, manifest=None, dtype=None, **options):
    """The SenderAdapter of a trainer that has the whole module.

    manifest   what the engines' checkpoint holds, best its folder; None: what this module would save
    dtype      without a manifest: the type that the engines get floating-point parameters in (torch.bfloat16), when
               the module holds them in another one (FP32 masters); they are rounded to nearest.  Buffers keep theirs
    options    SenderAdapter's
    """
    _refuse_shared(model)
    return _adapter(SenderAdapter, model, manifest, dtype, options)


def receiver(model, manifest=None, dtype=None, **options):
    """The ReceiverAdapter of a process that computes with the module itself.  Arguments as sender()'s."""
    _refuse_shared(model)
    return _adapter(ReceiverAdapter, model, manifest, dtype, options)
