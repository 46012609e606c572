#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of what the workers of an engine take more than one of them takes: all that a copy from GPU to GPU could spare
the bus between host and GPU.  By the parameters of the reference engines, at full size and without a byte of memory; a JSON
line a deployment of the benchmarks.  Needs NumPy.

    tests/studies/replicated.py [LETTER...]
"""
import argparse
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from engines import deploy, make, models  # noqa: E402


def nothing(shape, dtype):
    """An array of this shape that is one element."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, [0] * len(shape))


def taken(spec):
    """Bytes of a worker's parameters; tied ones count once."""
    arrays = {id(a): a for a, _ in make(spec, nothing).params.values()}
    return sum(a.nbytes for a in arrays.values())


def line(letter):
    specs = deploy.pair(letter)[1][0]
    sizes = {"BF16": 2, "F32": 4}
    model = sum(int(np.prod(shape)) * sizes[dtype] for _, shape, dtype in models.tensors(models.config(specs[0]["model"])))
    each = [taken(s) for s in specs]
    return {"deployment": letter, "workers": len(each), "model_gb": round(model / 1e9, 2),
            "worker_gb": round(max(each) / 1e9, 2), "taken_over_model": round(sum(each) / model, 4)}


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("letter", nargs="*", metavar="LETTER", help="a deployment of tests/bench/deployments")
    letters = ap.parse_args().letter or [*"abcde"]
    if not set(letters) <= {*"abcde"}:
        ap.error(f"{' '.join(letters)}: a deployment is one of a, b, c, d, e")
    for name in letters:
        print(json.dumps(line(name)), flush=True)
