# SPDX-License-Identifier: Apache-2.0
"""Trainers send to vLLM's model classes, cut over ranks by tensor and by expert parallelism; what prepares weights for
kernels is not part of it (pair() in fx.py says what has to come out)."""
from fx import pairs

if __name__ == "__main__":
    pairs(__file__)
