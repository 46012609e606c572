# SPDX-License-Identifier: Apache-2.0
"""SenderAdapter and ReceiverAdapter: what a trainer and an inference worker call.

    sender = SenderAdapter(load_weights, params=params, manifest=manifest).connect()
    transfer = sender.send_weights()          # on every trainer worker, after each step

    receiver = ReceiverAdapter(load_weights, params=params, manifest=manifest,
                               engine="e0").connect()
    update = receiver.poll_requests()         # on every worker of the engine, each decoding step
"""

import contextlib
import ctypes
import errno
import logging
import os
import time
import weakref
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .. import _lib, errors, memory, modules, places, ranks, whole
from ..calls import SLICE, check, ns, waited
from ..errors import TransferFailed, TransferSuspended, WeightBridgeError, WeightBridgeTimeout, from_code
from ..progress import Repeated, Waiting, is_terminal, line
from ..transfers import Transfer

_log = logging.getLogger("weightbridge")

_STAGING = {None: 0, "None": 1, "HostMemory": 2}
_NAMED = 8  # parameters in one sentence
_SUSPENDED = 0.5  # s between looks whether the object is suspended still
_EXIT_TIMEOUT = 60.0  # s to wait for commit when the process ends without close()


def _text(value):
    return None if value is None else str(value).encode()


def _finish(handle, timeout):
    """Close a client; returns (rc, sentence)."""
    err = _lib.Error()
    return _lib.load().wb_client_close(handle, ns(timeout), err), err.text


def _n_bytes(name, array):
    try:
        return memory.span(array)[1]
    except WeightBridgeError as e:
        raise WeightBridgeError(f"parameter {name}: {e}", e.code) from e


def _some(texts):
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f", and {more} more" if more > 0 else "")


def _unmapped_text(why):
    what = "parameter gets" if len(why) == 1 else "parameters get"
    return (f"{len(why)} {what} nothing of the checkpoint, so that no transfer would change it: "
            f"{_some([f'{n} ({w})' for n, w in why.items()])}.  Does load_weights write these, and are "
            "they what the engine computes with (some repack weights into other memory)?  What is to "
            "stay as it is: allow_unmapped, a list of names or patterns, or True")


def _not_connected(_handle):
    return -errno.ENOTCONN


