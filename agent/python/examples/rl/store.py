# SPDX-License-Identifier: Apache-2.0
"""How batches come from the engine to the trainers: by the key-value store that torch.distributed has anyway."""
import datetime
import io

import torch
import torch.distributed as dist

WAIT = datetime.timedelta(seconds=300)


def connect(address, serve=False):
    """`serve`: this process is the store itself."""
    host, _, port = address.rpartition(":")
    return dist.TCPStore(host, int(port), is_master=serve, wait_for_workers=False, timeout=WAIT)


class Batches:
    """Batches have numbers from 0.  The engine puts them, at most `ahead` more than the trainers have taken."""

    def __init__(self, store, readers, ahead):
        self._store, self._readers, self._ahead = store, readers, ahead

    def put(self, number, batch):
        data = io.BytesIO()
        torch.save(batch, data)
        self._store.set(f"batch {number}", data.getvalue())

    def is_room(self, number):
        """May the engine begin batch `number`?"""
        return number < self._store.add("taken", 0) // self._readers + self._ahead

    def take(self, number):
        """Every trainer takes every batch.  Waits until it is there."""
        data = self._store.get(f"batch {number}")
        if self._store.add("taken", 1) % self._readers == 0 and number:
            self._store.delete_key(f"batch {number - 1}")  # all have read that one
        return torch.load(io.BytesIO(data))
