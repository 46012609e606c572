# SPDX-License-Identifier: Apache-2.0
"""Errors, each with a sentence that says what failed and what was awaited."""

import errno

VERSION = -4001
ABORTED = -4005
TORN = -4006
NOT_COPY = -4007


class WeightBridgeError(Exception):
    """Something failed; `code` is a negative errno or a code of weightbridge/error.h."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


class TransferAborted(WeightBridgeError):
    """The transfer ended without effect: the old weights are intact, byte for byte."""


class WeightsTorn(WeightBridgeError):
    """This worker's parameters are a mix of two versions and were not repaired: do not serve."""


class WeightBridgeTimeout(WeightBridgeError, TimeoutError):
    """A wait ended at its bound; the sentence names what was awaited."""


def from_code(code, message):
    """The exception of an error code."""
    if code == ABORTED:
        return TransferAborted(message, code)
    if code == TORN:
        return WeightsTorn(message, code)
    if code == -errno.ETIMEDOUT:
        return WeightBridgeTimeout(message, code)
    return WeightBridgeError(message, code)
