# SPDX-License-Identifier: Apache-2.0
"""SourceMap: which checkpoint element each parameter element of a worker is a copy of."""

import ctypes
import weakref

from . import _extract_abi as abi
from . import arrays
from ._lib import Error
from .errors import WeightBridgeError, from_code
from .manifest import as_words


_NOTED = 8  # names in one line of gaps


class SourceMap:
    """The result of `extract`.  Equal layouts have equal digests.

    digest, manifest_digest   "xxh128:..."
    param_names               the parameters, in the order given
    tensors                   the manifest: list of (name, shape, dtype); types that are moved as
                              words are those words here (I64 [n]: I32 [n, 2])
    notes                     what a person may want to know of the probing, lines of text
    outside                   name -> reason: tensors of modules that load_weights writes, and that
                              are not in the map (they were put back)
    """

    def __init__(self, handle, framework="numpy", use_ml_dtypes=False, notes="", outside=()):
        self._handle = handle
        self._finalizer = weakref.finalize(self, abi.load().wb_sourcemap_close, handle)
        self._finalizer.atexit = False
        self._framework, self._use_ml_dtypes = framework, use_ml_dtypes
        self.notes, self.outside = notes, dict(outside)
        lib = abi.load()
        text = ctypes.create_string_buffer(64)
        lib.wb_sourcemap_digest(handle, text)
        self.digest = text.value.decode()
        self.tensors = []
        for i in range(lib.wb_sourcemap_n_tensor(handle)):
            t = abi.Tensor()
            lib.wb_sourcemap_tensor(handle, i, t)
            self.tensors.append((t.name.decode(), tuple(t.shape[:t.ndim]), t.dtype.decode()))
        self._params = []
        for i in range(lib.wb_sourcemap_n_param(handle)):
            p = abi.MapParam()
            _check(lib.wb_sourcemap_param(handle, i, p))
            self._params.append(p)
        self.param_names = [p.name.decode() for p in self._params]
        self._index = {name: i for i, name in enumerate(self.param_names)}

    @classmethod
    def from_bytes(cls, data, framework="numpy"):
        """A map from what `to_bytes` gave."""
        handle, err = ctypes.c_void_p(), Error()
        data = bytes(data)
        rc = abi.load().wb_sourcemap_read(data, len(data), handle, err)
        if rc < 0:
            raise from_code(rc, err.text)
        return cls(handle.value, framework)

    def __reduce__(self):  # pickle and copy: the handle is this object's alone
        return _restored, (self.to_bytes(), self._framework, self._use_ml_dtypes, self.notes,
                           self.outside)

    @property
    def manifest_digest(self):
        handle = open_manifest(self.tensors)
        text = ctypes.create_string_buffer(64)
        abi.load().wb_manifest_digest(handle, text)
        abi.load().wb_manifest_close(handle)
        return text.value.decode()

    def to_json(self):
        """The whole map as JSON text: params, ops, regions."""
        return self._blob("wb_sourcemap_json").decode()

    def report(self):
        """Text for people: what each parameter is made of, and what probing cost."""
        return self._blob("wb_sourcemap_report").decode()

    def to_bytes(self):
        return self._blob("wb_sourcemap_blob")

    def manifest_blob(self):
        """The encoded manifest, for attaching."""
        return self._blob("wb_sourcemap_manifest_blob")

    def map_blob(self):
        """The encoded map, for attaching."""
        return self._blob("wb_sourcemap_map_blob")

    def param(self, name):
        """A dict: shape, dtype, ops, nests, constants, unwritten (regions), view_of."""
        p = self._params[self._index[name]]
        return {"shape": tuple(p.shape[:p.ndim]), "dtype": p.dtype.decode(), "ops": p.n_op,
                "nests": p.n_nest, "constants": p.n_constant, "unwritten": p.n_unwritten,
                "view_of": None if p.owner < 0 else self.param_names[p.owner]}

    def check(self, name, value, for_writing=True):
        """Raises when a parameter, as for `extract`, is not laid out as the map says; describes it."""
        d, p = arrays.describe(name, value, for_writing), self._params[self._index[name]]

        def face(q):  # strides where there is something to step over
            shape = tuple(q.shape[:q.ndim])
            return (q.dtype.decode(), shape,
                    tuple(s for s, n in zip(q.stride[:q.ndim], shape) if n > 1 and 0 not in shape))

        if face(d) != face(p):
            raise WeightBridgeError(
                f"parameter {name} is not what the map was made for: {arrays.type_of(value)} as "
                f"{_face_text(*face(d))}, the map has {_face_text(*face(p))}")
        return d

    @property
    def gaps(self):
        """What the map leaves out, lines of text: tensors that go nowhere, parameters that get
        nothing, tensors that are rounded.  report() has the names that a line leaves out."""
        return self._blob("wb_sourcemap_gaps", _NOTED).decode()

    @property
    def unmapped(self):
        """The parameters that have elements and get nothing at all: load_weights does not write
        them, so that no transfer does."""
        return [p.name.decode() for p in self._params
                if p.owner < 0 and not p.n_op and p.n_unwritten and 0 not in p.shape[:p.ndim]]

    @property
    def n_ops(self):
        return sum(p.n_op for p in self._params)

    def apply(self, tensors, into=None):
        """Build the parameters from checkpoint tensors by the map alone.

        tensors: dict of name -> array (any that a parameter needs).  Returns a dict of name ->
        array; elements that load_weights does not write are zero.  With `into`, a dict of
        parameters as for `extract`, writes those in place instead and leaves such elements alone.
        """
        make = arrays.maker(self._framework, self._use_ml_dtypes)
        sources, keep = self._sources(make, tensors)
        if into is not None:
            targets, out = [], into
            for name, p in zip(self.param_names, self._params):
                if name not in into:
                    raise WeightBridgeError(f"parameter {name} of the map is missing")
                if arrays.is_device(into[name]):
                    raise WeightBridgeError(f"parameter {name} lies on a GPU: apply writes memory of "
                                            "the host")
                targets.append(None if p.owner >= 0 else self.check(name, into[name]).data)
        else:
            flats, out = self._targets(make)
            targets = [None if p.owner >= 0 or f is None else arrays.address_of(f)
                       for p, f in zip(self._params, flats)]
        err = Error()
        rc = abi.load().wb_sourcemap_apply(self._handle, arrays.void_pointers(sources),
                                           arrays.void_pointers(targets), err)
        del keep
        if rc < 0:
            raise from_code(rc, err.text)
        return out

    def write_constants(self, params):
        """Write into parameters, as for `extract`, what load_weights writes there that is not of the
        checkpoint: padding, defaults.  What is there already when it has loaded weights."""
        targets = [None if p.owner >= 0 or not p.n_constant else self.check(name, params[name]).data
                   for name, p in zip(self.param_names, self._params)]
        pointers, err = arrays.void_pointers(targets), Error()
        if not any(t and arrays.is_device(params[n]) for t, n in zip(targets, self.param_names)):
            abi.load().wb_sourcemap_constants(self._handle, pointers)
            return
        rc = abi.load().wb_sourcemap_write_constants(self._handle, pointers, err)
        if rc < 0:
            raise from_code(rc, err.text)

    def _sources(self, make, tensors):
        sources, keep = [], []
        for name, shape, dtype in self.tensors:
            tensor = tensors.get(name)
            if tensor is None:
                sources.append(None)
                continue
            address, alive, has, of = make.source(tensor)
            if not arrays.is_that(has, of, shape, dtype):
                raise WeightBridgeError(f"tensor {name}: {has} of {of}, the manifest says {shape} "
                                        f"{dtype}")
            sources.append(address)
            keep.append(alive)
        return sources, keep

    def _targets(self, make):
        flats, out = [], {}
        for name, p in zip(self.param_names, self._params):
            shape, strides = tuple(p.shape[:p.ndim]), list(p.stride[:p.ndim])
            flat = None
            if p.owner < 0:
                flat, out[name] = make.spanning(p.span, shape, strides, p.dtype.decode())
            flats.append(flat)
        for name, p in zip(self.param_names, self._params):
            if p.owner >= 0:
                out[name] = make.window(flats[p.owner], p.owner_offset,
                                        tuple(p.shape[:p.ndim]), list(p.stride[:p.ndim]))
        return flats, {name: out[name] for name in self.param_names}

    def _blob(self, function, *args):
        blob = abi.Blob()
        _check(getattr(abi.load(), function)(self._handle, *args, blob))
        return abi.take(blob)

    def __repr__(self):
        return (f"<SourceMap {self.digest}: {len(self._params)} parameters, {self.n_ops} ops "
                f"of {len(self.tensors)} tensors>")


def _restored(data, framework, use_ml_dtypes, notes, outside=()):
    made = SourceMap.from_bytes(data, framework)
    made._use_ml_dtypes, made.notes, made.outside = use_ml_dtypes, notes, dict(outside)
    return made


def _face_text(dtype, shape, strides):
    return f"{dtype} of shape {shape} with strides {strides}"


def _check(rc):
    if rc < 0:
        raise from_code(rc, "no memory" if rc == -12 else f"error {rc}")


def open_manifest(tensors):
    """Handle of the library's manifest; raises for one that cannot be."""
    table = (abi.Tensor * len(tensors))(*[abi.tensor(n, *as_words(s, d)) for n, s, d in tensors])
    handle, err = ctypes.c_void_p(), Error()
    rc = abi.load().wb_manifest_open(table, len(tensors), handle, err)
    if rc < 0:
        raise from_code(rc, err.text)
    return handle.value
