# SPDX-License-Identifier: Apache-2.0
"""vLLM's workers receive themselves under verl, where the rollout's parameters are.  Tested with verl 0.9.1 and vLLM 0.32.0
on its CPU backend.

    actor_rollout_ref.rollout:
      checkpoint_engine:
        backend: weightbridge
        custom_backend_module: weightbridge.adapters.verl
        engine_kwargs: {weightbridge: {manifest: /models/qwen3, inside_vllm: true}}
      engine_kwargs:
        vllm:
          worker_extension_cls: weightbridge.adapters.verl_vllm.Extension
          weight_transfer_config: {backend: weightbridge}
          additional_config: {weightbridge: {manifest: /models/qwen3}}      # fields of weightbridge.adapters.vllm.Init

Extension is verl's own extension of vLLM's workers, but for the method by which verl changes weights.  That one runs the
weight transfer engine of weightbridge.adapters.vllm, which says what it refuses, until the version is there that verl's
stream names in place of tensors: a replica that was started again is brought an older one first.  Its `timeout` (600 s) is
for the plan and for the version.  Caches are cleared by verl afterwards.

The engine is called after the replica (replica-0) unless additional_config says otherwise."""

import os
import time

from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ..errors import WeightBridgeError
from . import vllm
from .verl import STEP


class Extension(vLLMColocateWorkerExtension):
    """For vLLM's worker_extension_cls."""

    def update_weights_from_ipc(self, peft_config=None, base_sync_done=False, use_shm=False):
        came = {}
        BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=self.device, use_shm=use_shm).receive_weights(
            lambda weights, is_last: came.update((n, int(t.flatten()[0]) if n == STEP else None) for n, t in weights))
        if peft_config:
            raise WeightBridgeError("LoRA adapters are not transferred: merge them (model.lora.merge)")
        if list(came) != [STEP]:
            raise WeightBridgeError(f"{next(iter(came), 'nothing')} came by verl's own stream: say inside_vllm in "
                                    "checkpoint_engine.engine_kwargs.weightbridge")
        self._weightbridge_update(came[STEP])

    def _weightbridge_update(self, step):
        """Updates until that version is in place, -1: the next one."""
        init = {"timeout": 600.0, "engine": f"replica-{os.environ.get('VERL_REPLICA_RANK', '0')}"}
        init |= (getattr(self.model_runner.vllm_config, "additional_config", None) or {}).get("weightbridge", {})
        if getattr(self.weight_transfer_engine, "receiver", None) is None:
            self.init_weight_transfer_engine(init)
        end = None if init["timeout"] is None else time.monotonic() + init["timeout"]
        version = None
        while version is None or (step >= 0 and version != step):
            self.start_weight_update()
            self.update_weights({"timeout": None if end is None else max(0.0, end - time.monotonic())})
            self.finish_weight_update()
            version = self.weightbridge_version()

    def weightbridge_version(self):
        """The version that this worker's last update brought, None before the first."""
        return vllm.Extension.weightbridge_version(self)
