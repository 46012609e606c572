# SPDX-License-Identifier: Apache-2.0
"""FSDP2 sends to vLLM's model classes, cut over ranks by tensor and by expert parallelism; what prepares weights for
kernels is not part of it (pair() in fx.py says what has to come out)."""
import sys

from fx import SHARDED, VLLM, pair, run


def fsdp2_to_vllm_with_tensor_parallelism():
    pair("llama-tied", SHARDED, 2, VLLM, 2)


def fsdp2_to_vllm_with_expert_parallelism():
    pair("qwen3-moe", SHARDED, 2, VLLM, 2, ep=True)


if __name__ == "__main__":
    tests = [fsdp2_to_vllm_with_tensor_parallelism, fsdp2_to_vllm_with_expert_parallelism]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
