# SPDX-License-Identifier: Apache-2.0
"""vLLM as an engine, through its own interface for weight transfer.  Tested with vLLM 0.32.0 on its CPU backend.

    from weightbridge.adapters import vllm as wb
    llm = LLM(model=folder, weight_transfer_config=WeightTransferConfig(backend=wb.NAME),
              worker_extension_cls=wb.EXTENSION)
    wb.connect(llm, engine="e0")        # waits until trainers and all other engines have connected
    version = wb.update(llm)            # waits for a transfer; then the engine computes with it

connect() and update() are vLLM's own four calls (init_weight_transfer_engine, start_weight_update, update_weights,
finish_weight_update) with plain dicts; nothing is pickled, and no development mode is needed.

What vLLM computes with is not what its loader writes: the CPU backend packs the matrices of linear layers into memory
of its kernels and lets go of the parameters, so that bytes put into these would change nothing.  Each worker therefore
receives the tensors of the checkpoint whole, beside its model, and when an update is complete gives them to vLLM's own
loader and what prepares weights for kernels (its layerwise reload).  That costs a copy of the checkpoint a worker, and
the engine has its old weights until an update is there.  An update that was not committed leaves the model untouched.

Refused by name: devices other than the CPU, whose memory cannot be attached; and experts on the CPU backend, whose
weights this version of vLLM does not load anew (its own reload_weights of the very checkpoint it was started from
changes what such a model says).
"""

import os
import time
from dataclasses import dataclass, replace

import torch
from vllm.distributed.weight_transfer.base import (WeightTransferEngine, WeightTransferInitInfo,
                                                   WeightTransferUpdateInfo)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from .. import arrays
from .. import manifest as manifests
from ..errors import WeightBridgeError
from . import ReceiverAdapter

NAME = "weightbridge"
EXTENSION = "weightbridge.adapters.vllm.Extension"


@dataclass
class Init(WeightTransferInitInfo):
    """engine, socket, object: ReceiverAdapter's.  manifest: folder of the checkpoint; None: the one vLLM loaded.
    timeout: seconds for the plan, None: as long as it takes.  leave_out: names or patterns not transferred."""

    engine: "str | None" = None
    socket: "str | None" = None
    object: "str | None" = None
    manifest: "str | None" = None
    timeout: "float | None" = None
    leave_out: "list[str] | None" = None


@dataclass
class Wait(WeightTransferUpdateInfo):
    """timeout: seconds to wait for a transfer; None: as long as it takes.  version: what comes before it is not the one that
    is waited for (an engine that joins late is given what the others have first); None: any is."""

    timeout: "float | None" = None
    version: "int | None" = None


class Engine(WeightTransferEngine):
    """What vLLM makes in each worker."""

    init_info_cls, update_info_cls = Init, Wait
    supports_draft_weight_update = False

    def __init__(self, config, vllm_config, device, model):
        super().__init__(config, vllm_config, device, model)
        self.receiver = self.update = self._init = None
        self._tensors = {}

    def init_transfer_engine(self, init_info):
        """Attaches to the agent; on return the plan is there.  A trainer that was started again says the same once more: then
        this engine keeps its place, and the trainer waits for the plan that has both."""
        same = replace(init_info, timeout=None)
        if self.receiver is not None:
            if same != self._init:
                raise WeightBridgeError(f"this engine is connected already, as {self._init}")
            return
        if torch.device(self.device).type != "cpu":
            raise WeightBridgeError(f"the model is on {self.device}: only memory of the CPU can be attached")
        _refuse_experts(self.model)
        parallel = self.vllm_config.parallel_config
        folder = init_info.manifest or self.model_config.model
        if not os.path.isdir(folder):
            raise WeightBridgeError(f"{folder} is no folder: say in `manifest` where the checkpoint's files are")
        tensors = manifests.read(folder, init_info.leave_out or ())
        make = arrays.maker("torch", False)
        self._tensors = {n: torch.empty(shape, dtype=make.dtypes[kind]) for n, shape, kind in tensors}
        self.receiver = ReceiverAdapter(self._keep, params=self._tensors, manifest=tensors, engine=init_info.engine,
                                        socket=init_info.socket, object=init_info.object, rank=parallel.rank)
        try:
            self.receiver.connect(init_info.timeout)
        except BaseException:
            self.receiver = None
            raise
        self._init = same

    def _keep(self, weights):
        for name, tensor in weights:
            self._tensors[name].copy_(tensor)

    def start_weight_update(self):
        if self.receiver is None:
            raise WeightBridgeError("not connected: call init_weight_transfer_engine first")
        self.update = None

    def update_weights(self, update_info):
        self.receive_weights(self.parse_update_info(update_info))  # nothing runs beside it that could be waited for

    def receive_weights(self, update_info):
        end = None if update_info.timeout is None else time.monotonic() + update_info.timeout
        while True:
            done = self.receiver.next_update(None if end is None else max(0.0, end - time.monotonic()))
            if update_info.version is None or done.version >= update_info.version:
                break
        self.update = done

    def finish_weight_update(self):
        """Gives what has come to vLLM's own loader; parameters stay at their addresses."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        if self.update is None:
            return
        before = self.places()
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(list(self._tensors.items())))
        finalize_layerwise_reload(self.model, self.model_config)
        _prepare_tied(self.model)
        moved = [n for n, place in self.places().items() if before.get(n) != place]
        if moved:
            raise WeightBridgeError(f"vLLM's reload gave {moved[0]} other memory: what was compiled reads the old one")

    def places(self):
        return {n: (p.data_ptr(), tuple(p.shape), p.stride()) for n, p in self.model.named_parameters()}

    def shutdown(self):
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.close(0.0)


def _refuse_experts(model):
    from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase

    for name, layer in model.named_modules():
        if isinstance(getattr(layer, "quant_method", None), FusedMoEMethodBase):
            raise WeightBridgeError(f"layer {name} holds experts, which vLLM's CPU backend does not load anew: after its own "
                                    "reload of the same checkpoint the model says something else")


def _prepare_tied(model):
    """A tied output layer shares the embedding's parameter, and the reload prepares only the embedding."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    tables = {id(m.weight) for m in model.modules()
              if isinstance(m, VocabParallelEmbedding) and not isinstance(m, ParallelLMHead)}
    for layer in model.modules():
        if isinstance(layer, ParallelLMHead) and id(layer.weight) in tables:
            layer.quant_method.process_weights_after_loading(layer)


class Extension:
    """For worker_extension_cls; to import it is what registers the engine."""

    def weightbridge_version(self):
        """The version that this worker's last update brought, None before the first."""
        update = getattr(self.weight_transfer_engine, "update", None)
        return None if update is None else update.version


def register():
    """Tells vLLM of the engine; it may be called again and again."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, Engine)


def connect(llm, **init):
    """Connect all workers of an LLM.  init: fields of Init."""
    llm.init_weight_transfer_engine({"init_info": init})


def update(llm, timeout=None):
    """Wait for one transfer and compute with it; cached prefixes of old weights go.  Between two calls of generate().
    Returns the version."""
    llm.start_weight_update()
    llm.update_weights({"update_info": {"timeout": timeout}})
    llm.finish_weight_update()
    llm.reset_prefix_cache()
    versions = set(llm.collective_rpc("weightbridge_version"))
    if len(versions) != 1:
        raise WeightBridgeError(f"workers of one engine have different versions: {sorted(map(str, versions))}")
    return versions.pop()


register()
