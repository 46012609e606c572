# SPDX-License-Identifier: Apache-2.0
"""How weights come from the trainers to the engine.  Two ways with the same calls: WeightBridge, and the broadcast that
many RL loops are built on, to compare.  A trainer's `send` returns when its parameters may change again."""
import os
import time

import torch
import torch.distributed as dist


class Bridge:
    """Of a trainer.  `wait`: until the engine computes with the new version."""

    def __init__(self, model, rank, wait):
        from weightbridge.adapters import fsdp2

        self._wait = wait
        self._sender = fsdp2.sender(model, dtype=torch.bfloat16, rank=rank).connect()

    def send(self, version):
        transfer = self._sender.send_weights(version)
        if self._wait:
            transfer.wait()

    def close(self):
        self._sender.close()


class BridgeEngine:
    """Of the engine.  stalls: seconds that it stood still, one for each update."""

    def __init__(self, model):
        from weightbridge.adapters import transformers

        self.version, self.stalls = 0, []
        self._receiver = transformers.receiver(model, engine=os.environ.get("WEIGHTBRIDGE_ENGINE", "engine-0"),
                                               before_update_hook=self._begin, after_update_hook=self._end).connect()

    def _begin(self, _version):
        self._begun = time.monotonic()

    def _end(self, version):  # a cache of prefixes that old weights computed would be dropped here
        self.stalls.append(time.monotonic() - self._begun)
        self.version = version

    def poll(self):
        """Between two tokens: takes a new version when there is one."""
        self._receiver.poll_requests()

    def wait(self):
        """Waits for a new version."""
        self._receiver.update()

    def close(self):
        self._receiver.close()


class Broadcast:
    """Of a trainer: all ranks gather the parameters, and the first broadcasts them to a group that the engine is in."""

    def __init__(self, model, rank, store, group):
        self._model, self._rank, self._store, self._group = model, rank, store, group

    def send(self, version):
        full = [p.full_tensor().to(torch.bfloat16).view(-1) for p in self._model.state_dict().values()]
        if self._rank == 0:
            self._store.set("version", str(version))
            dist.broadcast(torch.cat(full), 0, group=self._group)

    def close(self):
        pass


class BroadcastEngine:
    def __init__(self, model, store, group):
        self.version, self.stalls = 0, []
        self._params, self._store, self._group = list(model.state_dict().values()), store, group
        self._buffer = torch.empty(sum(p.numel() for p in self._params), dtype=torch.bfloat16)

    def poll(self):
        if int(self._store.get("version")) == self.version:
            return
        begun = time.monotonic()
        dist.broadcast(self._buffer, 0, group=self._group)
        with torch.inference_mode():
            for p, new in zip(self._params, self._buffer.split([p.numel() for p in self._params])):
                p.copy_(new.view_as(p))
        self.version += 1  # the store may say a later one already, whose broadcast comes next
        self.stalls.append(time.monotonic() - begun)

    def wait(self):
        before = self.version
        while self.version == before:
            time.sleep(0.0005)
            self.poll()

    def close(self):
        dist.destroy_process_group()  # its threads must have ended before the process does
