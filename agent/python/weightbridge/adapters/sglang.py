# SPDX-License-Identifier: Apache-2.0
"""SGLang as an engine, through its own session for weight updates.  Tested with SGLang 0.5.23 on a CPU.

    from weightbridge.adapters import sglang as wb
    engine = sglang.Engine(model_path=folder, custom_weight_loader=[wb.LOADER])
    wb.connect(engine, engine="e0")     # waits until trainers and all other engines have connected
    version = wb.update(engine)         # waits for a transfer; then the engine computes with it

LOADER is a loader of SGLang's `custom_weight_loader`: what is given to it are no weights, but a small tensor that says
what each rank is to do, between begin_weight_update() and end_weight_update(), while SGLang runs no request.  Transfers
go into the parameters themselves, and into what the loader makes of them (w_kc and w_vc of MLA): both are looked for in
the model, so nothing has to be registered.  What a rank has to tell comes back through a folder of the caller's.

Refused by name: devices other than the CPU, whose memory cannot be attached; a draft model, which would keep its old
weights; parameters that were packed for kernels after loading, as they are no copy of the checkpoint.

An update that was not committed raises, and leaves the model as the text says.
"""

import json
import logging
import os
import tempfile

from .. import modules
from ..errors import WeightBridgeError, WeightBridgeTimeout
from . import ReceiverAdapter

LOADER = "weightbridge.adapters.sglang.load"
_ORDER = "weightbridge."  # what the name of an order begins with

_CONNECTED = "this engine is connected already"
_DRAFT = "a draft model beside the model would keep its old weights: start the engine without speculative decoding"
_OTHER = "another rank could not connect"  # said by those that could

_log = logging.getLogger("weightbridge")
_receivers = {}  # id of a model -> ReceiverAdapter; the models of this rank's process


# ---- the caller ----


def order(what, answers, /, **fields):
    """The named tensors that tell each rank to do that; `answers`: an empty folder for what they say."""
    import torch

    text = json.dumps({"answers": answers, **fields}).encode()
    return [(_ORDER + what, torch.frombuffer(bytearray(text), dtype=torch.uint8).clone())]


def said(answers):
    """What ranks of this host said, after LOADER has returned: the versions, or an error that names the rank."""
    found = []
    for name in sorted(n for n in os.listdir(answers) if not n.startswith(".")):
        with open(os.path.join(answers, name), encoding="utf-8") as f:
            found.append(json.load(f))
    for x in sorted(found, key=lambda x: x["error"] == _OTHER):
        if x["error"]:
            kind = WeightBridgeTimeout if x["late"] else WeightBridgeError
            raise kind(f"rank {x['rank']}: {x['error']}")
    if not found:
        raise WeightBridgeError("no rank has answered: was the engine started with custom_weight_loader=[LOADER]?")
    versions = {x["version"] for x in found}
    if len(versions) != 1:
        raise WeightBridgeError(f"ranks of one engine have different versions: {sorted(map(str, versions))}")
    return versions.pop()


def _call(sgl, what, /, **fields):
    with tempfile.TemporaryDirectory(prefix="weightbridge-") as answers:
        _ok(sgl.begin_weight_update())
        done = ended = (True, "")
        try:
            done = sgl.update_weights_from_tensor(order(what, answers, **fields), load_format=LOADER)
        finally:
            ended = sgl.end_weight_update()
        version = said(answers)  # an error of a rank's says more than SGLang's
        _ok(done)
        _ok(ended)
        return version


def _ok(done):
    good, text = done[:2] if isinstance(done, (tuple, list)) else (True, "")
    if not good:
        raise WeightBridgeError(f"SGLang: {text}")