class _Adapter:
    """What both adapters do: attach to the agent, keep the attachment, close."""

    _role = 0

    def __init__(self, load_weights, *, params=None, manifest=None, object=None, model=None,
                 rank=None, socket=None, reload=None, framework=None, cache_dir=None,
                 cache_key=None, expand_bytes=None, threads=None, n_hash=None, group=None,
                 source_map=None, allow_unmapped=False, leave_out=None, tensors_on=None, engine=None,
                 sender_staging=None, receiver_staging=None,
                 connect_timeout=60.0, update_timeout=600.0, repair_timeout=300.0,
                 reconnect_timeout=60.0):
        for name, value in (("sender_staging", sender_staging),
                            ("receiver_staging", receiver_staging)):
            if value not in _STAGING:
                raise ValueError(f"{name} is {value!r}: 'None', 'HostMemory', or not given")
        if not callable(load_weights) and source_map is None:
            raise TypeError("load_weights must be callable: it takes an iterator of "
                            "(name, tensor)")
        self._load_weights = load_weights
        self._source = places.Source({} if params is None else params)
        if not self._source.now():
            raise ValueError("params is empty: give a dict of parameter name to array")
        self._manifest = manifest
        if group is None and rank is not None:  # with one it is known who is who
            cache_key = f"{cache_key or ''}\nrank {int(rank)}"
        self._extract_options = {k: v for k, v in (
            ("reload", reload), ("framework", framework), ("cache_dir", cache_dir),
            ("cache_key", cache_key), ("expand_bytes", expand_bytes), ("threads", threads),
            ("n_hash", n_hash), ("leave_out", leave_out), ("tensors_on", tensors_on))
            if v is not None}
        self._group = group
        self._strings = {"socket": _text(socket), "object": _text(object), "model": _text(model),
                         "engine": _text(engine)}
        self._rank = -1 if rank is None else int(rank)
        self._staging = _STAGING[sender_staging], _STAGING[receiver_staging]
        self._timeouts = {"connect_timeout": connect_timeout, "update_timeout": update_timeout,
                          "repair_timeout": repair_timeout,
                          "reconnect_timeout": reconnect_timeout}
        self.source_map = source_map
        self._allow_unmapped = ((allow_unmapped,) if isinstance(allow_unmapped, str)
                                else allow_unmapped)
        self.plan = None
        self._handle = None
        self._keep = None  # what holds the attached memory
        self._places = None  # where it is; None: nothing is attached
        self._finalizer = None
        self.watch = lambda: None  # called about once a second while connect() waits for the plan; may raise, which ends it

    def connect(self, timeout=None, progress=None):
        """Attach to the agent, and wait until every member has and the plan is active.

        Probes `load_weights` (see weightbridge.extract), unless a source map was given.  `timeout` (seconds) bounds
        the wait for the plan; None: as long as it takes.  `progress`: a callable that gets each
        sentence; True or False: print them to stderr or not; None: print on a terminal, and
        elsewhere log every 10 s what it waits for.
        """
        if self._handle is not None:
            raise WeightBridgeError("already connected")
        together = ranks.of(None if self.source_map else self._group)
        with Waiting(progress) as waiting:
            self._connect(timeout, progress, together, waiting)
        return self

    def _connect(self, timeout, progress, together, waiting):
        try:
            if len(self._empty()) == len(self._source.now()):
                raise WeightBridgeError("all parameters of this worker are empty")
            waiting.at("the agent has not answered yet (is it running, and is this its socket: "
                       f"{self._socket()}?)")
            self._open()
            if self.source_map is None:
                waiting.at("load_weights is being probed")
                self.source_map = self._extract(waiting.at if waiting.is_quiet else progress,
                                                together)
            self._check_unmapped()
            waiting.at("the agent has not answered to attach yet")
            self._attach()
            self._wait_planned(timeout, progress, waiting)
        except BaseException as e:
            together.leave(e)
            self._close(0.0)
            raise

    def _socket(self):
        given = self._strings["socket"]
        return (given.decode() if given else os.environ.get("WEIGHTBRIDGE_SOCKET")
                or "/run/weightbridge/agent.sock")

    def close(self, timeout=None):
        """Detach.  A trainer worker waits for the last transfer's outcome, at most `timeout`
        seconds (None: as long as it takes), and raises when it failed and nobody was told."""
        rc, said = self._close(timeout)
        if rc < 0 and rc != -errno.EINTR:
            raise from_code(rc, said)

    @property
    def worker(self):
        """Name the agent gave this worker, "" when not connected."""
        return _lib.load().wb_client_worker(self._handle).decode() if self._handle else ""

    def __enter__(self):
        return self if self._handle else self.connect()

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
        else:
            self._close(0.0)  # what went wrong already is what counts

    def _client(self):
        if self._handle is None:
            raise WeightBridgeError("not connected: call connect() first")
        return self._handle

    def _open(self):
        opts = _lib.Opts(size=ctypes.sizeof(_lib.Opts), role=self._role, rank=self._rank,
                         sender_staging=self._staging[0], receiver_staging=self._staging[1],
                         **self._strings, **{k: ns(v) for k, v in self._timeouts.items()})
        lib, handle = _lib.load(), ctypes.c_void_p()
        end = time.monotonic() + self._timeouts["connect_timeout"]
        while True:
            err = _lib.Error()
            rc = lib.wb_client_open(opts, handle, err)
            if rc != -errno.EINTR or time.monotonic() >= end:
                break
        check(rc, err)
        self._handle = handle.value
        self._finalizer = weakref.finalize(self, _finish, self._handle, _EXIT_TIMEOUT)

    def _extract(self, progress, together):
        from ..probing import extract

        return extract(self._load_weights, self._manifest, self._source.without(self._empty()),
                       progress=progress, group=together, **self._extract_options)

    def _allowed(self, name):
        allowed = self._allow_unmapped
        return allowed is True or any(fnmatchcase(name, p) for p in allowed or ())

    def _empty(self):
        # Uneven shards leave some ranks with nothing of a parameter: there is nothing to move.
        return [n for n, a in self._source.now().items() if not _n_bytes(n, a)]

    def _check_unmapped(self):
        """Raises when there are parameters that transfers would pass by, unless they may be."""
        lines = (self.source_map.notes + self.source_map.gaps).splitlines()
        why = {n: "load_weights does not write it" for n in self.source_map.unmapped}
        empty, outside = self._empty(), self.source_map.outside
        mapped = {*self.source_map.param_names, *empty}
        why.update((n, "the source map does not have it") for n in self._source.now()
                   if n not in mapped)
        if self._role == _lib.ROLLOUT:
            why.update((n, "it has no elements") for n in empty)
            why.update((n, f"outside of params, {w}") for n, w in outside.items())
        else:  # shards may be uneven, and what is beside them is not sent: who needs it is told
            if empty:
                lines.append(f"parameters without elements ({len(empty)}): {_some(empty)}")
            if outside:
                lines.append(f"load_weights also writes what is not sent: {_some(list(outside))}")
        for line in lines:
            _log.warning("%s", line)
        why = {n: w for n, w in why.items() if not self._allowed(n)}
        if why:
            raise errors.UnmappedError(_unmapped_text(why), names=list(why))

    def _mapped(self, source):
        """The parameters of the source map as they are now; raises when the map does not fit."""
        names = self.source_map.param_names
        now = source.some(names)
        wrong = [n for n in names if n not in now]
        if wrong:
            raise WeightBridgeError("the source map has parameters that params has not: "
                                    + ", ".join(wrong[:8]))
        for name in names:
            self.source_map.check(name, now[name], self._role == _lib.ROLLOUT)
        return {n: now[n] for n in names}

    def _check_places(self):
        """Nobody else's memory is sent, or written, when a parameter has moved since."""
        if self._places is not None:
            self._places.check(self._source)

    def _attach(self):
        source = self.source_map
        manifest, blob = source.manifest_blob(), source.map_blob()
        mem, param = self._register(self._mapped(self._source), is_new=True)
        attach = _lib.Attach(size=ctypes.sizeof(_lib.Attach),
                             manifest=ctypes.cast(manifest, ctypes.c_void_p),
                             manifest_bytes=len(manifest),
                             map=ctypes.cast(blob, ctypes.c_void_p), map_bytes=len(blob),
                             mem=mem, n_mem=len(mem), param=param, n_param=len(param))
        while True:  # interrupted: the same call goes on
            err = _lib.Error()
            rc = _lib.load().wb_client_attach(self._handle, attach, err)
            if rc != -errno.EINTR:
                break
        check(rc, err)

    def _register(self, params, is_new):
        if is_new and self._role == _lib.ROLLOUT:
            self.source_map.write_constants(params)  # no transfer does
        mems, offsets, keep = memory.register([(n, *memory.span(a), memory.is_device(a))
                                               for n, a in params.items()])
        self._places = places.Places(params, modules.behind(self._load_weights))
        self._keep = keep, self._places
        return ((_lib.Mem * len(mems))(*[_lib.Mem(kind, 0, fd, base, size)
                                         for kind, fd, base, size in mems]),
                (_lib.Param * len(offsets))(*offsets))

    def release_memory(self, timeout=None):
        """The parameters' memory is about to go away (an engine's sleep, a colocated trainer).

        On return nobody uses it and this worker's agent maps nothing of it any more (agents that
        read it over shared memory let go a moment later); its staging memory is given back.
        The worker keeps its place in the plan.  Until acquire_memory() its engine is left behind by
        transfers, by name, and send_weights is refused.  Waits while a transfer needs the memory,
        at most `timeout` seconds (None: as long as it takes)."""
        lib, client = _lib.load(), self._client()
        waited(timeout, lambda ns, err: lib.wb_client_release_memory(client, ns, err))
        self._keep = self._places = None

    def acquire_memory(self, params=None, kept=False, timeout=None):
        """The memory is there again: no probe, no new plan.

        `params` when the arrays are others now (the same names, shapes and dtypes), else those given
        before, wherever they are now.  `kept=True`: they hold what they held at release_memory(),
        and this engine may feed others from them before the next transfer."""
        source = self._source if params is None else places.Source(params)
        mapped, self._source = self._mapped(source), source
        mem, param = self._register(mapped, is_new=not kept)
        acquire = _lib.Acquire(size=ctypes.sizeof(_lib.Acquire), mem=mem, n_mem=len(mem),
                               param=param, n_param=len(param),
                               flags=_lib.ACQUIRE_KEPT if kept else 0)
        timeout = self._timeouts["connect_timeout"] if timeout is None else timeout
        lib, client = _lib.load(), self._client()
        waited(timeout, lambda ns, err: lib.wb_client_acquire_memory(client, acquire, ns, err))

    def rebind(self, params=None, kept=False, timeout=None):
        """The parameters have moved: attach them where they are now.  No probe, no new plan.

        Where a framework gives parameters other storage after connect(), send_weights and updates
        raise ParametersMoved until this is called.  As release_memory() and acquire_memory() in
        one (`params`, `kept` and `timeout` as there); the memory that was attached is let go.
        Raises, and changes nothing, when a shape, stride or dtype is another one: the worker then
        needs a new source map (close, and connect a new adapter)."""
        self._mapped(self._source if params is None else places.Source(params))
        self.release_memory(timeout)
        self.acquire_memory(params, kept, timeout)

    def _wait_planned(self, timeout, progress, waiting):
        if progress is True or (progress is None and is_terminal()):
            progress = line
        raised, told, plan = [], [None], _lib.Plan()

        def tell(_cookie, sentence):
            if raised or sentence == told[0]:
                return  # each slice of the wait hears the last sentence again
            told[0] = sentence
            text = sentence.decode("utf-8", "replace")
            waiting.at(text)
            try:
                if progress:
                    progress(text)
            except BaseException as e:  # noqa: B902 (must not pass through C)
                raised.append(e)

        callback = _lib.Progress(tell)

        def once(ns, err):
            self.watch()
            rc = _lib.load().wb_client_wait_planned(self._handle, ns, callback, None, plan, err)
            if raised:
                raise raised[0]
            return rc

        waited(timeout, once)
        self.plan = {"term": plan.term, "number": plan.number, "digest": plan.digest.decode(),
                     "version": None if plan.version < 0 else plan.version}

    def _close(self, timeout):
        handle, self._handle = self._handle, None
        if handle is None:
            return 0, ""
        self._finalizer.detach()
        try:
            return _finish(handle, timeout)
        finally:
            self._keep = self._places = None  # nobody reads it any more


