# SPDX-License-Identifier: Apache-2.0
"""The engine: has q and k in one parameter, generates, and looks for new weights at every step."""
import time

import numpy as np
import weightbridge

MANIFEST = [("q", (16, 64), "F32"), ("k", (16, 64), "F32")]

params = {"qk": np.zeros((32, 64), np.float32)}


def load_weights(weights):
    for name, tensor in weights:
        row = {"q": 0, "k": 16}[name]
        params["qk"][row:row + 16] = tensor


with weightbridge.ReceiverAdapter(load_weights, params=params, manifest=MANIFEST,
                                  engine="engine-0") as adapter:
    version = 0
    while version < 5:
        time.sleep(0.001)  # a step of inference
        update = adapter.poll_requests()
        if update:
            version = update.version
            assert (params["qk"] == version).all()
            print(f"engine-0 runs version {version}", flush=True)