def connect(sgl, /, *, engine=None, socket=None, object=None, manifest=None, timeout=600.0, leave_out=None,
            allow_unmapped=False):
    """Connect all ranks of an Engine; if one cannot, none stays connected.

    engine, socket, object, leave_out, allow_unmapped   ReceiverAdapter's
    manifest   folder of the checkpoint; None: the one SGLang loaded
    timeout    seconds for the plan, which needs trainers and all other engines; None: as long as it takes, also where
               another rank has failed
    """
    if getattr(getattr(sgl, "server_args", None), "speculative_algorithm", None):
        raise WeightBridgeError(_DRAFT)
    try:
        _call(sgl, "connect", engine=engine, socket=socket, object=object, manifest=manifest, timeout=timeout,
              leave_out=leave_out, allow_unmapped=allow_unmapped)
    except WeightBridgeError as e:
        if _CONNECTED not in str(e):
            try:
                _call(sgl, "close")
            except WeightBridgeError as more:
                _log.warning("a rank did not leave after a failed connect(): %s", more)
        raise


def update(sgl, timeout=None):
    """Wait for one transfer and compute with it; cached prefixes of old weights go.  Between two calls of generate().
    Returns the version."""
    return _call(sgl, "update", timeout=timeout)


def disconnect(sgl):
    """Leave; the engine keeps its weights."""
    _call(sgl, "close")


# ---- a rank ----


def load(model, named_tensors):
    """What SGLang calls in each rank.  It does not raise: SGLang would end the engine."""
    try:
        for name, tensor in named_tensors:
            if not name.startswith(_ORDER):
                _log.error("%s is no order: %s takes no weights; they are left out", name, LOADER)
                continue
            fields = json.loads(bytes(tensor.cpu().numpy()).decode())
            _answer(model, fields["answers"], _obey(model, name[len(_ORDER):], fields))
    except Exception:  # pylint: disable=broad-except
        _log.exception("an order was not carried out")


def _obey(model, what, fields):
    answer = {"rank": _rank(), "version": None, "error": "", "late": False}
    try:
        answer["version"] = _act(model, what, fields)
    except Exception as e:  # pylint: disable=broad-except
        answer["error"], answer["late"] = str(e) or type(e).__name__, isinstance(e, WeightBridgeTimeout)
    return answer


def _answer(model, folder, answer):
    """A file of each model: there may be a draft.  Ranks on other hosts have no such folder, and nobody to tell."""
    if os.path.isdir(folder):
        part = os.path.join(folder, f".{os.getpid()}")
        with open(part, "w", encoding="utf-8") as f:
            json.dump(answer, f)
        os.replace(part, os.path.join(folder, f"{answer['rank']}-{os.getpid()}-{id(model):x}"))


def _rank():
    import torch

    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _all_can(error):
    """Ranks agree before they wait for others: one that cannot connect would keep them waiting."""
    import torch
    from sglang.srt.runtime_context import get_parallel

    bad = torch.tensor([1 if error else 0])
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(bad, group=get_parallel().tp_group.cpu_group)
    if error:
        raise error
    if bad.item():
        raise WeightBridgeError(_OTHER)


def _act(model, what, fields):
    receiver = _receivers.get(id(model))
    if what == "connect":
        return _connect(model, fields)
    if what == "close":
        return _receivers.pop(id(model)).close(0.0) if receiver else None
    if receiver is None:
        raise WeightBridgeError("not connected: call connect() first")
    return receiver.next_update(fields["timeout"]).version


def _connect(model, fields):
    receiver = error = None
    try:
        receiver = _make(model, fields)
    except Exception as e:  # pylint: disable=broad-except
        error = e
    _all_can(error)
    receiver.connect(fields["timeout"])
    _receivers[id(model)] = receiver


def _make(model, fields):
    if id(model) in _receivers:
        raise WeightBridgeError(_CONNECTED)
    if _receivers:
        raise WeightBridgeError(_DRAFT)
    for name, tensor in modules.tensors(model).items():
        if getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
            raise WeightBridgeError(f"{name} is on {tensor.device}: only memory of the CPU can be attached")
    folder = fields["manifest"] or _checkpoint()
    if not os.path.isdir(folder):
        raise WeightBridgeError(f"{folder} is no folder: say in `manifest` where the checkpoint's files are")
    return ReceiverAdapter(model.load_weights, params=model, manifest=folder, rank=_rank(), whole=False,
                           **{k: fields[k] for k in ("engine", "socket", "object", "leave_out", "allow_unmapped")})


def _checkpoint():
    from sglang.srt.runtime_context import get_model

    return get_model().model_path