class SenderAdapter(_Adapter):
    """A trainer worker.

    load_weights     takes an iterator of (name, tensor) and writes the parameters in place
    params           dict of name -> array or tensor (or (array, dtype)), a function that returns it,
                     or a module as torch's: its parameters, and those of its buffers and attributes
                     that load_weights copies into.  Must stay where they are, or be told to rebind().
                     On a GPU they are probed there.  What was put on its default stream before a
                     call is waited for; when they are computed on another stream, let the default
                     one wait: default_stream().wait_stream(other)
    manifest         what the checkpoint holds: list of (name, shape, dtype), safetensors file or
                     index (see weightbridge.extract)
    object, model    which transfer object and model; not needed when the agent has only one
    rank             hint for people and for choosing a leader; ranks of equal shapes that share a
                     cache_dir keep their maps apart by it (with group= that is known)
    socket           the agent's; else $WEIGHTBRIDGE_SOCKET, else /run/weightbridge/agent.sock
    sender_staging   'None' or 'HostMemory'; must agree with the object's spec
    reload, framework, cache_dir, cache_key, expand_bytes, threads, n_hash, leave_out, tensors_on
                     passed to weightbridge.extract
    group            of the ranks whose load_weights call each other (see weightbridge.extract): all
                     of them call connect()
    source_map       the result of weightbridge.extract, when it is there already: for parameters of
                     the same names, shapes, strides and types, wherever those lay
    allow_unmapped   names and patterns (as the shell's) of parameters that may get nothing of the
                     checkpoint, or True; connect() raises UnmappedError for others.  What else the
                     map leaves out (its `gaps`) is logged as a warning of logger 'weightbridge'
    connect_timeout, reconnect_timeout   seconds to wait for an agent that is not there yet, or went
                     away while it is needed
    """

    _role = _lib.TRAINER

    def __init__(self, load_weights=None, *, sender_staging=None, **options):
        super().__init__(load_weights, sender_staging=sender_staging, **options)
        self._last = None  # transfer that was asked for last

    def send_weights(self, version=None, hold=False, timeout=None, wait_suspended=True):
        """Send the parameters; every trainer worker calls it, with the same version.

        Waits for an earlier transfer, then until this worker's parameters may change (with
        `hold=True` they must stay as they are until `Transfer.release()`, also when the transfer
        is over: an engine that comes later may get them).  Returns a Transfer.
        Raises what the earlier transfer failed with, when no call has told yet, and
        ParametersMoved when parameters are not where they were (see rebind).  After
        WeightBridgeTimeout the transfer may be under way: see wait_released().

        While the object's spec.suspend is true it waits, and says so in the log; with
        `wait_suspended=False` it raises TransferSuspended, so that training may go on.
        """
        number = -1 if version is None else int(version)
        if number < 0 and version is not None:
            raise ValueError(f"version {version} is negative")
        flags = _lib.SEND_HOLD if hold else 0
        end = None if timeout is None else time.monotonic() + timeout
        log = Repeated("send_weights()")
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                return self._send(number, flags, left)
            except TransferSuspended as e:
                if not wait_suspended:
                    raise
                if end is not None and time.monotonic() + _SUSPENDED > end:
                    raise WeightBridgeTimeout(f"not sent after {timeout:.1f} s: {e}",
                                              -errno.ETIMEDOUT) from e
                log.say(str(e))
                time.sleep(_SUSPENDED)

    def _send(self, number, flags, timeout):
        lib, client, handle = _lib.load(), self._client(), ctypes.c_void_p()
        self._check_places()
        waited(timeout, lambda ns, err: lib.wb_client_send(client, number, flags, ns, handle, err))
        self._last = transfer = Transfer(self, handle.value)
        transfer._wait(_lib.RELEASED, timeout, "send_weights()")
        return transfer

    def awaited(self):
        """What the agent says a transfer of this object waits for (a trainer worker that is gone, by its
        rank), or another plan does; '' for nothing.  A send_weights() that waits logs it."""
        return _lib.load().wb_client_progress(self._client()).decode("utf-8", "replace")

    def wait_released(self, timeout=None):
        """Wait until no transfer without a hold reads this worker's parameters, which a send_weights()
        that raised WeightBridgeTimeout leaves open: what is changed before would be sent as a part of
        that version.  Returns at once where none does, also after one that failed."""
        if self._last:
            with contextlib.suppress(TransferFailed):
                self._last._wait(_lib.RELEASED, timeout)


