# SPDX-License-Identifier: Apache-2.0
"""Declares the extraction functions of libweightbridge (extract.h)."""

import ctypes
from ctypes import (POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint8,
                    c_uint32, c_uint64, c_void_p)

from . import _lib
from ._lib import Error
from .errors import WeightBridgeError

NDIM = 8
PARAM, ATTRIBUTE, WITNESS = range(3)
FILL_FULL, FILL_COLUMNS, FILL_ROWS, FILL_ONE = range(4)


class Blob(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("ndim", c_uint32),
                ("shape", c_uint64 * NDIM)]


class Param(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("ndim", c_uint32),
                ("shape", c_uint64 * NDIM), ("stride", c_int64 * NDIM), ("data", c_void_p)]


Agree = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(c_uint32))


class Opts(Structure):
    _fields_ = [("size", c_size_t), ("threads", c_uint32), ("n_hash", c_uint32),
                ("record_max", c_uint64), ("seed", c_uint64), ("reload", c_uint32),
                ("cache_dir", c_char_p), ("cache_key", c_char_p), ("role", POINTER(c_uint8)),
                ("agree", Agree), ("cookie", c_void_p), ("devices", c_uint32)]


class Pass(Structure):
    _fields_ = [("kind", c_uint32), ("index", c_uint32), ("n_expected", c_uint32),
                ("digit", c_uint32), ("name", c_char * 32)]


class MapParam(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("ndim", c_uint32),
                ("shape", c_uint64 * NDIM), ("stride", c_int64 * NDIM), ("span", c_uint64),
                ("n_op", c_uint32), ("n_constant", c_uint32), ("n_unwritten", c_uint32),
                ("n_nest", c_uint32), ("owner", c_int64), ("owner_offset", c_uint64)]


_FUNCTIONS = {
    "wb_extract_free": (None, [c_void_p]),
    "wb_manifest_open": (c_int, [POINTER(Tensor), c_uint32, POINTER(c_void_p), POINTER(Error)]),
    "wb_manifest_close": (None, [c_void_p]),
    "wb_manifest_digest": (None, [c_void_p, c_char_p]),
    "wb_extract_open": (c_int, [c_void_p, POINTER(Param), c_uint32, POINTER(Opts),
                                POINTER(c_void_p), POINTER(Error)]),
    "wb_extract_close": (None, [c_void_p]),
    "wb_extract_next_pass": (c_int, [c_void_p, POINTER(Pass), POINTER(Error)]),
    "wb_extract_fill_kind": (c_int, [c_void_p, c_uint32]),
    "wb_extract_fill": (c_int, [c_void_p, c_uint32, c_int, c_void_p, c_size_t]),
    "wb_extract_end_pass": (c_int, [c_void_p, POINTER(Param), c_uint32, POINTER(Error)]),
    "wb_extract_gone": (None, [c_void_p, c_uint32, c_void_p]),
    "wb_extract_finish": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "wb_extract_outside": (c_char_p, [c_void_p]),
    "wb_extract_faults": (c_char_p, [c_void_p]),
    "wb_extract_notes": (c_char_p, [c_void_p]),
    "wb_sourcemap_close": (None, [c_void_p]),
    "wb_sourcemap_digest": (None, [c_void_p, c_char_p]),
    "wb_sourcemap_manifest_blob": (c_int, [c_void_p, POINTER(Blob)]),
    "wb_sourcemap_map_blob": (c_int, [c_void_p, POINTER(Blob)]),
    "wb_sourcemap_blob": (c_int, [c_void_p, POINTER(Blob)]),
    "wb_sourcemap_read": (c_int, [c_char_p, c_size_t, POINTER(c_void_p), POINTER(Error)]),
    "wb_sourcemap_json": (c_int, [c_void_p, POINTER(Blob)]),
    "wb_sourcemap_report": (c_int, [c_void_p, POINTER(Blob)]),
    "wb_sourcemap_gaps": (c_int, [c_void_p, c_uint32, POINTER(Blob)]),
    "wb_sourcemap_n_tensor": (c_uint32, [c_void_p]),
    "wb_sourcemap_tensor": (c_int, [c_void_p, c_uint32, POINTER(Tensor)]),
    "wb_sourcemap_n_param": (c_uint32, [c_void_p]),
    "wb_sourcemap_param": (c_int, [c_void_p, c_uint32, POINTER(MapParam)]),
    "wb_sourcemap_constants": (None, [c_void_p, POINTER(c_void_p)]),
    "wb_sourcemap_write_constants": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "wb_sourcemap_apply": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_void_p),
                                   POINTER(Error)]),
}

_loaded = None


def load():
    """The library with its extraction functions; they release the interpreter lock."""
    global _loaded
    if _loaded is None:
        try:
            lib = ctypes.CDLL(_lib.path())
        except OSError as e:
            raise ImportError(f"the library cannot be loaded: {e}") from e
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        _loaded = lib
    return _loaded


def take(blob):
    """The bytes of a Blob, which is given back."""
    data = ctypes.string_at(blob.data, blob.bytes)
    load().wb_extract_free(blob.data)
    return data


def name_bytes(what, name):
    """A name for the library; raises for one that it would change."""
    if not isinstance(name, str):
        raise WeightBridgeError(f"{what} name {name!r} is {type(name).__name__}: must be a string")
    try:
        text = name.encode()
    except UnicodeEncodeError:
        text = b"\0"
    if b"\0" in text:
        raise WeightBridgeError(f"{what} name {name!r} has a character that no name may have")
    return text


def tensor(name, shape, dtype):
    t = Tensor(name=name_bytes("tensor", name), dtype=dtype.encode(), ndim=len(shape))
    t.shape[:len(shape)] = shape
    return t
