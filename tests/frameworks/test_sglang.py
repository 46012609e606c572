# SPDX-License-Identifier: Apache-2.0
"""FSDP2 sends to SGLang's model classes through SGLang's own WeightUpdater: tensor and expert parallelism, attention of
its own on each rank, latent attention with what its loader derives (pair() in fx.py says what has to come out)."""
import sys

from fx import SGLANG, SHARDED, TORCH, pair, run


def fsdp2_to_sglang_of_one_rank():
    pair("qwen2", SHARDED, 2, SGLANG, 1)


def fsdp2_to_sglang_with_tensor_parallelism():
    pair("llama-tied", SHARDED, 2, SGLANG, 2)


def fsdp2_to_sglang_with_expert_parallelism():
    pair("qwen3-moe", SHARDED, 2, SGLANG, 2, ep=True)


def fsdp2_to_sglang_with_attention_of_each_rank():
    pair("qwen3-moe", SHARDED, 2, SGLANG, 2, dp=True)


def transformers_to_sglang_with_latent_attention():
    pair("deepseek-v3", TORCH, 1, SGLANG, 2)


if __name__ == "__main__":
    tests = [fsdp2_to_sglang_of_one_rank, fsdp2_to_sglang_with_tensor_parallelism, fsdp2_to_sglang_with_expert_parallelism,
             fsdp2_to_sglang_with_attention_of_each_rank, transformers_to_sglang_with_latent_attention]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
