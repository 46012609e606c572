# SPDX-License-Identifier: Apache-2.0
"""A transfer, as the trainer worker sees it that asked for it."""

import ctypes
import errno
import weakref

from . import _lib
from .calls import check, waited
from .progress import Repeated

_STATES = {_lib.ASKED: "asked", _lib.STARTED: "started", _lib.RELEASED: "released",
           _lib.FINAL: "final"}


class Transfer:
    """One transfer, as this trainer worker sees it."""

    def __init__(self, adapter, handle):
        self._adapter = adapter
        self._handle = handle
        self._finalizer = weakref.finalize(self, _lib.load().wb_client_transfer_free, handle)
        self._finalizer.atexit = False

    def _info(self):
        info = _lib.TransferInfo()
        _lib.load().wb_client_transfer_get(self._handle, info)
        return info

    @property
    def transfer(self):
        """Number of the transfer, 0 until it has started."""
        return self._info().transfer

    @property
    def version(self):
        """The version sent; None until the agent has chosen one (send_weights without version)."""
        version = self._info().version
        return None if version < 0 else version

    @property
    def state(self):
        """'asked', 'started', 'released' (this worker's parameters may change), 'final', 'failed',
        'superseded' (overlap: Supersede; every engine dropped it for the next version)."""
        info = self._info()
        if info.code < 0:
            return "failed"
        if info.state == _lib.FINAL:
            engines = self.engines.values()
            if "Superseded" in engines and "Committed" not in engines:
                return "superseded"
        return _STATES[info.state]

    @property
    def sentence(self):
        """The cause of a failure, or what the agent last said about this transfer."""
        return self._info().sentence.decode("utf-8", "replace")

    @property
    def seconds(self):
        """Duration so far, as the agent measured it."""
        return self._info().seconds

    @property
    def engines(self):
        """Engine name -> its state in this transfer, as far as known.  A transfer that some engines
        have succeeded for its trainers, though others be Torn: those are here and in `sentence`."""
        lib, out = _lib.load(), {}
        name, state = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(256)
        while lib.wb_client_transfer_engine(self._handle, len(out), name, len(name), state,
                                            len(state)) == 0:
            out[name.value.decode()] = state.value.decode()
        return out

    def wait(self, timeout=None):
        """Wait until every engine has an outcome; returns self.  Raises TransferFailed when no
        engine has the version (an engine lost is none, unless all were; see `engines`): as
        TransferAborted, WeightsTorn or OutcomeUnknown, which say what the engines have instead; and
        WeightBridgeTimeout at the timeout (seconds)."""
        self._wait(_lib.FINAL, timeout)
        return self

    def release(self):
        """End of a hold: when it returns, nobody reads this worker's parameters any more."""
        while True:
            err = _lib.Error()
            rc = _lib.load().wb_client_release(self._handle, err)
            if rc != -errno.EINTR:
                break
        check(rc, err)

    def _wait(self, state, timeout, call="Transfer.wait()"):
        lib, log = _lib.load(), Repeated(call)

        def between():
            awaited = self._adapter.awaited() if self.state == "asked" else ""
            if awaited:
                log.say(f"version {self._info().version} is not sent yet: {awaited}")

        waited(timeout, lambda ns, err: lib.wb_client_transfer_wait(self._handle, state, ns, err), between)

    def __repr__(self):
        info, engines = self._info(), list(self.engines.values())
        short = [f", {engines.count(state)} of {len(engines)} {state}" for state in ("Torn", "Unknown")
                 if state in engines]
        return (f"<Transfer {info.transfer} version {info.version} "
                f"{'failed' if info.code < 0 else _STATES[info.state]}{''.join(short)}>")
