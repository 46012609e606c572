# SPDX-License-Identifier: Apache-2.0
"""Trainers of torch and Transformers send to an engine of Transformers' (pair() in fx.py says what has to come out)."""
from fx import pairs

if __name__ == "__main__":
    pairs(__file__)
