# SPDX-License-Identifier: Apache-2.0
"""Arrays and tensors as memory: parameters of a worker, and tensors that look like a checkpoint's.

NumPy holds BF16 as uint16 words, or as ml_dtypes.bfloat16; float8 as uint8 words or ml_dtypes'.
"""

import ctypes
import math
import sys

from . import _extract_abi as abi
from .errors import WeightBridgeError
from .manifest import as_words, dtype_name

_BYTES = {"BF16": 2, "F32": 4, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "I32": 4,
          "BOOL": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "U32": 4, "I64": 8, "U64": 8, "F64": 8}
_NUMPY = {"BF16": "uint16", "F32": "float32", "F16": "float16", "F8_E4M3": "uint8",
          "F8_E5M2": "uint8", "I8": "int8", "U8": "uint8", "I32": "int32", "BOOL": "bool",
          "F8_E8M0": "uint8", "I16": "int16", "U16": "uint16", "U32": "uint32", "I64": "int64",
          "U64": "uint64", "F64": "float64"}
_ML = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
       "F8_E8M0": "float8_e8m0fnu"}
_TORCH = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "F8_E4M3": "float8_e4m3fn",
          "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "uint8", "I32": "int32", "BOOL": "bool",
          "F8_E8M0": "float8_e8m0fnu", "I16": "int16", "U16": "uint16", "U32": "uint32",
          "I64": "int64", "U64": "uint64", "F64": "float64"}


def is_torch(array):
    """Is it a tensor, as torch's are?"""
    return hasattr(array, "data_ptr") and hasattr(array, "stride")


def is_device(value):
    """Does it lie on a GPU?"""
    array = _split(value)[0]
    if is_torch(array):  # whose __cuda_array_interface__ raises for parameters that are trained
        return getattr(getattr(array, "device", None), "type", "cpu") == "cuda"
    return hasattr(array, "__cuda_array_interface__")


def _device_face(array):
    """(address, shape, strides in bytes, bytes of an element) of an array on a GPU."""
    face = array.__cuda_array_interface__
    shape, strides, item = tuple(face["shape"]), face.get("strides"), int(face["typestr"][2:])
    if strides is None:
        strides = tuple(item * math.prod(shape[i + 1:]) for i in range(len(shape)))
    return face["data"][0], shape, tuple(strides), item


def _cuda_face(array):
    """The same as of NumPy's, of an array on a GPU that is no tensor of torch's."""
    import numpy as np

    address, shape, strides, _ = _device_face(array)
    face = array.__cuda_array_interface__
    if face.get("mask") is not None:
        raise WeightBridgeError("it has a mask")
    return address, shape, strides, np.dtype(face["typestr"]), not face["data"][1]


def _numpy_face(array):
    """(address, shape, strides in bytes, dtype, is writable)."""
    array = _numpy_of(array)
    if not array.dtype.isnative:
        raise WeightBridgeError("its bytes are in the other order")
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype,
            array.flags.writeable)


def _numpy_of(array):
    """An array as NumPy's, without a copy."""
    import numpy as np

    if is_device(array):
        raise WeightBridgeError("it lies on a GPU, where nothing but a probe looks at it")
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    try:
        return np.asarray(memoryview(array))
    except TypeError as e:
        raise WeightBridgeError(f"{type(array).__name__} is no array, tensor or buffer") from e


def _torch_face(tensor):
    if tensor.device.type not in ("cpu", "cuda"):
        raise WeightBridgeError(f"it is on {tensor.device}: only tensors of the CPU and of CUDA devices can "
                                "be probed")
    item = tensor.element_size()
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(s * item for s in tensor.stride()),
            tensor.dtype, True)


def _split(value):
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value
    return value, None


def _own(value):
    """The array of a parameter; refuses one that is spread over workers."""
    array, _ = _split(value)
    if hasattr(array, "to_local"):
        raise WeightBridgeError(f"it is a distributed tensor ({type(array).__name__}): give what this "
                                "worker has of it, tensor.to_local()")
    return array


def type_of(value):
    """The type of a parameter's elements, for a sentence."""
    array, declared = _split(value)
    return str(declared or getattr(array, "dtype", "elements"))


def framework_of(params):
    """'torch' when there is a real tensor of torch's, else 'numpy'."""
    kinds = {kind for v in params.values() for kind in type(_split(v)[0]).__mro__}
    return "torch" if any(k.__module__.split(".")[0] == "torch" for k in kinds) else "numpy"


