# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libweightbridge, and declares its client functions (weightbridge.h)."""

import ctypes
import os
from ctypes import (CDLL, POINTER, PyDLL, Structure, byref, c_char, c_char_p, c_double, c_int,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

NAME = "libweightbridge.so.0"
FOREVER = 2**64 - 1
MSG_MAX = 1024

TRAINER, ROLLOUT = 1, 2
MEM_MEMFD, MEM_HEAP, MEM_DEVICE = 1, 2, 3
SEND_HOLD = 1
ACQUIRE_KEPT = 1
ASKED, STARTED, RELEASED, FINAL = 0, 1, 2, 3
STEP_NONE, STEP_BEFORE, STEP_AFTER = 0, 1, 2
MEMFDS_MAX = 28


class Error(Structure):
    _fields_ = [("code", c_int), ("msg", c_char * MSG_MAX)]

    @property
    def text(self):
        return self.msg.decode("utf-8", "replace")


class Opts(Structure):
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("object", c_char_p),
                ("model", c_char_p), ("engine", c_char_p), ("role", c_int), ("rank", c_int64),
                ("sender_staging", c_int), ("receiver_staging", c_int),
                ("connect_timeout", c_uint64), ("update_timeout", c_uint64),
                ("repair_timeout", c_uint64), ("reconnect_timeout", c_uint64)]


class Mem(Structure):
    _fields_ = [("kind", c_uint32), ("device", c_uint32), ("fd", c_int), ("base", c_void_p),
                ("bytes", c_uint64)]


class Param(Structure):
    _fields_ = [("mem", c_uint32), ("offset", c_uint64)]


class Attach(Structure):
    _fields_ = [("size", c_size_t), ("manifest", c_void_p), ("manifest_bytes", c_size_t),
                ("map", c_void_p), ("map_bytes", c_size_t), ("mem", POINTER(Mem)),
                ("n_mem", c_uint32), ("param", POINTER(Param)), ("n_param", c_uint32)]


class Plan(Structure):
    _fields_ = [("term", c_uint64), ("number", c_uint64), ("version", c_int64),
                ("digest", c_char * 64)]


class TransferInfo(Structure):
    _fields_ = [("transfer", c_uint64), ("version", c_int64), ("state", c_int), ("code", c_int),
                ("seconds", c_double), ("n_engine", c_uint32), ("sentence", c_char * MSG_MAX)]


class Acquire(Structure):
    _fields_ = [("size", c_size_t), ("mem", POINTER(Mem)), ("n_mem", c_uint32),
                ("param", POINTER(Param)), ("n_param", c_uint32), ("flags", c_uint32)]


class DeviceInfo(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("device", c_char * 48), ("why", c_char * 512)]


class Update(Structure):
    _fields_ = [("transfer", c_uint64), ("version", c_int64), ("digest", c_char * 64),
                ("sentence", c_char * MSG_MAX), ("torn", c_uint32)]


Progress = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)

_FUNCTIONS = {
    "wb_version": (c_char_p, []),
    "wb_client_open": (c_int, [POINTER(Opts), POINTER(c_void_p), POINTER(Error)]),
    "wb_client_close": (c_int, [c_void_p, c_uint64, POINTER(Error)]),
    "wb_client_attach": (c_int, [c_void_p, POINTER(Attach), POINTER(Error)]),
    "wb_client_device_memory": (c_int, [c_void_p, c_uint64, POINTER(DeviceInfo), POINTER(Error)]),
    "wb_client_worker": (c_char_p, [c_void_p]),
    "wb_client_release_memory": (c_int, [c_void_p, c_uint64, POINTER(Error)]),
    "wb_client_acquire_memory": (c_int, [c_void_p, POINTER(Acquire), c_uint64, POINTER(Error)]),
    "wb_client_progress": (c_char_p, [c_void_p]),
    "wb_client_wait_planned": (c_int, [c_void_p, c_uint64, Progress, c_void_p, POINTER(Plan),
                                       POINTER(Error)]),
    "wb_client_send": (c_int, [c_void_p, c_int64, c_uint32, c_uint64, POINTER(c_void_p),
                               POINTER(Error)]),
    "wb_client_transfer_wait": (c_int, [c_void_p, c_int, c_uint64, POINTER(Error)]),
    "wb_client_transfer_get": (None, [c_void_p, POINTER(TransferInfo)]),
    "wb_client_transfer_engine": (c_int, [c_void_p, c_uint32, c_char_p, c_size_t, c_char_p,
                                          c_size_t]),
    "wb_client_transfer_free": (None, [c_void_p]),
    "wb_client_release": (c_int, [c_void_p, POINTER(Error)]),
    "wb_client_poll": (c_int, [c_void_p]),
    "wb_client_update_step": (c_int, [c_void_p, c_uint64, POINTER(Update), POINTER(Error)]),
    "wb_client_update_begun": (c_int, [c_void_p, c_int, c_char_p, POINTER(Error)]),
    "wb_client_update_resumed": (c_int, [c_void_p, c_int, c_char_p, POINTER(Error)]),
    "wb_client_idle": (c_int, [c_void_p, c_uint64, POINTER(Error)]),
    "wb_client_fileno": (c_int, [c_void_p]),
}


def _candidates():
    given = os.environ.get("WEIGHTBRIDGE_LIBRARY")
    if given:
        yield given
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, NAME)  # packed by pip
    build = os.environ.get("WB_BUILD")
    if build:
        yield os.path.join(build, "lib", NAME)
    tree = os.path.normpath(os.path.join(here, "..", "..", ".."))
    yield os.path.join(tree, "build", "release", "lib", NAME)  # used from the source tree


def path():
    """Where the library is; raises ImportError with one sentence when it is nowhere."""
    tried = list(_candidates())
    for name in tried:
        if os.path.exists(name):
            return name
    raise ImportError(f"{NAME} is missing (looked at {', '.join(tried)}): run `make` first, "
                      "or set WEIGHTBRIDGE_LIBRARY")


def _declare(lib, names):
    for name in names:
        function = getattr(lib, name)
        function.restype, function.argtypes = _FUNCTIONS[name]
    return lib


_loaded = None


def load():
    """The library; its functions release the interpreter lock while they run."""
    global _loaded
    if _loaded is None:
        _loaded = _declare(CDLL(path(), use_errno=False), _FUNCTIONS)
    return _loaded


_poll = None


def poll_function():
    """wb_client_poll that keeps the interpreter lock: it takes nanoseconds, and giving the lock
    away may cost milliseconds when another thread wants it."""
    global _poll
    if _poll is None:
        _poll = _declare(PyDLL(path()), ["wb_client_poll"]).wb_client_poll
    return _poll


__all__ = ["byref", "c_char_p", "c_void_p", "load", "path", "poll_function"]
