# SPDX-License-Identifier: Apache-2.0
"""The trainer: keeps q and k apart, makes new weights five times, and sends them."""
import time

import numpy as np
import weightbridge

# What the checkpoint holds.  Both sides give the same list.
MANIFEST = [("q", (16, 64), "F32"), ("k", (16, 64), "F32")]

params = {"q": np.zeros((16, 64), np.float32), "k": np.zeros((16, 64), np.float32)}


def load_weights(weights):
    """As engines have it: names and tensors of the checkpoint, written into the parameters."""
    for name, tensor in weights:
        params[name][:] = tensor


with weightbridge.SenderAdapter(load_weights, params=params, manifest=MANIFEST) as adapter:
    for version in range(1, 6):
        for p in params.values():
            p += 1  # a step of training, in place
        transfer = adapter.send_weights(version)  # returns when p may change again
        transfer.wait()  # until all engines have it; training could go on instead
        print(f"sent version {version}: {transfer.engines}", flush=True)
        time.sleep(0.1)
