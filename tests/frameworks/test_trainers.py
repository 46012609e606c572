# SPDX-License-Identifier: Apache-2.0
"""Trainers of torch and Transformers send to an engine of Transformers' (pair() in fx.py says what has to come out)."""
import sys

from fx import SHARDED, TORCH, pair, run


def transformers_to_transformers():
    for model in ("llama-tied", "qwen3-moe"):
        pair(model, TORCH, 1, TORCH, 1)


def fsdp2_of_two_ranks_to_transformers():
    for model in ("llama", "qwen3-tied", "qwen3-moe"):
        pair(model, SHARDED, 2, TORCH, 1)


def fsdp2_of_three_ranks_with_uneven_and_empty_shards_to_transformers():
    pair("qwen2", SHARDED, 3, TORCH, 1)


if __name__ == "__main__":
    tests = [transformers_to_transformers, fsdp2_of_two_ranks_to_transformers,
             fsdp2_of_three_ranks_with_uneven_and_empty_shards_to_transformers]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
