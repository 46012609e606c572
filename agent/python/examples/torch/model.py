# SPDX-License-Identifier: Apache-2.0
"""A small model, as its checkpoint, its trainer and its engine have it."""
import torch

WIDTH = 64
MANIFEST = [("gate.weight", (128, WIDTH), "F32"), ("up.weight", (128, WIDTH), "F32"),
            ("down.weight", (WIDTH, 128), "F32")]
INPUT = torch.linspace(-1, 1, 32 * WIDTH).reshape(32, WIDTH)


class Trained(torch.nn.Module):
    """Each matrix by itself, as in the checkpoint."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, 128, bias=False)
        self.up = torch.nn.Linear(WIDTH, 128, bias=False)
        self.down = torch.nn.Linear(128, WIDTH, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    def load_weights(self, weights):
        own = dict(self.named_parameters())
        for name, tensor in weights:
            own[name].data.copy_(tensor)


class Served(torch.nn.Module):
    """Gate and up in one matrix, as inference engines fuse them."""

    def __init__(self):
        super().__init__()
        self.gate_up = torch.nn.Linear(WIDTH, 256, bias=False)
        self.down = torch.nn.Linear(128, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(torch.nn.functional.silu(gate) * up)

    def load_weights(self, weights):
        for name, tensor in weights:
            if name == "gate.weight":
                self.gate_up.weight.data[:128].copy_(tensor)
            elif name == "up.weight":
                self.gate_up.weight.data[128:].copy_(tensor)
            else:
                self.down.weight.data.copy_(tensor)
