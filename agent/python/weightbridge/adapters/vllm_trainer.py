# SPDX-License-Identifier: Apache-2.0
"""A trainer that drives vLLM by vLLM's own interface for trainers.  Tested with vLLM 0.32.0.

    from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, WeightTransferTrainerFactory
    from weightbridge.adapters import vllm_trainer as wb        # to import it is what registers the backend
    init = wb.TrainerInit(rank=rank, sender=fsdp2.sender(model, dtype=torch.bfloat16, rank=rank))
    engine = WeightTransferTrainerFactory.trainer_init(init, client=client)    # on every rank
    optimizer.step(); engine.send_weights()                                    # on every rank

The inference side is vLLM with the backend of weightbridge.adapters.vllm.  Rank 0 tells it through vLLM's client to connect,
to wait for an update and to load it, while all ranks send.  A trainer that gives vLLM a WeightSource keeps it: then each
rank goes through the source, which gathers, and the first `senders` ranks send what they keep of it.

As with vLLM's other backends, who drives the engine pauses its requests and empties its prefix cache.
"""

import contextlib
import logging
import threading
from dataclasses import dataclass, field
from typing import ClassVar

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

from .. import manifest as manifests
from ..errors import WeightBridgeError
from . import SenderAdapter
from .streams import Kept, share
from .vllm import NAME

_log = logging.getLogger("weightbridge")


@dataclass
class TrainerInit(TrainerInitInfo):
    """rank     of this process among the trainer's; rank 0 drives the inference side
    sender      a SenderAdapter that is not connected yet (of weightbridge.adapters.fsdp2, megatron, transformers): it sends
                out of the parameters' own memory, and nothing is gathered.  None: what `source` gives is sent
    manifest    of `source`: folder of the checkpoint that the engines load, whose types are those that are sent; None:
                what the source's metadata() says
    senders     of `source`: how many ranks keep a share of the tensors and send it, the first ones; the object's
                spec.trainer.workers
    options     of `source`: SenderAdapter's (socket, object)
    engine      fields of weightbridge.adapters.vllm.Init, for the inference side.  Where the client drives several replicas
                all are told the same: each then has its name from $WEIGHTBRIDGE_ENGINE
    timeout     seconds for the plan, for a transfer, and for the engine's wait for it; None: as long as it takes.  The
                client's own timeout has to be longer (vLLM's for HTTP: 300 s where it is not given), and where the engine
                refuses, rank 0 raises at once and the other ranks after this"""

    backend: ClassVar[str] = NAME
    sender: "SenderAdapter | None" = None
    manifest: "str | None" = None
    senders: int = 1
    options: dict = field(default_factory=dict)
    engine: dict = field(default_factory=dict)
    timeout: "float | None" = 600.0


class _Call(threading.Thread):
    """A call of the client's beside this thread."""

    def __init__(self, call, *args):
        super().__init__(daemon=True)  # it may wait for an engine, and a process that ends does not
        self._called, self._error = (call, args), None
        self.start()

    def run(self):
        call, args = self._called
        try:
            call(*args)
        except BaseException as e:  # noqa: B902 (raised where it is looked at)
            self._error = e

    def check(self):
        """Raises what it has raised so far."""
        if self._error is not None:
            raise self._error

    def result(self):
        self.join()
        self.check()


class Trainer(TrainerWeightTransferEngine):
    """What vLLM's factory makes on each rank of the trainer."""

    init_info_cls = TrainerInit

    @classmethod
    def trainer_init(cls, init_info, *, client, source=None):
        """On return trainers and engines are connected.  Raises what the inference side refuses, too."""
        self = cls(client=client, source=source, is_sender=init_info.is_sender)
        self._prepare(init_info)
        self._connect(init_info)
        return self

    def _prepare(self, init):
        self._timeout, self._adapter, self._kept, self._round = init.timeout, init.sender, None, None
        self._is_open = None  # vLLM takes update_weights and finish_weight_update, and no other start; None: not known
        self._last, self._from = None, None  # the last version that is known to be sent; the least that is waited for
        if init.sender is not None:
            return
        if self.source is None:
            raise WeightBridgeError("nothing to send: give TrainerInit a `sender`, or the factory a `source`")
        if init.manifest is not None:
            tensors = manifests.read(init.manifest, ())
        else:
            tensors = sorted((m.name, tuple(m.shape), manifests.dtype_name(m.dtype)) for m in self.source.metadata())
        is_one = init.rank < init.senders
        self._kept = Kept(tensors, share(tensors, init.rank, init.senders) if is_one else ())
        if is_one:
            self._adapter = SenderAdapter(self._kept.fill, params=self._kept.tensors, manifest=tensors, rank=init.rank,
                                          **init.options)

    def _connect(self, init):
        """The inference side waits for the plan as this side does: both at once."""
        call = None
        if self.is_sender:
            call = _Call(self.client.init_weight_transfer_engine, {"timeout": init.timeout, **init.engine})
            self._adapter.watch = call.check
        if self._adapter is None:
            return
        self._adapter.connect(init.timeout)
        try:
            if call is not None:
                call.result()
        except BaseException:
            self.shutdown()
            raise

    def send_weights(self, version=None):
        """When it returns the engines compute with the weights; on a rank that does not send, when `source` may change.
        Returns the version, None on such a rank.  version: None: the next one; the same on all ranks.

        When it raises because nothing was sent (TransferAborted, different versions on the ranks), the engines keep what they
        had and go on waiting: the next call, within `timeout`, is for them the same update."""
        if self._kept is not None:
            self._kept.take(self.source, self._adapter, self._timeout)
        if self._adapter is None:
            return None
        if self.is_sender:
            self._wake(version)
        transfer = self._adapter.send_weights(version, timeout=self._timeout).wait(self._timeout)
        self._last = transfer.version
        if self.is_sender:
            call, self._round = self._round, None
            call.result()
            self.client.finish_weight_update(str(transfer.version))
            self._is_open = False
        return transfer.version

    def _wake(self, version):
        """The engine waits for what comes after the last version: an engine that joins late is given that one first."""
        if self._round is not None and self._round.is_alive():  # since a transfer that failed
            if version is not None and self._from is not None and version < self._from:
                raise WeightBridgeError(f"the engine waits for version {self._from} or a later one, which a call before this "
                                        f"one was to send, so {version} cannot be sent: give {self._from} or more")
            return
        if self._is_open:  # since a transfer that failed here, and may have come to the engine
            with contextlib.suppress(Exception):
                self.client.finish_weight_update()
        self._start()
        self._from = version if self._last is None else self._last + 1
        self._round = _Call(self.client.update_weights, {"timeout": self._timeout, "version": self._from})

    def _start(self):
        try:
            self.client.start_weight_update()
        except Exception:
            if self._is_open is not None:
                raise
            with contextlib.suppress(Exception):  # of an update that a trainer before this one left open
                self.client.finish_weight_update()
            self.client.start_weight_update()
        self._is_open = True

    def shutdown(self):
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close(self._timeout)


def register():
    """Tells vLLM of the trainer's side; it may be called again and again."""
    if NAME not in WeightTransferTrainerFactory._registry:
        WeightTransferTrainerFactory.register_engine(NAME, Trainer)


register()
