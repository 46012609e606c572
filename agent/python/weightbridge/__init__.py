# SPDX-License-Identifier: Apache-2.0
"""WeightBridge: moves new weights from trainers to inference engines.

    extract                          which checkpoint element each parameter element is a copy of
    SenderAdapter, ReceiverAdapter   what a trainer and an inference worker call
    empty, share, SharedMemoryPool   parameter memory that the agent can map: faster
"""

from .adapters import ReceiverAdapter, SenderAdapter, Transfer, Update
from .errors import (OutcomeUnknown, ParametersMoved, TransferAborted, TransferFailed,
                     TransferSuspended, UnmappedError, WeightBridgeError, WeightBridgeTimeout, WeightsTorn)
from .memory import SharedMemoryPool, empty, share
from .probing import LoadWeightsError, NotCopyError, extract
from .sourcemap import SourceMap

__all__ = ["LoadWeightsError", "NotCopyError", "OutcomeUnknown", "ParametersMoved",
           "ReceiverAdapter", "SenderAdapter", "SharedMemoryPool", "SourceMap", "Transfer",
           "TransferAborted", "TransferFailed", "TransferSuspended", "UnmappedError", "Update",
           "WeightBridgeError", "WeightBridgeTimeout", "WeightsTorn", "empty", "extract", "share"]
