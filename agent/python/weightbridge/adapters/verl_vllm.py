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
weight transfer engine of weightbridge.adapters.vllm, which says what it refuses; verl's stream of tensors, which is empty
then, is read to its end, since verl waits for it.  Caches are cleared by verl afterwards.

The engine is called after the replica (replica-0) unless additional_config says otherwise."""

import os

from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ..errors import WeightBridgeError
from . import vllm


class Extension(vLLMColocateWorkerExtension):
    """For vLLM's worker_extension_cls."""

    def update_weights_from_ipc(self, peft_config=None, base_sync_done=False, use_shm=False):
        stray = []
        try:
            if peft_config:
                raise WeightBridgeError("LoRA adapters are not transferred: merge them (model.lora.merge)")
            self._weightbridge_update()
        finally:
            BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=self.device, use_shm=use_shm).receive_weights(
                lambda weights, is_last: stray.extend(name for name, _ in weights))
        if stray:
            raise WeightBridgeError(f"{stray[0]} came by verl's own stream: say inside_vllm in "
                                    "checkpoint_engine.engine_kwargs.weightbridge")

    def _weightbridge_update(self):
        init = dict((getattr(self.model_runner.vllm_config, "additional_config", None) or {}).get("weightbridge", {}))
        if getattr(self.weight_transfer_engine, "receiver", None) is None:
            init.setdefault("engine", f"replica-{os.environ.get('VERL_REPLICA_RANK', '0')}")
            self.init_weight_transfer_engine(init)
        self.start_weight_update()
        self.update_weights({"timeout": init.get("timeout")})
        self.finish_weight_update()

    def weightbridge_version(self):
        """The version that this worker's last update brought, None before the first."""
        return vllm.Extension.weightbridge_version(self)
