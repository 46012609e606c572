# SPDX-License-Identifier: Apache-2.0
"""The engine: computes with what it has, and takes new weights between two steps."""
import torch
import weightbridge
from model import INPUT, MANIFEST, Served

model = Served()

with torch.inference_mode(), \
        weightbridge.ReceiverAdapter(model.load_weights, params=dict(model.named_parameters()),
                                     manifest=MANIFEST, engine="engine-0") as adapter:
    version = 0
    while version < 5:
        model(INPUT)  # a step of inference
        update = adapter.poll_requests()
        if update:
            version = update.version
            said = model(INPUT).abs().mean()
            print(f"engine-0 runs version {version}, which says {said:.4f}", flush=True)
