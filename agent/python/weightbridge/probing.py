# SPDX-License-Identifier: Apache-2.0
"""extract: find out what load_weights does, by running it on made-up checkpoints."""

import ctypes
import errno
import hashlib
import inspect
import json
import os
import sys
import threading
import time

from . import _extract_abi as abi
from . import arrays, memory, outside, ranks
from . import manifest as manifests
from ._lib import Error
from .errors import NOT_COPY, WeightBridgeError, from_code
from .places import Place, Source
from .progress import Probing
from .sourcemap import SourceMap, open_manifest


_ONES = (1, 0x3f80, 0x3c00, 0x3f800000)  # an integer's, BF16's, F16's, F32's


class LoadWeightsError(WeightBridgeError):
    """load_weights raised (see __cause__); names the pass and the tensor last taken."""


class NotCopyError(WeightBridgeError):
    """load_weights does what is not a copy.  `faults`: one line for each parameter and range."""

    def __init__(self, message, code=NOT_COPY, faults=()):  # pickle gives the message alone
        super().__init__(message, code)
        self.faults = faults


def cache_folder():
    """Where maps are kept when `cache_dir` is True."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "weightbridge")


class _Probe:
    """One extraction: drives the passes of the library."""

    def __init__(self, load_weights, tensors, source, options, ranks):
        self._load_weights, self._tensors, self._source = load_weights, tensors, source
        self._options, self._ranks = options, ranks
        self._options.agree = abi.Agree(self._agree)
        self._raised = None  # by _agree, which must not raise through C
        self._lib = abi.load()
        self._manifest = self._handle = None
        self._at = None  # the tensor last taken
        self._pass = abi.Pass()
        self._outside = outside.Outside(source, load_weights)
        self._names = list(source.now())
        # Storage that a loader drops must outlive the probe, which puts its content back: what was
        # there at first, and what was there when the library last looked.
        self._first = self._last = None
        self._lock = threading.Lock()  # a loader's thread may take a tensor while the probe ends

    def run(self, make, progress, expand_bytes):
        self._manifest = open_manifest(self._tensors)
        try:
            handle, err = ctypes.c_void_p(), Error()
            params = self._now()
            self._options.devices = self._has_devices()
            if make.is_device and not self._options.devices:
                raise WeightBridgeError("tensors_on names a GPU, and no parameter lies on one: the checkpoint's tensors "
                                        "can be made only where parameters are")
            roles = [abi.PARAM] * len(self._names) + self._outside.roles
            self._options.role = (ctypes.c_uint8 * len(roles))(*roles)
            self._check(self._lib.wb_extract_open(self._manifest, params, len(params),
                                                  self._options, handle, err), err)
            self._handle = handle.value
            while self._next():
                self._load(make, progress, expand_bytes)
                params, err = self._now(), Error()
                self._check(self._lib.wb_extract_end_pass(
                    self._handle, params, len(params), err), err)
            return self._finish()
        finally:
            progress.end()
            with self._lock:
                handle, self._handle = self._handle, None
            self._drop_gone(handle)
            self._lib.wb_extract_close(handle)  # puts the parameters back
            self._outside.put_back()
            self._lib.wb_manifest_close(self._manifest)

    @property
    def outside(self):
        return self._outside.reasons

    def _now(self):
        """The parameters as they are after a load: a loader may have put others in their place."""
        now = self._source.now()
        missing = [n for n in self._names if n not in now]
        if missing:
            raise WeightBridgeError(f"load_weights removed parameter {missing[0]} from params")
        found = [arrays.describe(n, now[n]) for n in self._names]
        if self._first is None:
            self._outside.find(found)
        others, places = self._outside.now()
        self._last = [Place(now[n]) for n in self._names] + places
        self._check_device()
        self._first = self._first or self._last
        self._drop_gone(self._handle)
        return (abi.Param * (len(found) + len(others)))(*found, *others)

    def _has_devices(self):
        """Does anything lie on a GPU?  Raises when that is none of CUDA's: to the library it would be the
        host's memory."""
        for name, place in zip(self._names + self._outside.names, self._last):
            if place.is_device and memory.span(place.held)[1]:
                try:
                    memory.device_memory(place.held)
                except WeightBridgeError as e:
                    raise WeightBridgeError(f"parameter {name}: {e}", e.code) from e
                return True
        return False

    def _check_device(self):
        """The library does not ask where memory lies when nothing lay on a GPU at first."""
        if self._first is None or self._options.devices:
            return
        names = self._names + self._outside.names
        moved = [n for n, p in zip(names, self._last) if p.is_device]
        if moved:
            self._last = self._first
            raise WeightBridgeError(f"parameter {moved[0]}: load_weights puts it on a GPU (it must be "
                                    "written in place)")

    def _drop_gone(self, handle):
        """Memory that a loader freed under us (another size of a storage) is not put back."""
        for places in (self._first, self._last) if handle else ():
            for i, place in enumerate(places or ()):
                if place.is_gone():
                    self._lib.wb_extract_gone(handle, i, place.address)

    def _next(self):
        err = Error()
        rc = self._lib.wb_extract_next_pass(self._handle, self._pass, err)
        self._check(rc, err)
        return rc == 1

    def _title(self):
        return (f"pass {self._pass.index + 1} of {self._pass.n_expected} "
                f"({self._pass.name.decode()})")

    def _load(self, make, progress, expand_bytes):
        self._at = None
        try:
            made = self._load_weights(self._fakes(make, progress, expand_bytes))
        except Exception as e:
            if isinstance(e, WeightBridgeError):
                raise
            at = "before any tensor" if self._at is None else f"at tensor {self._at}"
            raise LoadWeightsError(
                f"load_weights raised {type(e).__name__} in {self._title()}, {at}: {e}") from e
        if self._at is None and (inspect.isgenerator(made) or inspect.iscoroutine(made)):
            made.close()
            raise WeightBridgeError(
                f"load_weights returned a {type(made).__name__}, which has not run yet: give a "
                "function that loads before it returns (lambda w: list(load_weights(w)), "
                "lambda w: asyncio.run(load_weights(w)))")

    def _fakes(self, make, progress, expand_bytes):
        """The made-up checkpoint of this pass; each tensor is new memory."""
        total = len(self._tensors)
        for i, (name, shape, dtype) in enumerate(self._tensors):
            progress.say(f"{self._title()}: tensor {i + 1} of {total}")
            self._at = name
            yield name, self._fake(make, i, shape, dtype, expand_bytes)

    def _fake(self, make, i, shape, dtype, expand_bytes):
        with self._lock:
            if self._handle is None:
                raise WeightBridgeError(f"tensor {self._at} taken after probing had ended")
            return self._filled(make, i, shape, dtype, expand_bytes)

    def _filled(self, make, i, shape, dtype, expand_bytes):
        kind, small = abi.FILL_FULL, shape
        if (expand_bytes is not None and arrays.n_bytes(shape, dtype) >= expand_bytes
                and not manifests.has_words(dtype)):
            kind = self._lib.wb_extract_fill_kind(self._handle, i)
        if kind in (abi.FILL_COLUMNS, abi.FILL_ONE):
            small = (1,) * len(small[:-1]) + small[-1:]
        if kind in (abi.FILL_ROWS, abi.FILL_ONE):
            small = small[:-1] + (1,) * len(small[-1:])
        tensor, address, size = make.empty(small, dtype)
        rc = self._lib.wb_extract_fill(self._handle, i, kind != abi.FILL_FULL, address, size)
        if rc == -errno.EINVAL:
            raise WeightBridgeError(f"tensor {self._at} taken after its pass had ended", rc)
        if rc < 0:
            raise WeightBridgeError(f"tensor {self._at} cannot be made on a GPU "
                                    f"({'no parameter lies there' if rc == -errno.ENOTSUP else 'it failed'})", rc)
        return tensor if small == shape else make.expand(tensor, shape)

    def _finish(self):
        handle, err = ctypes.c_void_p(), Error()
        rc = self._lib.wb_extract_finish(self._handle, handle, err)
        if rc == NOT_COPY:
            lines = self._lib.wb_extract_faults(self._handle).decode("utf-8", "replace")
            faults = lines.rstrip("\n").split("\n")
            raise NotCopyError(
                f"load_weights is not a copy for {len(faults)} "
                f"parameter{'s' if len(faults) != 1 else ''}:\n  " + "\n  ".join(faults)
                + self._outside.replaced(), rc, faults)
        self._check(rc, err)
        lines = self._lib.wb_extract_outside(self._handle).decode("utf-8", "replace")
        self._outside.told(line.split("\t", 1) for line in lines.splitlines())
        return handle.value, self._lib.wb_extract_notes(self._handle).decode("utf-8", "replace")

    def _agree(self, _cookie, said, out):
        try:
            out[0] = self._ranks.agree(said)
            return 0
        except BaseException as e:  # noqa: B902 (must not pass through C)
            self._raised = e
            return -errno.ECANCELED

    def _check(self, rc, err):
        if rc < 0:
            raise self._raised or from_code(rc, err.text)