@dataclass(frozen=True)
class Update:
    """New weights are in place."""

    version: int
    transfer: int
    digest: str


class ReceiverAdapter(_Adapter):
    """An inference worker.  Arguments as SenderAdapter, and

    engine               name of the engine (model replica) this worker belongs to
    receiver_staging     'None' or 'HostMemory'; must agree with the object's spec
    before_update_hook   called with the version before the first parameter byte changes; raising
                         aborts the transfer, and poll_requests raises the same
    after_update_hook    called with the version when it is in place (drop prefix caches here); an
                         update that fails half-way (Torn) calls it only when it is repaired
    whole                what to do where load_weights calculates (see weightbridge.whole).  None: the
                         checkpoint comes whole into memory of the host, and goes through load_weights
                         when it is complete, before after_update_hook; that is logged, with the memory
                         it takes.  False: connect() raises NotCopyError.  True: so in any case; with
                         `group` (whose ranks have to do the same) nothing else makes it so
    update_timeout, repair_timeout   seconds to wait for an agent that says nothing during an
                         update, and for the repair of torn weights
    """

    _role = _lib.ROLLOUT

    def __init__(self, load_weights=None, *, engine=None, receiver_staging=None,
                 before_update_hook=None, after_update_hook=None, whole=None, **options):
        if whole and not callable(load_weights):
            raise TypeError("whole=True needs load_weights")
        super().__init__(load_weights, receiver_staging=receiver_staging,
                         engine=engine or os.environ.get("WEIGHTBRIDGE_ENGINE"), **options)
        self._before, self._after = before_update_hook, after_update_hook
        self._poll = _not_connected
        self._may_be_whole, self._whole = whole, None
        self.last_abort = None  # why the last transfer that aborted here did, a sentence
        # The parameters are a mix of two versions: so before_update_hook finds them in a repair,
        # and who caught WeightsTorn.
        self.torn = False

    def connect(self, timeout=None, progress=None):
        super().connect(timeout, progress)
        self._poll = _lib.poll_function()
        return self

    connect.__doc__ = _Adapter.connect.__doc__

    def _extract(self, progress, together):
        from ..probing import NotCopyError

        if self._whole is None and self._may_be_whole:
            self._take_whole()
        if self._whole is not None:
            return super()._extract(progress, together)
        try:
            return super()._extract(progress, together)
        except NotCopyError as e:
            if self._may_be_whole is False or self._group is not None:
                raise
            self._take_whole(e)
        return super()._extract(progress, together)

    def _take_whole(self, not_copy=None):
        """From now on the parameters that are attached are the tensors of the checkpoint.  not_copy: what is raised when
        load_weights cannot be used so."""
        from .. import arrays, manifest
        from ..probing import NotCopyError

        options, now = self._extract_options, self._source.now()
        kind = options.get("framework") or arrays.framework_of(now)
        make = arrays.maker(kind, kind == "numpy" and arrays.has_ml_dtypes(now))
        tensors = manifest.read(self._manifest, options.get("leave_out") or ())
        taken = whole.Whole(self._load_weights, self._source, tensors, make)
        try:
            wrong = [n for n in taken.try_out() if not self._allowed(n)]
            cause = None
        except Exception as e:  # pylint: disable=broad-except
            wrong, cause = [], e
        if wrong:
            cause = NotCopyError(f"load_weights does not make {_some(wrong)} of the checkpoint alone, so that what it loads "
                                 "depends on what was there before", faults=wrong)
        if cause is not None and not_copy is None:
            raise cause
        if cause is not None:
            raise not_copy from cause
        _log.warning("%s so this worker receives the checkpoint whole, in %.1f MiB of memory beside its parameters, and "
                     "load_weights loads it at each update (whole=False: no)",
                     f"{not_copy};" if not_copy else "whole=True:", taken.n_bytes / (1 << 20))
        self._whole, self._load_weights, self._source = taken, taken.keep, places.Source(taken.params)
        self._extract_options = {"framework": kind, "reload": lambda: None,
                                 **{k: options[k] for k in ("threads", "n_hash", "leave_out") if k in options}}

    def acquire_memory(self, params=None, kept=False, timeout=None):
        """As the sender's.  Where the checkpoint comes whole, `params` are what load_weights writes from now on."""
        super().acquire_memory(self._own(params), kept, timeout)

    def rebind(self, params=None, kept=False, timeout=None):
        """As the sender's.  Where the checkpoint comes whole, `params` are what load_weights writes from now on."""
        super().rebind(self._own(params), kept, timeout)

    def _own(self, params):
        if self._whole is None or params is None:
            return params
        self._whole.acquired(places.Source(params))
        return None

    def poll_requests(self):
        """Once a decoding step, on every worker of the engine alike: None, or an Update when new
        weights have been put in place.  Nothing to do costs less than a microsecond; an update
        blocks.  Raises WeightsTorn when the parameters are a mix and were not repaired in time, and
        ParametersMoved, with the transfer aborted, when they are not where they were."""
        rc = self._poll(self._handle)
        return None if rc == 0 else self._steps(rc)

    def update(self, timeout=None):
        """For engines that do not poll: wait for an update.  A collective call: every worker of
        the engine makes it, and it returns the Update of the same call on all.  None at the timeout
        (seconds), when a transfer was aborted (see `last_abort`), or a little before the timeout
        when another worker's has passed.  next_update() goes on."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            update = self.poll_requests()
            if update is None:
                self._idle(end)
                update = self.poll_requests()
            if update is not None or end is not None:
                return update

    def next_update(self, timeout=None):
        """update() until one is in place: transfers that are aborted are not the end of it, their
        trainers may send again.  Collective as update().  Raises WeightBridgeTimeout, with the
        reason of the last that was aborted meanwhile."""
        end = None if timeout is None else time.monotonic() + timeout
        before, self.last_abort = self.last_abort, None
        try:
            while True:
                done = self.update(None if end is None else max(0.0, end - time.monotonic()))
                if done is not None:
                    return done
                if end is not None and time.monotonic() >= end:
                    why = f", the last was aborted: {self.last_abort}" if self.last_abort else ""
                    raise WeightBridgeTimeout(f"no transfer came within {timeout} s{why}", -errno.ETIMEDOUT)
        finally:
            self.last_abort = self.last_abort or before

    def fileno(self):
        """A descriptor that is readable when poll_requests should be called; for select."""
        return check(_lib.load().wb_client_fileno(self._client()), _lib.Error())

    def _close(self, timeout):
        self._poll = _not_connected
        return super()._close(timeout)

    def _idle(self, end):
        lib = _lib.load()
        while True:
            left = SLICE if end is None else min(SLICE, max(0.0, end - time.monotonic()))
            err = _lib.Error()
            rc = lib.wb_client_idle(self._client(), ns(left), err)
            if rc > 0 or (rc == 0 and end is not None and time.monotonic() >= end):
                return
            if rc not in (0, -errno.EINTR):
                check(rc, err)

    def _steps(self, rc):
        client = self._client()
        if rc < 0:
            raise from_code(rc, "this process was forked from the one that attached: a child must "
                            "not poll for its parent" if rc == -errno.EPERM
                            else "only an attached rollout worker polls")
        lib, u, raised = _lib.load(), _lib.Update(), None
        while True:
            try:
                step = self._next_step(lib, client, u)
            except errors.WeightsTorn as e:
                raise e from raised  # a hook that would not have the repair
            if step == _lib.STEP_NONE:
                self.last_abort = u.sentence.decode("utf-8", "replace") or self.last_abort
                if raised is not None:
                    raise raised
                return None
            self.torn = bool(u.torn)
            if step == _lib.STEP_AFTER:
                break
            raised = self._run_hook(lib.wb_client_update_begun, self._before_update, u.version)
        self.torn = False
        update = Update(u.version, u.transfer, u.digest.decode())
        raised = self._run_hook(lib.wb_client_update_resumed, self._after_update, u.version)
        if raised is not None:
            raise raised
        return update

    def _before_update(self, version):
        self._check_places()  # a hook has effects: not for a transfer that cannot be taken
        if self._before is not None:
            self._before(version)
            self._check_places()

    def _after_update(self, version):
        if self._whole is not None:
            self._load_whole(version)
        if self._after is not None:
            self._after(version)

    def _load_whole(self, version):
        self.torn = True  # until it is done
        try:
            self._whole.load()
        except WeightBridgeError:
            raise
        except Exception as e:
            raise WeightBridgeError(f"version {version} is here, and load_weights raised {type(e).__name__} when it was to "
                                    f"load it: {e}.  The parameters may be a mix of two versions: do not serve") from e
        self.torn = False

    def _next_step(self, lib, client, u):
        while True:
            err = _lib.Error()
            rc = lib.wb_client_update_step(client, ns(SLICE), u, err)
            self.torn |= rc == errors.TORN
            if rc not in (-errno.EAGAIN, -errno.EINTR):
                return check(rc, err)

    def _run_hook(self, answer, hook, version):
        """Run a hook and tell the agent; returns what it raised."""
        raised, said = None, b""
        try:
            if hook is not None:
                hook(version)
        except BaseException as e:  # noqa: B902 (the agent must be told first)
            raised, said = e, f"{type(e).__name__}: {e}".encode()[:900]
        err = _lib.Error()
        check(answer(self._handle, -errno.ECANCELED if raised else 0, said, err), err)
        return raised
