# SPDX-License-Identifier: Apache-2.0
"""The trainer: five steps of an optimizer, each of which is sent."""
import torch
import weightbridge
from model import INPUT, MANIFEST, Trained

torch.manual_seed(0)
model = Trained()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with weightbridge.SenderAdapter(model.load_weights, params=dict(model.named_parameters()),
                                manifest=MANIFEST) as adapter:
    for version in range(1, 6):
        optimizer.zero_grad()
        (model(INPUT) - INPUT).square().mean().backward()
        optimizer.step()  # in place: the parameters stay where they are
        adapter.send_weights(version).wait()
        print(f"sent version {version}, which says {model(INPUT).abs().mean():.4f}", flush=True)
