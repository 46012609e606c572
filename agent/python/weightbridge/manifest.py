# SPDX-License-Identifier: Apache-2.0
"""Which tensors a checkpoint holds: from a list, a safetensors file, its folder or its index."""

import json
import os
import struct
from fnmatch import fnmatchcase

from ._extract_abi import NDIM
from .errors import WeightBridgeError

_HEADER_MAX = 100 << 20
# safetensors' names, and NumPy's and torch's words for them
_NAMES = {"BF16": "BF16", "F32": "F32", "F16": "F16", "F8_E4M3": "F8_E4M3",
          "F8_E5M2": "F8_E5M2", "I8": "I8", "U8": "U8", "I32": "I32",
          "bfloat16": "BF16", "float32": "F32", "float16": "F16", "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "int8": "I8", "uint8": "U8", "int32": "I32",
          "BOOL": "BOOL", "F8_E8M0": "F8_E8M0", "I16": "I16", "U16": "U16", "U32": "U32",
          "I64": "I64", "U64": "U64", "F64": "F64", "bool": "BOOL", "float8_e8m0fnu": "F8_E8M0",
          "int16": "I16", "uint32": "U32", "int64": "I64", "uint64": "U64", "float64": "F64"}
# Types that are only moved, as words of types that maps know: word, words in an element.  Where
# there are several they are a last dimension of their own.
_WORDS = {"BOOL": ("U8", 1), "F8_E8M0": ("U8", 1), "I16": ("U8", 2), "U16": ("U8", 2),
          "U32": ("I32", 1), "I64": ("I32", 2), "U64": ("I32", 2), "F64": ("I32", 2)}


def dtype_name(dtype):
    """safetensors' name of a dtype given as that name, or as NumPy's or torch's dtype."""
    text = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
    if text not in _NAMES and isinstance(dtype, type):
        text = dtype.__name__
    if text not in _NAMES:
        raise WeightBridgeError(f"type {dtype} is not supported: one of {', '.join(_NAMES)}")
    return _NAMES[text]


def as_words(shape, dtype):
    """(shape, dtype) of a tensor for the library."""
    word, n = _WORDS.get(dtype, (dtype, 1))
    return (*shape, n) if n > 1 else tuple(shape), word


def has_words(dtype):
    """Is an element of `dtype` several words?"""
    return _WORDS.get(dtype, ("", 1))[1] > 1


def _read_header(path):
    """name -> (shape, dtype) of one file."""
    try:
        with open(path, "rb") as f:
            raw = f.read(8)
            size = struct.unpack("<Q", raw)[0] if len(raw) == 8 else 0
            if not 2 <= size <= _HEADER_MAX:
                raise WeightBridgeError(f"{path}: not a safetensors file")
            raw = f.read(size)
    except OSError as e:
        raise WeightBridgeError(f"{path}: {e.strerror}") from e
    try:
        if len(raw) != size:
            raise ValueError("cut off")
        head = json.loads(raw)
        return {name: (tuple(int(n) for n in t["shape"]), t["dtype"])
                for name, t in head.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise WeightBridgeError(f"{path}: its safetensors header is damaged: {e}") from e


def _read_index(path):
    try:
        with open(path, encoding="utf-8") as f:
            where = json.load(f)["weight_map"]
        files = sorted(set(where.values()))
    except OSError as e:
        raise WeightBridgeError(f"{path}: {e.strerror}") from e
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise WeightBridgeError(f"{path}: not an index of safetensors files: {e}") from e
    tensors = {}
    for name in files:
        if os.path.basename(name) != name:
            raise WeightBridgeError(f"{path}: file name {name!r} leads elsewhere")
        for key, value in _read_header(os.path.join(os.path.dirname(path), name)).items():
            if where.get(key) == name:
                tensors[key] = value
    missing = [key for key in where if key not in tensors]
    if missing:
        raise WeightBridgeError(f"{path}: tensor {missing[0]} is not in {where[missing[0]]}"
                                + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""))
    return tensors


def _read_folder(path):
    names = sorted(os.listdir(path))
    index = [n for n in names if n.endswith(".safetensors.index.json")]
    if index:
        return _read_index(os.path.join(path, index[0]))
    tensors = {}
    for name in names:
        if not name.endswith(".safetensors"):
            continue
        for key, value in _read_header(os.path.join(path, name)).items():
            if key in tensors:
                raise WeightBridgeError(f"{path}: tensor {key} is in two files")
            tensors[key] = value
    if not tensors:
        raise WeightBridgeError(f"{path}: no safetensors files")
    return tensors


def read(manifest, leave_out=()):
    """List of (name, shape, dtype) from what a user gives as manifest, but for the tensors whose
    names match a pattern of `leave_out`.

    A list keeps its order; tensors of files are sorted by name, however the files are cut.
    """
    leave_out = (leave_out,) if isinstance(leave_out, str) else leave_out
    if isinstance(manifest, (str, os.PathLike)):
        path = os.fspath(manifest)
        if os.path.isdir(path):
            tensors = _read_folder(path)
        elif path.endswith(".json"):
            tensors = _read_index(path)
        else:
            tensors = _read_header(path)
        manifest = [(name, *tensors[name]) for name in sorted(tensors)]
    try:
        manifest = list(manifest)
    except TypeError as e:
        raise WeightBridgeError(f"manifest is {type(manifest).__name__}: needs a list of (name, shape, dtype), "
                                "or the path of safetensors") from e
    out = []
    for entry in manifest:
        try:
            name, shape, dtype = entry
            shape = tuple(int(n) for n in shape)
        except (TypeError, ValueError) as e:
            raise WeightBridgeError(
                f"manifest entry {entry!r}: needs (name, shape, dtype)") from e
        if any(fnmatchcase(str(name), pattern) for pattern in leave_out):
            continue
        if any(n < 0 for n in shape):
            raise WeightBridgeError(f"tensor {name} has shape {shape}: no size can be negative")
        if any(n >> 63 for n in shape):
            raise WeightBridgeError(f"tensor {name} has shape {shape}: too large")
        try:
            out.append((name, shape, dtype_name(dtype)))
        except WeightBridgeError as e:
            raise WeightBridgeError(f"tensor {name}: {e}.  leave_out takes the names and patterns of "
                                    "tensors that need not be transferred") from e
        if len(as_words(*out[-1][1:])[0]) > NDIM:
            raise WeightBridgeError(f"tensor {name} has more than {NDIM} dimensions")
    if not out:
        raise WeightBridgeError("the manifest is empty")
    return out
