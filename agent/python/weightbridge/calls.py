# SPDX-License-Identifier: Apache-2.0
"""Calls of the library that may wait: their timeouts, and their errors as exceptions."""

import errno
import re
import time

from . import _lib
from .errors import WeightBridgeTimeout, from_code

SLICE = 1.0  # s; waits come back this often, so that Ctrl-C is never far away


def ns(seconds):
    return _lib.FOREVER if seconds is None else max(0, int(seconds * 1e9))


def check(rc, err):
    if rc < 0:
        raise from_code(rc, err.text)
    return rc


def waited(timeout, call, between=None):
    """Run `call(timeout_ns, err)` in slices until it is done, or raise at the timeout; `between()` is
    called after each slice that was too short."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE if end is None else min(SLICE, max(0.0, end - time.monotonic()))
        err = _lib.Error()
        rc = call(ns(left), err)
        if rc in (-errno.EINTR, -errno.EAGAIN):
            continue
        if rc != -errno.ETIMEDOUT:
            return check(rc, err)
        if end is not None and time.monotonic() >= end:
            said = re.sub(r"(within|after) [\d.]+ s", rf"\1 {timeout:.1f} s", err.text, count=1)
            raise WeightBridgeTimeout(said, rc)
        if between:
            between()
