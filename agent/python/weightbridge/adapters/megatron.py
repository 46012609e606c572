# SPDX-License-Identifier: Apache-2.0
"""Trainers under Megatron-core, by the Megatron Bridge.  Tested with megatron-core 0.19.2 and megatron-bridge 0.6.2.

    from weightbridge.adapters import megatron
    chunks = ...                                # as Megatron has them: a list, one for each virtual stage
    sender = megatron.sender(chunks, bridge, "/models/qwen3").connect()     # on every rank, all together
    optimizer.step(); sender.send_weights(version)                          # on every rank, the same version

Each rank sends what it has, be it cut by tensor, pipeline or expert parallelism, out of its own memory; nothing is gathered.
Where that lies in the checkpoint is found by the Bridge's own loader, which is run on made-up tensors.

The loader is collective: some ranks cut tensors for others.  So all ranks call connect(), and if one fails, all fail by its
words.  While it is probed, each rank holds the made-up checkpoint whole, once: as much memory as the model on disk.

A vocabulary that Megatron pads (should_pad_vocab, make_vocab_size_divisible_by) has more rows than the checkpoint: the Bridge
loads zeros there, and nothing is sent from them.

Chunks may be wrapped, as Megatron's get_model wraps them, by DistributedDataParallel and Float16Module.  A distributed optimizer
moves the parameters into flat buffers when they are wrapped: that comes before sender().  Where these buffers are offloaded
and reloaded later, the next transfer raises ParametersMoved, and rebind() attaches them again.

With overlap_param_gather a rank has, after a step, only its own part of the new parameters, and gets the rest in the next
forward pass.  So send_weights() gathers them first, which is collective, and connect() does.

Megatron turns a router's bias to FP32 by putting another tensor in its place, at the first forward pass.  sender() does
that first, so that it lies still afterwards.
"""

from ..errors import WeightBridgeError
from . import SenderAdapter

_VOCABULARY = ("embedding.word_embeddings.weight", "output_layer.weight")


class Chunks:
    """A model's chunks of this rank: `params` and `load` are what SenderAdapter takes."""

    def __init__(self, chunks, bridge):
        self._chunks = list(chunks) if isinstance(chunks, (list, tuple)) else [chunks]
        self._bridge = bridge
        for _, router in self._modules():
            if hasattr(router, "_maintain_float32_expert_bias"):
                router._maintain_float32_expert_bias()
        for name, tensor in self.params().items():
            if hasattr(tensor, "to_local"):
                raise WeightBridgeError(f"parameter {name} is cut over ranks as a DTensor, as Megatron-FSDP does, which the Bridge's "
                                        "loader cannot be probed with: wrap the model by Megatron's DistributedDataParallel")

    def _modules(self):
        for i, chunk in enumerate(self._chunks):
            before = f"{i}." if len(self._chunks) > 1 else ""
            yield from ((before + name, m) for name, m in chunk.named_modules())

    def params(self):
        """Name -> tensor of all parameters and routers' biases, each once."""
        found, seen = {}, set()
        for name, module in self._modules():
            own = dict(module.named_parameters(recurse=False))
            own.update((n, b) for n, b in module.named_buffers(recurse=False) if n == "expert_bias")
            for key, tensor in own.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    found[f"{name}.{key}" if name else key] = tensor
        return found

    def settle(self):
        """Gathers what a distributed optimizer left to the next forward pass.  Collective where there is such an optimizer."""
        import torch

        for chunk in self._chunks:
            if getattr(getattr(chunk, "ddp_config", None), "overlap_param_gather", False):
                with torch.no_grad():
                    chunk.start_param_sync(force_sync=True)

    def load(self, weights):
        """Writes a checkpoint, an iterable of (name, tensor), into the chunks, in place.  Collective."""
        import types

        from megatron.bridge.models.hf_pretrained.state import DictStateSource, StateDict

        known, loader, tensors = self._bridge.hf_pretrained, self._bridge._model_bridge, dict(weights)
        self._pad(loader, tensors)
        source = types.SimpleNamespace(state=StateDict(DictStateSource(tensors)), config=getattr(known, "config", known),
                                       model_name_or_path="weightbridge")
        if getattr(loader, "hf_config", None) is None:
            loader.hf_config = source.config
        loader.load_weights_hf_to_megatron(source, self._chunks)

    def _pad(self, loader, tensors):
        """The Bridge pads the vocabulary where tensor parallelism cuts it, and would not load it where each rank has it whole.
        Raises, on all ranks alike, when the checkpoint has more words than the model."""
        import torch
        from megatron.core import parallel_state

        rows = next((m.vocab_size for _, m in self._modules() if isinstance(getattr(m, "vocab_size", None), int)), None)
        for ours in _VOCABULARY if rows else ():
            name = getattr(loader.mapping_registry().megatron_to_hf_lookup(ours), "hf_param", None)
            tensor = tensors.get(name) if isinstance(name, str) else None
            if tensor is None or len(tensor) == rows:
                continue
            if len(tensor) > rows:
                raise WeightBridgeError(f"tensor {name} has {len(tensor)} rows, and the model of Megatron {rows} for its "
                                        "vocabulary: build it with the checkpoint's vocab_size")
            if parallel_state.get_tensor_model_parallel_world_size() == 1:
                tensors[name] = torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


class Sender(SenderAdapter):
    """Parameters are what the last step made of them, on all ranks, before they are sent."""

    def __init__(self, held, **options):
        super().__init__(held.load, params=held.params, **options)
        self._held = held

    def connect(self, timeout=None, progress=None):
        self._held.settle()
        return super().connect(timeout, progress)

    def send_weights(self, *args, **options):
        self._held.settle()
        return super().send_weights(*args, **options)

    connect.__doc__, send_weights.__doc__ = SenderAdapter.connect.__doc__, SenderAdapter.send_weights.__doc__


def everybody(data, group=None):
    """The bytes of every rank, by torch.distributed."""
    import torch.distributed as dist

    said = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, data, group=group)
    return said


def sender(chunks, bridge, manifest, group=None, **options):
    """The SenderAdapter of one rank.

    chunks     the model, or the list of its virtual stages, as it is trained: in its types, and wrapped
    bridge     megatron.bridge.AutoBridge for the model
    manifest   what the engines' checkpoint holds, best its folder
    group      a process group of all ranks that can gather objects of the CPU; None: the default one
    options    SenderAdapter's"""
    import torch.distributed as dist

    return Sender(Chunks(chunks, bridge), manifest=manifest, rank=options.pop("rank", dist.get_rank()),
                  group=lambda data: everybody(data, group), **options)
