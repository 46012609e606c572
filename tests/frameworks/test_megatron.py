# SPDX-License-Identifier: Apache-2.0
"""Megatron sends, cut by tensor, pipeline and expert parallelism (pair() in fx.py says what has to come out)."""
import sys

from fx import MEGATRON, TORCH, pair, run


def megatron_with_tensor_and_expert_parallelism_to_transformers():
    pair("qwen3-moe", MEGATRON, 2, TORCH, 1, parallel={"tp": 2, "ep": 2})


def megatron_with_pipeline_parallelism_to_transformers():
    pair("qwen2", MEGATRON, 2, TORCH, 1, parallel={"pp": 2})


def megatron_with_expert_parallelism_over_data_parallel_ranks_to_transformers():
    pair("qwen3-moe", MEGATRON, 2, TORCH, 1, parallel={"ep": 2})


if __name__ == "__main__":
    tests = [megatron_with_tensor_and_expert_parallelism_to_transformers, megatron_with_pipeline_parallelism_to_transformers,
             megatron_with_expert_parallelism_over_data_parallel_ranks_to_transformers]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
