# SPDX-License-Identifier: Apache-2.0
"""Megatron-core and its Bridge on a CPU.  Import this before anything of Megatron.

The Bridge imports Transformer Engine, which needs CUDA: empty shells answer for it, after Megatron-core has seen that there
is none.  The Bridge calls the norm in front of a linear layer as Transformer Engine's fused layer does: two linear layers
get a `layer_norm_weight` of their own.  Attention computes nothing here.  What is cut, how, and what loads it is theirs."""
import importlib.abc
import importlib.machinery
import sys
import types

import megatron.core  # noqa: F401
import megatron.core.extensions.transformer_engine  # noqa: F401
import megatron.core.models.gpt.gpt_layer_specs as specs
import megatron.core.models.gpt.gpt_model  # noqa: F401
import megatron.core.optimizer  # noqa: F401
import torch
from torch.overrides import TorchFunctionMode


class _Name(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (), {})


class _Shell(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Name(name, (), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("transformer_engine", "transformer_engine_torch"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        shell = _Shell(spec.name)
        shell.__path__, shell.__version__ = [], "2.9.0"
        return shell

    def exec_module(self, module):
        pass


sys.meta_path.append(_Finder())
torch.cuda.current_device = lambda: torch.device("cpu")  # where Megatron and the Bridge put tensors
torch.Tensor.cuda = lambda t, *_, **__: t
torch.Tensor.pin_memory = lambda t, *_, **__: t


class AsOnGpu(TorchFunctionMode):
    """Megatron's optimizers make tensors on CUDA devices, and know parameters by their being there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        said = func(*args, **kwargs)
        return said.replace("torch.", "torch.cuda.") if func is torch.Tensor.type and isinstance(said, str) else said


def layers(config, vp_stage=None):
    """Megatron's own decoder layers, with the two linear layers that are called as Transformer Engine's."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp

    class TELayerNormColumnParallelLinear(ColumnParallelLinear):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(self.weight.shape[1], dtype=self.weight.dtype))

    class NoAttention(torch.nn.Module):
        def __init__(self, *args, **more):
            super().__init__()

    found = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm",
                                             vp_stage=vp_stage)
    for layer in (each.submodules for each in found.layer_specs):
        attention, mlp = layer.self_attention.submodules, layer.mlp
        attention.core_attention = NoAttention
        if hasattr(attention, "linear_qkv"):
            attention.linear_qkv, layer.input_layernorm = TELayerNormColumnParallelLinear, IdentityOp
        inside = getattr(mlp, "submodules", None) or getattr(mlp, "keywords", {}).get("submodules")
        if inside is not None and hasattr(inside, "linear_fc1"):
            inside.linear_fc1, layer.pre_mlp_layernorm = TELayerNormColumnParallelLinear, IdentityOp
    return found


def build(folder, store, rank, n, pad=None, tp=1, pp=1, ep=1, vp=None, wrapped=False):
    """(bridge, list of chunks) of one rank of n.  pad: make_vocab_size_divisible_by; None: the vocabulary stays as it is.
    vp: virtual stages of a rank, a chunk each.  wrapped: by Megatron's DDP, for its distributed optimizer."""
    import transformers
    from megatron.bridge import AutoBridge
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection

    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=n)
    parallel_state.initialize_model_parallel(tp, pp, vp, expert_model_parallel_size=ep, expert_tensor_parallel_size=1)
    bridge = AutoBridge.from_hf_config(transformers.AutoConfig.from_pretrained(folder))
    p = bridge.to_megatron_provider(load_weights=False)
    p.tensor_model_parallel_size, p.pipeline_model_parallel_size = tp, pp
    p.expert_model_parallel_size, p.expert_tensor_parallel_size = ep, 1
    p.virtual_pipeline_model_parallel_size = vp
    p.pipeline_dtype = p.params_dtype = torch.bfloat16
    if pad:
        p.should_pad_vocab, p.make_vocab_size_divisible_by = True, pad
    p.use_cpu_initialization, p.perform_initialization, p.bf16 = True, False, True
    for name in ("gradient_accumulation_fusion", "moe_grouped_gemm", "masked_softmax_fusion", "bias_activation_fusion",
                 "apply_rope_fusion", "bias_dropout_fusion", "moe_permute_fusion", "moe_router_fusion", "persist_layer_norm",
                 "moe_shared_expert_overlap", "sequence_parallel"):
        setattr(p, name, False)
    p.moe_token_dispatcher_type, p.mtp_num_layers = "allgather", None  # the other dispatcher makes a CUDA stream
    p.transformer_layer_spec, p.seq_length = layers, 64
    p.finalize()
    p._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    chunks = [p.provide(vp_stage=stage).bfloat16() for stage in (range(vp) if vp else (None,))]
    return bridge, [wrap(p, chunk) for chunk in chunks] if wrapped else chunks


def wrap(config, chunk):
    """As Megatron trains: parameters become views of one flat buffer, and what ranks have stepped is gathered late."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.module import Float16Module

    how = DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_param_gather=True, overlap_grad_reduce=True)
    return DistributedDataParallel(config, how, Float16Module(config, chunk))


def optimizer(chunks):
    """Megatron's distributed optimizer: each data-parallel rank steps its part of the flat buffer."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    with AsOnGpu():
        return get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, bf16=True, params_dtype=torch.bfloat16,
                                                      use_distributed_optimizer=True, overlap_param_gather=True), chunks)


def buffers(chunks):
    """The flat buffers that parameters are views of."""
    return [b for chunk in chunks for b in chunk.buffers + chunk.expert_parallel_buffers]
