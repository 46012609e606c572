# SPDX-License-Identifier: Apache-2.0
"""Errors, each with a sentence that says what failed and what was awaited."""

import errno

VERSION = -4001
ABORTED = -4005
TORN = -4006
NOT_COPY = -4007
UNKNOWN = -4008


class WeightBridgeError(Exception):
    """Something failed; `code` is a negative errno or a code of weightbridge/error.h."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


class TransferFailed(WeightBridgeError):
    """A transfer brought its version to no engine.  The next send_weights puts that right.  What the
    engines have now is one of the three below, and is the same for all who are told."""


class TransferAborted(TransferFailed):
    """The transfer ended without effect: every engine has its old weights, byte for byte."""


class OutcomeUnknown(TransferFailed):
    """Who led the transfer, or the engine that the sentence names, went before the end was told."""


class WeightsTorn(TransferFailed):
    """Parameters are a mix of two versions.  Raised by poll_requests they are this worker's own and
    were not repaired: do not serve.  Raised by a trainer's call they are those of the engine that the
    sentence names, which does not serve until the next transfer; the trainer's own are untouched."""


class TransferSuspended(WeightBridgeError):
    """The object's spec.suspend is true: no transfer begins.  Nothing was sent, nothing changed."""


class ParametersMoved(WeightBridgeError):
    """Parameters are not where they were when this worker attached.  `names`: which."""

    def __init__(self, message, code=-errno.EFAULT, names=()):  # pickle gives the message alone
        super().__init__(message, code)
        self.names = names


class UnmappedError(WeightBridgeError):
    """Parameters that get nothing of the checkpoint.  `names`: which."""

    def __init__(self, message, code=-errno.EINVAL, names=()):  # pickle gives the message alone
        super().__init__(message, code)
        self.names = names


class WeightBridgeTimeout(WeightBridgeError, TimeoutError):
    """A wait ended at its bound; the sentence names what was awaited."""


def from_code(code, message):
    """The exception of an error code."""
    if code == ABORTED:
        return TransferAborted(message, code)
    if code == TORN:
        return WeightsTorn(message, code)
    if code == UNKNOWN:
        return OutcomeUnknown(message, code)
    if code == -errno.ECANCELED:
        return TransferSuspended(message, code)
    if code == -errno.ETIMEDOUT:
        return WeightBridgeTimeout(message, code)
    return WeightBridgeError(message, code)
