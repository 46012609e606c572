# SPDX-License-Identifier: Apache-2.0
"""What a parameter of a generic rollout worker must hold, byte by byte from the files.

By positions of bytes in the file, not by slices of arrays; shares nothing with generic.py.
"""
import math

import numpy as np

from . import versions

SIZE = {"U8": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4}
PIECE = 1 << 20  # elements compared at a time


def verify_params(params, checkpoint, spec, version):
    """List of sentences, none when all is well.  params: name -> (array, dtype)."""
    wrong = [f"{n} is not registered" for n, _, _ in spec["tensors"] if n not in params]
    if len(params) != len(spec["tensors"]) - len(wrong):
        wrong.append(f"{len(params)} parameters for {len(spec['tensors'])} tensors")
    for name, shape, dtype in spec["tensors"]:
        if name in params:
            wrong += _parameter(name, shape, dtype, params[name], checkpoint[name], spec, version)
    return wrong


def _parameter(name, shape, dtype, param, tensor, spec, version):
    array, is_dtype = param
    size, width = SIZE[dtype], shape[-1] if shape else 1
    n = math.prod(shape)
    first, end = 0, width
    if len(shape) > 1 and width >= spec["parts"]:
        first = width * spec["part"] // spec["parts"]
        end = width * (spec["part"] + 1) // spec["parts"]
    own = end - first
    if is_dtype != dtype or array.size != n // width * own or array.ndim != len(shape):
        return [f"{name} is {is_dtype} {list(array.shape)}"]
    data = tensor.reshape(-1).view(np.uint8)
    have = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, size)
    flip = np.frombuffer(versions.word(dtype, version).to_bytes(size, "little"), np.uint8)
    for at in range(0, len(have), PIECE):
        k = np.arange(at, min(at + PIECE, len(have)))
        begin = (k // own * width + first + k % own) * size
        want = data[begin[:, None] + np.arange(size)] ^ flip
        bad = np.flatnonzero((have[k] != want).any(axis=1))
        if len(bad):
            return [f"{name}: element {at + int(bad[0])} is the first of {len(bad)} or more wrong "
                    "ones"]
    return []
