# SPDX-License-Identifier: Apache-2.0
"""The workers of verl_job.py: verl's own, but for what needs a GPU to be built."""
import os
import types

import verl_cpu  # noqa: F401  (first)
from verl.checkpoint_engine.base import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.import_utils import import_external_libs
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine_workers import ActorRolloutRefWorker

import frameworks


class Trainer(ActorRolloutRefWorker):
    """update_weights and execute_checkpoint_engine are verl's, and so is what exports the tensors; the model that it
    exports is FSDP2 on a CPU."""

    def __init__(self, said, config):
        Worker.__init__(self)  # pylint: disable=super-init-not-called,non-parent-init-called
        self.side = frameworks.FSDP2({**said, "rank": self.rank, "n": self.world_size})
        engine = FSDPEngineWithLMHead.__new__(FSDPEngineWithLMHead)
        engine.module = self.side.model
        engine.model_config = types.SimpleNamespace(lora={}, hf_config=self.side.model.config)
        engine._uses_fsdp2_cpu_offload_policy = engine._is_offload_param = engine._qat_enabled = False
        self.actor = types.SimpleNamespace(engine=engine)
        self.config = types.SimpleNamespace(rollout=types.SimpleNamespace(checkpoint_engine=config))
        import_external_libs(config.custom_backend_module)
        self.checkpoint_engine = CheckpointEngineRegistry.new(
            config.backend, is_master=self.rank == 0, bucket_size=config.update_weights_bucket_megabytes << 20,
            **config.engine_kwargs[config.backend])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def step(self, folder):
        """A step of AdamW and an export by Transformers' own means; the bytes that this rank keeps for transfers."""
        self.side.step()
        self.side.export(folder)
        return sum(t.nbytes for t in self.checkpoint_engine._kept.tensors.values())


class Server:
    """Where a server adapter hands tensors to an engine, this one keeps them."""

    replica_rank, is_leader_rank, got, steps = 0, True, {}, None

    async def update_weights(self, weights, global_steps=None, wire_format=""):
        assert wire_format == "named_tensors", wire_format
        self.got, self.steps = {n: frameworks.raw(t) async for n, t in weights}, global_steps


class Rollout(CheckpointEngineWorker):
    """verl's worker, which has no model itself."""

    def __init__(self, rollout_config):
        self.last = {}
        super().__init__(rollout_config, None, Server())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def compare(self, folder, version):
        """What came against the checkpoint: (tensors, bytes, tensors as before)."""
        got, want = self.server_adapter.got, {n: frameworks.raw(t) for n, t in frameworks.read(folder)}
        assert self.server_adapter.steps == version
        wrong = [n for n in want if want[n] != got.get(n)]
        assert not wrong and want.keys() == got.keys(), f"{len(wrong)} of {len(want)} differ: {wrong[:4]}"
        same = sum(self.last.get(n) == b for n, b in got.items())
        self.last = got
        return len(got), sum(map(len, got.values())), same

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def places(self):
        return os.getpid(), [(n, t.data_ptr()) for n, t in self.checkpoint_engine._kept.tensors.items()]
