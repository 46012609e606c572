# SPDX-License-Identifier: Apache-2.0
"""Trainers send to SGLang's model classes through SGLang's own WeightUpdater: tensor and expert parallelism, attention of
its own on each rank, latent attention with what its loader derives (pair() in fx.py says what has to come out)."""
from fx import pairs

if __name__ == "__main__":
    pairs(__file__)