def describe(name, value, for_writing=True):
    """A parameter, array or (array, dtype), as the library wants it."""
    array, declared = _split(value)
    try:
        _own(value)
        look = _torch_face if is_torch(array) else _cuda_face if is_device(array) else _numpy_face
        address, shape, strides, dtype, writable = look(array)
        if declared is not None:
            kind = dtype_name(declared)
        else:
            kind = "BF16" if getattr(dtype, "name", "") == "uint16" else dtype_name(dtype)
        _check_storage(array)
    except (WeightBridgeError, TypeError, ValueError, BufferError) as e:
        raise WeightBridgeError(f"parameter {name}: {e}") from e
    item = _BYTES[kind]
    size = dtype.itemsize if hasattr(dtype, "itemsize") else array.element_size()
    if size != item:
        raise WeightBridgeError(f"parameter {name}: elements of {size} bytes are no {kind}")
    if for_writing and not writable:
        raise WeightBridgeError(f"parameter {name} is read-only")
    if any(s % item for s, n in zip(strides, shape) if n > 1):
        raise WeightBridgeError(f"parameter {name}: its strides are no whole elements")
    words, kind = as_words(shape, kind)
    if len(words) > abi.NDIM:
        raise WeightBridgeError(f"parameter {name} has more than {abi.NDIM} dimensions")
    item = _BYTES[kind]
    if len(words) > len(shape):
        shape, strides = words, (*strides, item)
    p = abi.Param(name=abi.name_bytes("parameter", name), dtype=kind.encode(), ndim=len(shape), data=address)
    p.shape[:len(shape)] = shape
    p.stride[:len(shape)] = [s // item for s in strides]
    return p


def holder(value):
    """Keeps a parameter's storage as it is now, whatever its owner does with the array."""
    array = _split(value)[0]
    # A tensor may get another storage under the same object (`.data = ...`), a view does not.
    if is_torch(array):
        return array.detach()
    return array if is_device(array) else _numpy_of(array)[...]


def face(value):
    """(address, shape, strides, dtype) of a parameter, only to be compared."""
    array = _split(value)[0]
    if is_torch(array):
        return array.data_ptr(), array.shape, array.stride(), array.dtype
    if is_device(array):
        address, shape, strides, _ = _device_face(array)
        return address, shape, strides, array.__cuda_array_interface__["typestr"]
    array = _numpy_of(array)
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)


def storage(array):
    """(address, bytes) of the memory that an array of NumPy's or torch's kind is a part of; None
    where nobody knows."""
    if is_torch(array):
        whole = getattr(array, "untyped_storage", None)
        return None if whole is None else (whole().data_ptr(), whole().nbytes())
    if is_device(array):
        return None
    import numpy as np

    while isinstance(array.base, np.ndarray):
        array = array.base
    if not array.flags.owndata:
        return None
    return array.__array_interface__["data"][0], array.nbytes


def span(value):
    """(address, bytes) from the lowest byte of an array or tensor to one past its highest."""
    array = _own(value)
    if is_torch(array):  # on a GPU, too
        address, item = array.data_ptr(), array.element_size()
        shape, strides = array.shape, [s * item for s in array.stride()]
    elif is_device(array):
        address, shape, strides, item = _device_face(array)
    else:
        array = _numpy_of(array)
        address, item = array.__array_interface__["data"][0], array.itemsize
        shape, strides = array.shape, array.strides
    if 0 in shape:
        return address, 0
    low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides) if s > 0)
    return address + low, high - low + item


def _check_storage(array):
    """A storage can be freed, or cut, under the tensors and views that still tell of it."""
    whole = storage(array if is_torch(array) or is_device(array) else _numpy_of(array))
    low, size = span(array)
    if whole is not None and size and not whole[0] <= low <= low + size <= sum(whole):
        raise WeightBridgeError(f"its storage has {whole[1]} bytes and does not hold its elements "
                                "any more")


def has_ml_dtypes(params):
    """Does any parameter have a type of ml_dtypes?"""
    return any(str(getattr(getattr(_split(v)[0], "dtype", ""), "name", "")) in _ML.values()
               and not is_torch(_split(v)[0]) for v in params.values())


class _Blocks:
    """Memory for tensors, taken again when nobody holds anything of it any more.

    That is what malloc does, too, but it gives large pieces back to the kernel, and to touch fresh
    memory costs more than all else that is done with a made-up tensor.
    """

    LEAST, KEPT = 1 << 16, 8  # bytes below which there is no gain; blocks that are looked after

    def __init__(self, np):
        self._np, self._blocks = np, [np.empty(0, np.uint8)]
        count = getattr(sys, "getrefcount", None)
        self._count, self._idle = count, count(self._blocks[0]) if count else 0

    def take(self, size):
        """A block of at least `size` bytes."""
        idle = [i for i in range(len(self._blocks))
                if self._count and self._count(self._blocks[i]) <= self._idle]
        fit = [i for i in idle if self._blocks[i].nbytes >= size]
        if fit:
            return self._blocks[min(fit, key=lambda i: self._blocks[i].nbytes)]
        for i in reversed(idle):  # too small
            del self._blocks[i]
        block = self._np.empty(size, self._np.uint8)
        self._blocks = [*self._blocks[-self.KEPT + 1:], block]
        return block


