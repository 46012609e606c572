# SPDX-License-Identifier: Apache-2.0
"""WeightBridge: moves new weights from trainers to inference engines.

    SenderAdapter, ReceiverAdapter   what a trainer and an inference worker call
    empty, SharedMemoryPool          parameter memory that the agent can map: faster
"""

from .adapters import ReceiverAdapter, SenderAdapter, Transfer, Update
from .errors import TransferAborted, WeightBridgeError, WeightBridgeTimeout, WeightsTorn
from .memory import SharedMemoryPool, empty

__all__ = ["ReceiverAdapter", "SenderAdapter", "SharedMemoryPool", "Transfer", "TransferAborted",
           "Update", "WeightBridgeError", "WeightBridgeTimeout", "WeightsTorn", "empty"]
