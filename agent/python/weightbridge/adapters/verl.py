# SPDX-License-Identifier: Apache-2.0
"""verl's checkpoint engine "weightbridge".  Tested with verl 0.9.1 on a CPU.

    actor_rollout_ref.rollout.checkpoint_engine:
      backend: weightbridge
      custom_backend_module: weightbridge.adapters.verl     # to import it is what registers the backend
      engine_kwargs: {weightbridge: {manifest: /models/qwen3}}

verl gives a checkpoint engine no module: on every rank of the trainer it gets a generator of whole tensors
(get_per_tensor_param), which verl gathers, and on a rollout it gives whole tensors to verl's server adapter.  So:

    trainer    each rank goes through the generator, since making a tensor is collective, and keeps its share of the
               tensors in memory of the CPU, a part of the checkpoint of about 1/ranks; all ranks send
    rollout    each CheckpointEngineWorker receives the checkpoint whole into memory of the CPU, and when a version has
               come whole gives it to the server adapter, which loads it as it does for verl's other backends.  An update
               that was not committed raises before the server adapter hears of one

The parameters that a rollout computes with are in the processes of the inference engine, not in CheckpointEngineWorker.
With vLLM these receive themselves: `inside_vllm: true` here, and what weightbridge.adapters.verl_vllm says.

The version is verl's global step.  Each node's workers find their agent by $WEIGHTBRIDGE_SOCKET or its default; an engine
is one replica of verl's, named after its worker group.
"""

import logging
import os
import time

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from .. import manifest as manifests
from ..errors import WeightBridgeError
from . import ReceiverAdapter, SenderAdapter
from .streams import Kept, share

NAME = "weightbridge"
STEP = "weightbridge.step"  # what vLLM's workers that receive themselves get in place of tensors: the version, -1 = the next

_log = logging.getLogger("weightbridge")


@CheckpointEngineRegistry.register(NAME)
class Engine(CheckpointEngine):
    """What verl makes in each worker.

    bucket_size, is_master   verl's; not used
    manifest       folder of the checkpoint that the rollouts load, the same on all workers: its names and shapes are
                   those of get_per_tensor_param, its types those that are sent (FP32 masters are rounded to nearest)
    inside_vllm    the rollouts' vLLM has the extension of weightbridge.adapters.verl_vllm
    timeout        seconds for the plan, for a transfer and for an update each; None: as long as it takes
    socket, object, leave_out   the adapters'"""

    def __init__(self, bucket_size=0, is_master=False, *, manifest, inside_vllm=False, timeout=600.0, socket=None,
                 object=None, leave_out=()):
        if not os.path.isdir(manifest):
            raise WeightBridgeError(f"{manifest} is no folder: say in engine_kwargs.{NAME}.manifest where the checkpoint's "
                                    "files are")
        self._tensors = manifests.read(manifest, leave_out)
        self._shapes = {n: tuple(shape) for n, shape, _ in self._tensors}
        self._inside, self._timeout = inside_vllm, timeout
        self._options = {"manifest": self._tensors, "socket": socket, "object": object}
        self._rank, self._n, self._engine = 0, 1, None
        self._adapter, self._kept = None, Kept(self._tensors, ())

    # ---- verl's four steps around an update ----

    def prepare(self):
        """(rank, worker group) of this worker, as verl's worker groups set them."""
        return int(os.environ.get("RANK", "0")), os.environ.get("WG_PREFIX", "")

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        """No groups are built: each worker is told who it is."""
        def told(said, n, is_rollout):
            return {"rank": [rank for rank, _ in said], "n": [n] * n,
                    "engine": [group.replace("_", "-") if is_rollout else None for _, group in said]}

        n = actor_wg_world_size
        return told(metadata[:n], n, False), told(metadata[n:], rollout_world_size, True)

    def init_process_group(self, rank, n, engine):
        if self._adapter is None:
            self._rank, self._n, self._engine = rank, n, engine

    def finalize(self):
        """The adapter stays connected: the next update begins with no set-up."""

    # ---- a trainer's rank ----

    async def send_weights(self, weights, global_steps=None):
        """Sends what the generator gives; when it returns every replica has it.  Raises TransferFailed otherwise."""
        self._keep(weights)
        if self._adapter is None:
            self._connect(SenderAdapter(self._kept.fill, params=self._kept.tensors, rank=self._rank, **self._options))
        begin = time.monotonic()
        self._adapter.send_weights(global_steps, timeout=self._timeout).wait(self._timeout)
        return {"weightbridge/transfer_s": time.monotonic() - begin}

    def _keep(self, weights):
        if not self._kept.tensors:
            self._kept = Kept(self._tensors, share(self._tensors, self._rank, self._n))
        self._kept.take(weights, self._adapter, self._timeout)

    # ---- a rollout's worker ----

    def receive_weights(self, global_steps=None):
        """Waits for the version, and returns an iterator over all tensors; where vLLM receives itself, over the version."""
        if not self._inside:
            if self._adapter is None:
                self._kept = Kept(self._tensors, self._tensors)
                self._connect(ReceiverAdapter(self._kept.fill, params=self._kept.tensors, rank=self._rank, engine=self._engine,
                                              **self._options))
            wait(self._adapter, global_steps, self._timeout)
        return self._stream({STEP: torch.tensor([-1 if global_steps is None else global_steps])} if self._inside
                            else self._kept.tensors)

    @staticmethod
    async def _stream(tensors):
        for item in tensors.items():
            yield item

    # ---- both ----

    def _connect(self, adapter):
        adapter.connect(self._timeout)
        self._adapter = adapter


def wait(receiver, version, timeout):
    """Updates until `version` is in place (None: the next one): who joins late is fed an older one first."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        done = receiver.next_update(None if end is None else max(0.0, end - time.monotonic()))
        if version is None or done.version == version:
            return done
        _log.warning("version %s came, and version %s is waited for", done.version, version)
