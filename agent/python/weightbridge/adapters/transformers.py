# SPDX-License-Identifier: Apache-2.0
"""Modules of Hugging Face Transformers, as trainers or as engines.  Tested with transformers 5.19.0.

    from weightbridge.adapters import transformers
    sender = transformers.sender(model).connect()                       # a trainer of one process
    receiver = transformers.receiver(model, engine="e0").connect()      # who generates with the module itself

The checkpoint is what `model.save_pretrained` writes: its names, one tensor for each expert although Transformers 5 keeps
experts stacked, without second names of tied weights.  Persistent buffers (a router's bias) are part of it.
Parameters that several ranks share are fsdp2's; this module refuses them.

Embeddings with more rows than the engines' checkpoint (resize_token_embeddings with pad_to_multiple_of) are sent with
`manifest`, the folder that the engines load: the rows behind its last word are padding, and stay here as they are.  Without
it they are tensors of that shape, for engines of a checkpoint that was saved with them.

The module must be as it will be trained before connect(): types promoted (`model.float()`), layers wrapped.  A tensor that
gets other storage later is named by the next transfer (ParametersMoved).
"""

from .. import manifest as manifests
from ..errors import WeightBridgeError
from . import ReceiverAdapter, SenderAdapter
from .exports import Exports, untied


def exports(model, dtype=None, manifest=None):
    """The Exports of a module: its `manifest`, its `params` and its `load`.  Arguments as sender()'s."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    buffers = {n for n, _ in model.named_buffers()}
    return Exports(untied(model), _exporter(model), dtype, buffers, _vocabulary(model), manifest)


def _exporter(model):
    """What save_pretrained does to the tensors before it writes them; None for a module that is not of Transformers."""
    if not hasattr(model, "save_pretrained"):
        return None
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5 modules are as their checkpoints are
        return None
    return lambda tensors: revert_weight_conversion(model, tensors)


def _vocabulary(model):
    """Names of the parameters that have a row for each word, and maybe more: those that resize_token_embeddings resizes."""
    parts = [getattr(model, f"get_{which}_embeddings", lambda: None) for which in ("input", "output")]
    own = set()
    for part in parts if hasattr(model, "save_pretrained") else ():
        try:
            own.update(id(p) for p in part().parameters(recurse=False))
        except (AttributeError, NotImplementedError):  # a model without such
            continue
    return {n for n, p in model.named_parameters(remove_duplicate=False) if id(p) in own}


def _refuse_shared(model):
    shared = [n for n, p in model.named_parameters() if hasattr(p, "to_local")]
    if shared:
        raise WeightBridgeError(f"parameter {shared[0]} is distributed over ranks: use weightbridge.adapters.fsdp2")


def _adapter(kind, exports_of, model, manifest, dtype, options):
    if manifest is not None:
        manifest = manifests.read(manifest, options.get("leave_out") or ())
    found = exports_of(model, dtype, manifest)
    return kind(found.load, params=found.params, manifest=found.manifest if manifest is None else manifest, **options)


def sender(model, manifest=None, dtype=None, **options):
    """The SenderAdapter of a trainer that has the whole module.

    manifest   what the engines' checkpoint holds, best its folder, where embeddings may have fewer rows than here; None:
               what this module would save
    dtype      without a manifest: the type that the engines get floating-point parameters in (torch.bfloat16), when
               the module holds them in another one (FP32 masters); they are rounded to nearest.  Buffers keep theirs
    options    SenderAdapter's
    """
    _refuse_shared(model)
    return _adapter(SenderAdapter, exports, model, manifest, dtype, options)


def receiver(model, manifest=None, dtype=None, **options):
    """The ReceiverAdapter of a process that computes with the module itself.  Arguments as sender()'s."""
    _refuse_shared(model)
    return _adapter(ReceiverAdapter, exports, model, manifest, dtype, options)
