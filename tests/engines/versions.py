# SPDX-License-Identifier: Apache-2.0
"""How a model changes from version to version in tests.

Version 1 is the checkpoint.  Version v is the checkpoint with one word, which belongs to v, XORed
into every element.  So every element differs between any two of 256 versions in a row, a trainer
can make the next version in place at memory speed, whatever its layout, and the value of any
element of any version follows from the checkpoint alone.

The words touch the sign and mantissa bits only: what is finite stays finite, so the values
survive the casts of layouts that have some (BF16 <-> F32 masters).
"""
import numpy as np

from . import models

PERIOD = 256


def word(dtype, version):
    """The word of a version for elements of a safetensors dtype: a Python int."""
    b = (version - 1) * 0x9D % PERIOD
    sign, mantissa = b >> 7, b & 0x7F
    if dtype == "BF16":
        return sign << 15 | mantissa
    if dtype == "F16":
        return sign << 15 | mantissa << 3
    if dtype == "F32":
        return sign << 31 | mantissa << 16
    if dtype == "U8":
        return b
    if dtype == "I32":
        return b * 0x01010101
    raise ValueError(f"versions of {dtype} elements are not defined")


def mutate(values, dtype, version, since=1):
    """Turn an array that holds version `since` into `version`, in place.

    values: any strided view; dtype is that of its elements.  F32 copies of BF16 elements follow
    the BF16 originals.
    """
    flip = word(dtype, version) ^ word(dtype, since)
    if not flip or not values.size:
        return
    size = values.dtype.itemsize
    per8 = 8 // size
    if values.strides[-1] == size and values.shape[-1] % per8 == 0:
        view = values.view(np.uint64)
        flip = sum(flip << (8 * size * i) for i in range(per8))
    else:
        view = values.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[size])
    np.bitwise_xor(view, view.dtype.type(flip), out=view)


def of_tensor(tensor, dtype, version):
    """A copy of a checkpoint tensor as it is in a version."""
    out = np.array(tensor, order="C")
    mutate(out.reshape(-1), dtype, version)
    return out


def at_version(ckpt, version):
    """All tensors of a checkpoint, name -> array, BF16 as words, as they are in a version."""
    return {n: of_tensor(t, "BF16" if t.dtype == np.uint16 else "F32", version) for n, t in ckpt.items()}


def random_checkpoint(c, seed):
    """A checkpoint of a model: name -> array of finite values, BF16 as words."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape, dtype in models.tensors(c):
        if dtype == "F32":
            words = rng.integers(0, 2**32, shape, np.uint32) & np.uint32(0xBFFFFFFF)
            out[name] = words.view(np.float32)
        else:
            out[name] = rng.integers(0, 2**16, shape, np.uint16) & np.uint16(0xBFFF)
    return out
