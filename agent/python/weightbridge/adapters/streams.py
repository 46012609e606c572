# SPDX-License-Identifier: Apache-2.0
"""Trainers that give whole tensors one after another, and no module: what each rank keeps of them, to be sent from there.

To make a tensor whole is collective in such trainers, so that every rank goes through all of them.  Each keeps its share
in memory of the CPU, in the types of the engines' checkpoint, so that all ranks send.

Needs torch.
"""

import logging

import torch

from .. import arrays
from ..errors import WeightBridgeError, WeightBridgeTimeout

_log = logging.getLogger("weightbridge")


class Kept:
    """tensors: name -> memory of the CPU, for an adapter's `params`, with `fill` for its load_weights.

    manifest   (name, shape, dtype) of all tensors of the checkpoint
    mine       those of them that are kept here"""

    def __init__(self, manifest, mine):
        make = arrays.maker("torch", False)
        self._shapes = {n: tuple(shape) for n, shape, _ in manifest}
        self.tensors = {n: torch.empty(shape, dtype=make.dtypes[kind]) for n, shape, kind in mine}
        self._told = False

    def fill(self, weights):
        for name, tensor in weights:
            if name in self.tensors:
                self.tensors[name].copy_(tensor)

    def take(self, weights, adapter=None, timeout=None):
        """Goes through all of `weights`, an iterable of (name, tensor), and copies what is kept here; FP32 masters are
        rounded to nearest.  Raises WeightBridgeError when tensors of the checkpoint do not come, or in another shape: on all
        ranks alike, and after the last tensor, since the others wait in collective calls.  adapter: the SenderAdapter that
        may still send the version before from here; where it does so for `timeout` seconds more, nothing is copied, and that
        is raised."""
        late = _late(adapter, timeout)
        seen, wrong, more = set(), [], []
        for name, tensor in weights:
            shape = self._shapes.get(name)
            if shape is None:
                more.append(name)
            elif tuple(tensor.shape) != shape:
                wrong.append(f"tensor {name} is {list(tensor.shape)}, the checkpoint has {list(shape)}")
            else:
                seen.add(name)
                if name in self.tensors and not late:
                    self.tensors[name].copy_(tensor)
        if late:
            raise late
        wrong += [f"the trainer does not export {n}" for n in self._shapes if n not in seen and not wrong]
        if wrong:
            raise WeightBridgeError(wrong[0] + (f", and {len(wrong) - 1} more" if wrong[1:] else ""))
        if more and not self._told:
            _log.warning("not sent, as the rollouts' checkpoint does not have them: %s", ", ".join(more[:8]))
        self._told = True


def _late(adapter, timeout):
    """None, or the error of a version that was given up at its timeout and is still read."""
    try:
        if adapter is not None:
            adapter.wait_released(timeout)
    except WeightBridgeTimeout as e:
        return WeightBridgeTimeout(f"the version before is still being sent, and was not changed: {e}", e.code)
    return None


def share(tensors, rank, n):
    """The tensors of a manifest that one of n ranks sends: all get about the same number of bytes, whole tensors each."""
    size = arrays.maker("torch", False).dtypes
    loads, mine = [0] * n, []
    for entry in sorted(tensors, key=lambda t: (-_count(t[1]) * size[t[2]].itemsize, t[0])):
        least = loads.index(min(loads))
        loads[least] += _count(entry[1]) * size[entry[2]].itemsize
        if least == rank:
            mine.append(entry)
    return mine


def _count(shape):
    n = 1
    for k in shape:
        n *= k
    return n
