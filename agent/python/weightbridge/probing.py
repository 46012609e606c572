# SPDX-License-Identifier: Apache-2.0
"""extract: find out what load_weights does, by running it on made-up checkpoints."""

import ctypes
import inspect
import os
import sys
import threading
import time

from . import _extract_abi as abi
from . import arrays
from . import manifest as manifests
from ._lib import Error
from .errors import NOT_COPY, WeightBridgeError, from_code
from .sourcemap import SourceMap, open_manifest


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


class _Progress:
    """Says how far a probe is: a line on a terminal that is written over, or calls."""

    def __init__(self, wish):
        self._tell = wish if callable(wish) else None
        self._line = wish is True or (wish is None and sys.stderr.isatty())
        self._next = 0.0

    def say(self, sentence, now=False):
        if not (self._tell or self._line) or (not now and time.monotonic() < self._next):
            return
        self._next = time.monotonic() + 0.2
        if self._tell:
            self._tell(sentence)
        else:
            print(f"\r\033[Kweightbridge: {sentence}", end="", file=sys.stderr, flush=True)

    def end(self):
        if self._line and not self._tell:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class _Probe:
    """One extraction: drives the passes of the library."""

    def __init__(self, load_weights, tensors, params, options):
        self._load_weights, self._tensors, self._params = load_weights, tensors, params
        self._options = options
        self._lib = abi.load()
        self._manifest = self._handle = None
        self._at = None  # the tensor last taken
        self._pass = abi.Pass()
        self._names = list(params)
        # Storage that a loader drops must outlive the probe, which puts its content back: what was
        # there at first, and what was there when the library last looked.
        self._first = self._last = None
        self._lock = threading.Lock()  # a loader's thread may take a tensor while the probe ends

    def run(self, make, progress, expand_bytes):
        self._manifest = open_manifest(self._tensors)
        try:
            handle, err = ctypes.c_void_p(), Error()
            self._check(self._lib.wb_extract_open(self._manifest, self._now(),
                                                  len(self._names), self._options, handle,
                                                  err), err)
            self._handle = handle.value
            while self._next():
                self._load(make, progress, expand_bytes)
                err = Error()
                self._check(self._lib.wb_extract_end_pass(
                    self._handle, self._now(), len(self._names), err), err)
            return self._finish()
        finally:
            progress.end()
            with self._lock:
                handle, self._handle = self._handle, None
            self._lib.wb_extract_close(handle)  # puts the parameters back
            self._lib.wb_manifest_close(self._manifest)

    def _now(self):
        """The parameters as they are after a load: a loader may have put others in their place."""
        missing = [n for n in self._names if n not in self._params]
        if missing:
            raise WeightBridgeError(f"load_weights removed parameter {missing[0]} from params")
        found = [arrays.describe(n, self._params[n]) for n in self._names]
        self._last = [arrays.holder(self._params[n]) for n in self._names]
        self._first = self._first or self._last
        return (abi.Param * len(self._names))(*found)

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
        if expand_bytes is not None and arrays.n_bytes(shape, dtype) >= expand_bytes:
            kind = self._lib.wb_extract_fill_kind(self._handle, i)
        if kind in (abi.FILL_COLUMNS, abi.FILL_ONE):
            small = (1,) * len(small[:-1]) + small[-1:]
        if kind in (abi.FILL_ROWS, abi.FILL_ONE):
            small = small[:-1] + (1,) * len(small[-1:])
        tensor, address, size = make.empty(small, dtype)
        rc = self._lib.wb_extract_fill(self._handle, i, kind != abi.FILL_FULL, address, size)
        if rc < 0:
            raise WeightBridgeError(f"tensor {self._at} taken after its pass had ended", rc)
        return tensor if small == shape else make.expand(tensor, shape)

    def _finish(self):
        handle, err = ctypes.c_void_p(), Error()
        rc = self._lib.wb_extract_finish(self._handle, handle, err)
        if rc == NOT_COPY:
            lines = self._lib.wb_extract_faults(self._handle).decode("utf-8", "replace")
            faults = lines.rstrip("\n").split("\n")
            raise NotCopyError(
                f"load_weights is not a copy for {len(faults)} "
                f"parameter{'s' if len(faults) != 1 else ''}:\n  " + "\n  ".join(faults),
                rc, faults)
        self._check(rc, err)
        return handle.value, self._lib.wb_extract_notes(self._handle).decode("utf-8", "replace")

    @staticmethod
    def _check(rc, err):
        if rc < 0:
            raise from_code(rc, err.text)


def extract(load_weights, manifest, params, framework="numpy", *, reload=None, cache_dir=None,
            cache_key="", progress=None, use_ml_dtypes=None, expand_bytes=None, threads=0,
            n_hash=1, seed=0, record_max=0):
    """Find out which checkpoint element each parameter element is a copy of: a SourceMap.

    load_weights   takes an iterator of (name, tensor) and writes the parameters in place; it is
                   called about six times with tensors made up for the purpose
    manifest       what the checkpoint holds: list of (name, shape, dtype) with safetensors' dtype
                   names; or a safetensors file, a folder of them, or a model's index file
    params         dict of name -> array or tensor, or (array, dtype): the memory that
                   load_weights writes.  uint16 arrays are BF16 words
    framework      what the iterator yields: 'numpy' (BF16 as uint16 words, or as ml_dtypes.bfloat16
                   when a parameter is, or use_ml_dtypes=True) or 'torch'
    reload         None: the parameters are copied before and put back after.  A callable: they are
                   not copied, and it is called after probing, failed or not, to load them again
    cache_dir      keep maps there and check them with one call instead of probing; True: in the
                   user's cache folder
    cache_key      what else the layout depends on, for the cache; a stale map is never used
    progress       None: on a terminal; True, False, or a callable that gets sentences
    expand_bytes   tensors of at least so many bytes are given as views with stride 0 where the
                   pass allows it (less memory; some loaders do not like them)
    threads, n_hash, seed, record_max   of the library; 0 = its choice

    Raises NotCopyError (what is not a copy, all of it), LoadWeightsError (load_weights raised),
    WeightBridgeError (what cannot be probed).  The parameters are as before in any case.
    """
    if not callable(load_weights):
        raise TypeError("load_weights must be callable: it takes an iterator of (name, tensor)")
    if not hasattr(params, "items"):
        raise TypeError("params must be a dict of parameter name to array")
    if use_ml_dtypes is None:
        use_ml_dtypes = framework == "numpy" and arrays.has_ml_dtypes(params)
    make = arrays.maker(framework, use_ml_dtypes)
    if cache_dir is True:
        cache_dir = cache_folder()
    options = abi.Opts(size=ctypes.sizeof(abi.Opts), threads=threads, n_hash=n_hash,
                       record_max=record_max, seed=seed, reload=0 if reload is None else 1,
                       cache_dir=os.fsencode(cache_dir) if cache_dir else None,
                       cache_key=str(cache_key).encode())
    probe = _Probe(load_weights, manifests.read(manifest), params, options)
    try:
        handle, notes = probe.run(make, _Progress(progress), expand_bytes)
    finally:
        if reload is not None:
            reload()
    return SourceMap(handle, framework, use_ml_dtypes, notes)
