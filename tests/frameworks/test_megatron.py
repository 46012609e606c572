# SPDX-License-Identifier: Apache-2.0
"""Megatron sends, cut by tensor, pipeline and expert parallelism (pair() in fx.py says what has to come out)."""
from fx import pairs

if __name__ == "__main__":
    pairs(__file__)
