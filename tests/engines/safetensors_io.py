# SPDX-License-Identifier: Apache-2.0
"""Read and write safetensors files: 8-byte header length, JSON header, data.

Reading maps the files and gives read-only views, BF16 as uint16 words.  Writing streams: the
header goes first, the tensors follow one at a time.
"""
import json
import math
import mmap
import os
import struct

import numpy as np

# safetensors dtype -> NumPy dtype of its words
WORDS = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F64": np.float64,
         "F8_E4M3": np.uint8, "F8_E5M2": np.uint8, "U8": np.uint8, "I8": np.int8,
         "BOOL": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32, "U32": np.uint32,
         "I64": np.int64, "U64": np.uint64}
MAX_HEADER = 100 << 20
MAX_DIMS = 8
INDEX = "model.safetensors.index.json"


class FormatError(ValueError):
    """A file that is not what it says, with file and reason."""


def parse_header(path, raw, data_bytes):
    """Check the JSON header of a file: dict name -> (dtype, shape, begin, end) in data bytes."""
    try:
        head = json.loads(raw)
    except ValueError as e:
        raise FormatError(f"{path}: the header is not JSON: {e}") from e
    if not isinstance(head, dict):
        raise FormatError(f"{path}: the header is not an object")
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = t["dtype"], tuple(t["shape"]), t["data_offsets"]
        except (TypeError, KeyError, ValueError) as e:
            raise FormatError(f"{path}: {name}: needs dtype, shape and two data_offsets") from e
        if dtype not in WORDS:
            raise FormatError(f"{path}: {name}: unknown dtype {dtype!r}")
        if not all(type(x) is int and x >= 0 for x in (*shape, begin, end)):
            raise FormatError(f"{path}: {name}: shape and offsets must be whole numbers")
        if len(shape) > MAX_DIMS or not begin <= end <= data_bytes:
            raise FormatError(f"{path}: {name}: bytes {begin}..{end} of {data_bytes}, "
                              f"{len(shape)} dimensions")
        if math.prod(shape) * np.dtype(WORDS[dtype]).itemsize != end - begin:
            raise FormatError(f"{path}: {name}: {dtype} {list(shape)} is not {end - begin} bytes")
        out[name] = (dtype, shape, begin, end)
    return out


class File:
    """One file, mapped.  tensors: dict name -> (dtype, shape, begin, end)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size < 8:
                raise FormatError(f"{path}: {size} bytes is too short")
            (length,) = struct.unpack("<Q", f.read(8))
            if length > min(MAX_HEADER, size - 8):
                raise FormatError(f"{path}: a header of {length} bytes in a file of {size}")
            self.tensors = parse_header(path, f.read(length), size - 8 - length)
            self._map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.path, self._base = path, 8 + length

    def get(self, name):
        """The tensor as a read-only array over the mapping."""
        dtype, shape, begin, end = self.tensors[name]
        words = np.dtype(WORDS[dtype])
        if (self._base + begin) % words.itemsize == 0:
            a = np.frombuffer(self._map, words, (end - begin) // words.itemsize,
                              self._base + begin)
        else:
            a = np.frombuffer(self._map, np.uint8, end - begin, self._base + begin).view(words)
        return a.reshape(shape)


class Checkpoint:
    """All tensors of a checkpoint: a file, or a folder with an index or *.safetensors in it."""

    def __init__(self, path):
        self._where = {}
        for p in _files(path):
            f = File(p)
            for name in f.tensors:
                if name in self._where:
                    raise FormatError(f"{p}: {name} is in {self._where[name].path} too")
                self._where[name] = f
        if not self._where:
            raise FormatError(f"{path}: no tensors")

    def __contains__(self, name):
        return name in self._where

    def __getitem__(self, name):
        return self._where[name].get(name)

    def keys(self):
        return self._where.keys()

    def items(self):
        """Iterator of (name, array), in file order: what load_weights takes."""
        for name, f in self._where.items():
            yield name, f.get(name)

    def info(self):
        """dict name -> (shape, dtype)."""
        return {n: (f.tensors[n][1], f.tensors[n][0]) for n, f in self._where.items()}


def _files(path):
    if os.path.isfile(path) and not path.endswith(".json"):
        return [path]
    folder = os.path.dirname(path) if path.endswith(".json") else path
    index = path if path.endswith(".json") else os.path.join(folder, INDEX)
    if not os.path.exists(index):
        try:
            found = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
        except OSError as e:
            raise FormatError(f"{folder}: {e.strerror}") from e
        if not found:
            raise FormatError(f"{folder}: no *.safetensors in it")
        return [os.path.join(folder, n) for n in found]
    try:
        with open(index, encoding="utf-8") as f:
            files = dict.fromkeys(json.load(f)["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as e:
        raise FormatError(f"{index}: needs an object weight_map") from e
    for name in files:
        if os.path.basename(name) != name:
            raise FormatError(f"{index}: {name!r} is not in this folder")
        if not os.path.exists(os.path.join(folder, name)):
            raise FormatError(f"{index}: {name} is missing")
    return [os.path.join(folder, n) for n in files]


def write(path, tensors, data, metadata=None):
    """Write one file.

    tensors: list of (name, shape, dtype), in the order of the data.  data: iterator of
    contiguous arrays whose bytes, end to end, are the tensors' (their cuts need not agree).
    """
    head, at = {}, 0
    if metadata:
        head["__metadata__"] = metadata
    for name, shape, dtype in tensors:
        end = at + math.prod(shape) * np.dtype(WORDS[dtype]).itemsize
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    written = 0
    with open(path, "wb", buffering=0) as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for a in data:
            if not a.size:
                continue
            view = memoryview(np.ascontiguousarray(a).reshape(-1)).cast("B")
            while len(view):
                n = f.write(view)
                view, written = view[n:], written + n
    if written != at:
        raise ValueError(f"{path}: {written} bytes of data for tensors of {at}")
