# SPDX-License-Identifier: Apache-2.0
"""Parameter memory that the agent can map.

Parameters that live in a SharedMemoryPool (or come from `weightbridge.empty`) are packed, assembled
and fed by the agent itself, without a copy through this process.  All other parameters work too:
a thread of the library then does that work here.

A pool is made of memfds, mapped shared and sealed against shrinking.  Unlike the private heap it is
shared with forked children: what a child writes into a parameter, the parent sees.
"""

import collections
import ctypes
import fcntl
import mmap
import os
import weakref

from . import _lib
from .arrays import is_device, span  # noqa: F401 (of a parameter, as for register)
from .errors import WeightBridgeError

_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 2, 4
_ALIGN = 4096
_SEGMENT_BYTES = 64 << 20

_segments = weakref.WeakSet()


class _Segment(mmap.mmap):
    """One mapped memfd.  Arrays in it keep it alive; its descriptor is closed with it."""

    @classmethod
    def create(cls, bytes_):
        fd = os.memfd_create("weightbridge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, bytes_)
            fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
            self = cls(fd, bytes_)
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        self.bytes = bytes_
        self.used = 0
        # The export is dropped at once: the address outlives it as long as the mapping does.
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self))
        weakref.finalize(self, os.close, fd)
        _segments.add(self)
        return self

    def take(self, bytes_):
        """Offset of `bytes_` fresh bytes, or None when they do not fit."""
        align = _ALIGN if bytes_ >= _ALIGN else 64
        at = -(-self.used // align) * align
        if at + bytes_ > self.bytes:
            return None
        self.used = at + bytes_
        return at


def _dtype(dtype):
    """A NumPy dtype from anything NumPy takes or from a safetensors name."""
    import numpy as np

    names = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64",
             "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
    words = {"BF16": ("bfloat16", "uint16"), "F8_E4M3": ("float8_e4m3fn", "uint8"),
             "F8_E5M2": ("float8_e5m2", "uint8")}
    if not isinstance(dtype, str) or dtype not in {**names, **words}:
        return np.dtype(dtype)
    if dtype in names:
        return np.dtype(names[dtype])
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(words[dtype][1])
    return np.dtype(getattr(ml_dtypes, words[dtype][0]))


class SharedMemoryPool:
    """Hands out zeroed NumPy arrays in memory that the agent can map.

    `bytes` is the size of the first memfd; further ones are added as needed.  One pool, or few,
    should hold all parameters: at most 28 memfds can be attached.  (A torch tensor over an array:
    `torch.from_numpy(array)`, BF16 by `.view(torch.bfloat16)` of a uint16 one.)
    """

    def __init__(self, bytes=0):  # noqa: A002 (the unit is the name)
        self._segment = _Segment.create(-(-bytes // _ALIGN) * _ALIGN) if bytes else None

    def empty(self, shape, dtype="float32"):
        """A new array, filled with zeros; `dtype` as NumPy's, or a safetensors name."""
        import numpy as np

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = _dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        if count == 0:
            return np.empty(shape, dtype)
        at = self._segment.take(count * dtype.itemsize) if self._segment is not None else None
        if at is None:
            need = -(-count * dtype.itemsize // _ALIGN) * _ALIGN
            self._segment = _Segment.create(max(need, _SEGMENT_BYTES))
            at = self._segment.take(count * dtype.itemsize)
        # From bytes, since types of ml_dtypes have no buffer format.
        raw = np.frombuffer(self._segment, np.uint8, count * dtype.itemsize, at)
        return raw.view(dtype).reshape(shape)

    def copy(self, array):
        """A new array with the content of `array`."""
        import numpy as np

        array = np.asarray(array)
        out = self.empty(array.shape, array.dtype)
        out[...] = array
        return out


_default = None


class _Foreign:
    """A memfd that the caller made and mapped."""

    def __init__(self, mapping, fd):
        view = memoryview(mapping)
        if view.readonly or not view.contiguous:
            raise WeightBridgeError("share() takes a writable, contiguous mapping of the memfd")
        self.bytes = view.nbytes
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self.fd = os.dup(fd)
        self.mapping = mapping
        weakref.finalize(self, os.close, self.fd)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SHRINK)
        _segments.add(self)


def share(mapping, fd):
    """Tell that `mapping` (a writable buffer, MAP_SHARED) is memfd `fd` from its first byte.

    Parameters in it are then used by the agent in place.  The memfd is sealed against shrinking.
    Returns an object to be held as long as the parameters are used.
    """
    return _Foreign(mapping, fd)


def empty(shape, dtype="float32"):
    """An array in memory that the agent can map, from a pool of this process."""
    global _default
    if _default is None or _default[0] != os.getpid():  # a child does not fill its parent's pool
        _default = (os.getpid(), SharedMemoryPool())
    return _default[1].empty(shape, dtype)


def _segment_of(address, bytes_):
    for segment in _segments:
        if segment.address <= address and address + bytes_ <= segment.address + segment.bytes:
            return segment
    return None


DeviceMemory = collections.namedtuple("DeviceMemory", "kind device why")
_DEVICE_KINDS = {2: "worker", 3: "cuda-vmm", 4: "cuda-ipc"}


def device_memory(array):
    """How the memory of an array on a GPU was allocated, as its driver says: a DeviceMemory.

    `kind`: "cuda-vmm" (others can be given descriptors of it: PyTorch's expandable segments, where the array lies
    in at most 64 of their allocations of 20 MiB, so 1.2 GiB), "cuda-ipc" (a handle: cudaMalloc), or "worker":
    nobody but this process can use it, `why` says the reason and which setting of the allocator helps.  Weights
    are transferred whichever it is.  `device` is "GPU-" and the UUID.  WeightBridgeError: no array on a GPU.
    """
    address, size = span(array)
    info, err = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo)), _lib.Error()
    if not is_device(array) or _lib.load().wb_client_device_memory(address, size, info, err):
        raise WeightBridgeError(err.text or "the array is not on a GPU")
    return DeviceMemory(_DEVICE_KINDS[info.kind], info.device.decode(), info.why.decode())


def _register_device(spans, mems, places):
    """Objects for what lies on a GPU: what touches or overlaps is one.  No page is rounded to: the
    driver knows allocations, and what lies between two of them is nobody's."""
    end = 0
    for address, bytes_, i in sorted(spans):
        if end and address <= end:
            kind, fd, base, _ = mems[-1]
            end = max(end, address + bytes_)
            mems[-1] = (kind, fd, base, end - base)
        else:
            mems.append((_lib.MEM_DEVICE, -1, address, bytes_))
            end = address + bytes_
        places[i] = (len(mems) - 1, address - mems[-1][2])


def register(spans):
    """Memory objects for parameters at `spans`, a list of (name, address, bytes), and a fourth, true
    value where they lie on a GPU.

    Returns (mems, places, keep): for the library a list of (kind, fd, base, bytes) and for each
    parameter (mem, offset); `keep` is to be held as long as they are used.  Parameters in a pool
    become part of its memfd; the others are merged into ranges of whole pages.
    """
    page = mmap.PAGESIZE
    mems, index, keep, heap, device = [], {}, [], [], []
    places = [None] * len(spans)
    for i, (name, address, bytes_, *on_device) in enumerate(spans):
        if not bytes_:
            raise WeightBridgeError(f"parameter {name} is empty")
        if any(on_device):
            device.append((address, bytes_, i))
            continue
        segment = _segment_of(address, bytes_)
        if segment is None:
            heap.append((address, bytes_, i))
            continue
        if segment.fd not in index:
            index[segment.fd] = len(mems)
            mems.append((_lib.MEM_MEMFD, segment.fd, segment.address, segment.bytes))
            keep.append(segment)
        places[i] = (index[segment.fd], address - segment.address)
    if len(mems) > _lib.MEMFDS_MAX:
        raise WeightBridgeError(f"parameters lie in {len(mems)} shared memory pools, at most "
                                f"{_lib.MEMFDS_MAX} can be attached: allocate them from fewer")
    end = 0
    for address, bytes_, i in sorted(heap):
        low = address // page * page
        high = -(-(address + bytes_) // page) * page
        if end and low <= end:  # touches the range before
            kind, fd, base, _ = mems[-1]
            end = max(end, high)
            mems[-1] = (kind, fd, base, end - base)
        else:
            mems.append((_lib.MEM_HEAP, -1, low, high - low))
            end = high
        places[i] = (len(mems) - 1, address - mems[-1][2])
    _register_device(device, mems, places)
    return mems, places, keep