class NumpyMaker:
    """Makes NumPy arrays for tensors of a checkpoint."""

    is_device = False

    def __init__(self, use_ml_dtypes):
        import numpy as np

        self._np = np
        self._blocks = _Blocks(np)
        self.dtypes = {k: np.dtype(v) for k, v in _NUMPY.items()}
        if use_ml_dtypes:
            import ml_dtypes

            self.dtypes.update({k: np.dtype(getattr(ml_dtypes, v)) for k, v in _ML.items()
                                if hasattr(ml_dtypes, v)})

    def empty(self, shape, dtype):
        """An array whose memory is nobody else's; (array, address, bytes)."""
        size = n_bytes(shape, dtype)
        if size < _Blocks.LEAST:
            array = self._np.empty(shape, self.dtypes[dtype])
        else:
            array = self._blocks.take(size)[:size].view(self.dtypes[dtype]).reshape(shape)
        return array, array.__array_interface__["data"][0], array.nbytes

    def expand(self, array, shape):
        return self._np.broadcast_to(array, shape)

    def spanning(self, span, shape, strides, dtype):
        """A zeroed array of `span` elements, and its view with shape and strides (elements)."""
        flat = self._np.zeros(max(span, 1), self.dtypes[dtype])
        return flat, self.window(flat, 0, shape, strides)

    def window(self, flat, offset, shape, strides):
        item = flat.itemsize  # from bytes, since types of ml_dtypes have no buffer format
        return self._np.ndarray(shape, flat.dtype, flat.view(self._np.uint8), offset * item,
                                [s * item for s in strides])

    def source(self, array):
        """Address of a dense tensor, something to keep alive, its shape, its dtype."""
        if is_torch(array):
            array = array.detach().cpu().contiguous()
            return array.data_ptr(), array, tuple(array.shape), array.dtype
        array = self._np.ascontiguousarray(array).reshape(self._np.shape(array))
        return array.__array_interface__["data"][0], array, array.shape, array.dtype


class TorchMaker:
    """Makes torch tensors for tensors of a checkpoint; `device`: where, as torch names it."""

    def __init__(self, device="cpu"):
        import torch

        self._torch, self._device = torch, torch.device(device)
        self.is_device = self._device.type == "cuda"
        if self._device.type not in ("cpu", "cuda"):
            raise WeightBridgeError(f"tensors cannot be made on {device}: 'cpu', or a CUDA device")
        self.dtypes = {k: getattr(torch, v) for k, v in _TORCH.items() if hasattr(torch, v)}

    def empty(self, shape, dtype):
        if dtype not in self.dtypes:
            raise WeightBridgeError(f"this torch has no {dtype}: leave_out such tensors")
        tensor = self._torch.empty(shape, dtype=self.dtypes[dtype], device=self._device)
        if self.is_device:
            # It may be memory of the tensor before, which a kernel of the loader still reads.
            self._torch.cuda.current_stream(self._device).synchronize()
        return tensor, tensor.data_ptr(), tensor.numel() * tensor.element_size()

    def expand(self, tensor, shape):
        return tensor.expand(shape)

    def spanning(self, span, shape, strides, dtype):
        flat = self._torch.zeros(max(span, 1), dtype=self.dtypes[dtype])
        return flat, self.window(flat, 0, shape, strides)

    def window(self, flat, offset, shape, strides):
        return self._torch.as_strided(flat, shape, strides, offset)

    def source(self, tensor):
        if not is_torch(tensor):
            return NumpyMaker(False).source(tensor)
        tensor = tensor.detach().cpu().contiguous()
        return tensor.data_ptr(), tensor, tuple(tensor.shape), tensor.dtype


def maker(framework, use_ml_dtypes, device="cpu"):
    """What makes arrays of a framework; `device`: where, with torch."""
    if framework == "numpy":
        if device != "cpu":
            raise WeightBridgeError(f"tensors of NumPy's cannot be made on {device}")
        return NumpyMaker(use_ml_dtypes)
    if framework == "torch":
        try:
            return TorchMaker(device)
        except ImportError as e:
            raise WeightBridgeError("framework is 'torch', but torch is not installed") from e
    raise WeightBridgeError(f"framework {framework!r} is not known: 'numpy' or 'torch'")


def is_that(has, dtype, shape, kind):
    """Is a tensor of shape `has` and of `dtype`, NumPy's or torch's, one of `shape` and `kind`?"""
    try:
        as_moved = as_words(has, dtype_name(dtype))
    except WeightBridgeError:
        as_moved = None
    return as_moved == (shape, kind) or (has == shape and _holds(dtype, kind))


def _holds(dtype, kind):
    name = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
    return getattr(dtype, "isnative", True) and name in (_NUMPY[kind], _TORCH[kind])


def item_bytes(dtype):
    return _BYTES[dtype]


def n_bytes(shape, dtype):
    return math.prod(shape) * _BYTES[dtype]


def address_of(flat):
    """First byte of a flat array or tensor."""
    return flat.data_ptr() if is_torch(flat) else flat.__array_interface__["data"][0]


def void_pointers(addresses):
    return (ctypes.c_void_p * len(addresses))(*addresses)