def extract(load_weights, manifest, params, framework=None, *, reload=None, cache_dir=None,
            cache_key="", progress=None, use_ml_dtypes=None, expand_bytes=None, threads=0,
            n_hash=1, seed=0, record_max=0, group=None, leave_out=(), tensors_on="cpu"):
    """Find out which checkpoint element each parameter element is a copy of: a SourceMap.

    load_weights   takes an iterator of (name, tensor) and writes the parameters in place; it is
                   called about six times with tensors made up for the purpose
    manifest       what the checkpoint holds: list of (name, shape, dtype) with safetensors' dtype
                   names; or a safetensors file, a folder of them, or a model's index file.  I64, U64,
                   F64, U32, I16, U16, F8_E8M0 and BOOL are only moved: as words, where load_weights
                   copies them as they are
    params         dict of name -> array or tensor, or (array, dtype): the memory that
                   load_weights writes.  uint16 arrays are BF16 words.  Or a function that returns
                   such a dict, called after each pass.  Or a module as torch's: its parameters, and
                   those of its other tensors (buffers, plain attributes) that load_weights copies
                   into.  What else it writes into the modules it belongs to or speaks of is put back
                   and named (`outside`)
                   They may lie on GPUs (torch's tensors, and what has __cuda_array_interface__): they
                   are probed there, and what is under way in any stream is waited for
    framework      what the iterator yields: 'numpy' (BF16 as uint16 words, or as ml_dtypes.bfloat16
                   when a parameter is, or use_ml_dtypes=True) or 'torch'; None: 'torch' when a
                   parameter is a tensor of torch's
    reload         None: the parameters are copied before and put back after.  A callable: they are
                   not copied, and it is called after probing, failed or not, to load them again
    cache_dir      keep maps there and check them with one call instead of probing; True: in the
                   user's cache folder
    cache_key      what else the layout depends on, for the cache; a stale map is never used
    progress       None: on a terminal; True, False, or a callable that gets sentences
    leave_out      names and patterns (as the shell's) of tensors of the manifest that are not
                   transferred, and not given to load_weights; the same on all workers
    expand_bytes   tensors of at least so many bytes are given as views with stride 0 where the
                   pass allows it (less memory; some loaders do not like them)
    tensors_on     where the iterator's tensors lie, as torch names it.  'cuda': made on that GPU,
                   where parameters have to lie, for loaders that take such; much faster
    threads, n_hash, seed, record_max   of the library; 0 = its choice
    group          for loaders that call each other (each rank reads a part and broadcasts it): an
                   object with all_gather(bytes), or such a function, that gives a list of what every
                   rank gave.  All ranks call extract, and run the same passes; a map from the cache
                   is used when all have one, kept by rank; when one fails, all do

    Raises NotCopyError (what is not a copy, all of it), LoadWeightsError (load_weights raised),
    WeightBridgeError (what cannot be probed).  The parameters are as before in any case.
    """
    together = ranks.of(group)
    opts = abi.Opts(size=ctypes.sizeof(abi.Opts), threads=threads, n_hash=n_hash,
                    record_max=record_max, seed=seed, reload=0 if reload is None else 1)
    try:
        if not callable(load_weights):
            raise TypeError("load_weights must be callable: it takes an iterator of (name, tensor)")
        tensors = manifests.read(manifest, leave_out)
        together.start(f"{len(tensors)} tensors (digest {_digest(tensors)}), n_hash {n_hash}, "
                       f"seed {seed}")
        if cache_dir:
            opts.cache_dir = os.fsencode(cache_folder() if cache_dir is True else cache_dir)
            opts.cache_key = _cache_key(cache_key, together).encode()
        source = params if isinstance(params, Source) else Source(params)
        framework = framework or arrays.framework_of(source.now())
        if use_ml_dtypes is None:
            use_ml_dtypes = framework == "numpy" and arrays.has_ml_dtypes(source.now())
        make = arrays.maker(framework, use_ml_dtypes, tensors_on)
        probe = _Probe(load_weights, tensors, source, opts, together)
        try:
            handle, notes = probe.run(make, Probing(progress), expand_bytes)
        finally:
            if reload is not None:
                reload()
        source_map = SourceMap(handle, framework, use_ml_dtypes, notes, probe.outside)
        _check_bools(source_map, tensors)
        together.agree(0)  # all have theirs: who has none fails all
        return source_map
    except BaseException as e:
        together.leave(e)
        raise


def _check_bools(source_map, tensors):
    """torch makes 1 of every byte of a bool but 0, even in a copy: what is probed by other bytes
    looks like a constant."""
    bools = [n for n, _, dtype in tensors if dtype == "BOOL"]
    if not bools:
        return
    found = json.loads(source_map.to_json())
    read = {op["tensor"] for op in found["ops"]}
    ones = sorted({r["param"] for r in found["regions"]
                   if r["kind"] == "constant" and r["value"] in _ONES})
    bools = [n for n in bools if n not in read]
    if bools and ones:
        raise NotCopyError(
            f"tensor {bools[0]} is BOOL and copied nowhere byte by byte, but load_weights writes ones "
            f"into {', '.join(ones[:4])}: torch's bools cannot be probed.  leave_out={bools!r} on all "
            "workers when they need not be transferred", faults=[f"tensor {n}: BOOL" for n in bools])


def _digest(tensors):
    return hashlib.sha256(repr([(n, tuple(s), d) for n, s, d in tensors]).encode()).hexdigest()[:16]


def _cache_key(key, together):
    """Ranks of equal shapes hold other parts: each has its own map in a folder that they share."""
    return f"{key}\nrank {together.index} of {together.n}" if together.n > 1 else str(key)
