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
import os
import tempfile

from .. import modules
from ..errors import WeightBridgeError, WeightBridgeTimeout
from . import ReceiverAdapter

LOADER = "weightbridge.adapters.sglang.load"
_ORDER = "weightbridge."  # what the name of an order begins with

_receivers = {}  # id of a model -> ReceiverAdapter; the models of this rank's process


class _Failed(WeightBridgeError):
    """What a rank said."""


# ---- the caller ----


def order(what, answers, /, **fields):
    """The named tensors that tell each rank to do that; `answers`: an empty folder for what they say."""
    import torch

    text = json.dumps({"answers": answers, **fields}).encode()
    return [(_ORDER + what, torch.frombuffer(bytearray(text), dtype=torch.uint8).clone())]


def said(answers):
    """What ranks of this host said, after LOADER has returned: the versions, or an error that names the rank."""
    found = []
    for name in sorted(os.listdir(answers)):
        with open(os.path.join(answers, name), encoding="utf-8") as f:
            found.append(json.load(f))
    for x in found:
        if x["error"]:
            kind = WeightBridgeTimeout if x["late"] else _Failed
            raise kind(f"rank {x['rank']}: {x['error']}")
    if not found:
        raise WeightBridgeError("no rank has answered: was the engine started with custom_weight_loader=[LOADER]?")
    versions = {x["version"] for x in found}
    if len(versions) != 1:
        raise WeightBridgeError(f"ranks of one engine have different versions: {sorted(map(str, versions))}")
    return versions.pop()


def _call(engine, what, /, **fields):
    with tempfile.TemporaryDirectory(prefix="weightbridge-") as answers:
        _ok(engine.begin_weight_update())
        try:
            done = engine.update_weights_from_tensor(order(what, answers, **fields), load_format=LOADER)
        finally:
            _ok(engine.end_weight_update())
        version = said(answers)  # an error of a rank's says more than SGLang's
        _ok(done)
        return version


def _ok(done):
    good, text = done[:2] if isinstance(done, (tuple, list)) else (True, "")
    if not good:
        raise WeightBridgeError(f"SGLang: {text}")


def connect(engine, /, **init):
    """Connect all ranks of an Engine.  init: engine, socket, object: ReceiverAdapter's; manifest: folder of the
    checkpoint, None: the one SGLang loaded; timeout: seconds for the plan, None: as long as it takes; leave_out: names
    or patterns not transferred; allow_unmapped: parameters that no transfer writes (ReceiverAdapter)."""
    _call(engine, "connect", **init)


def update(engine, timeout=None):
    """Wait for one transfer and compute with it; cached prefixes of old weights go.  Between two calls of generate().
    Returns the version."""
    return _call(engine, "update", timeout=timeout)


def disconnect(engine):
    """Leave; the engine keeps its weights."""
    _call(engine, "close")


# ---- a rank ----


def load(model, named_tensors):
    """What SGLang calls in each rank.  It never raises: SGLang would end the engine."""
    for name, tensor in named_tensors:
        fields = json.loads(bytes(tensor.cpu().numpy()).decode())
        answer = {"rank": _rank(), "version": None, "error": "", "late": False}
        try:
            answer["version"] = _act(model, name, fields)
        except Exception as e:  # pylint: disable=broad-except
            answer["error"], answer["late"] = str(e) or type(e).__name__, isinstance(e, WeightBridgeTimeout)
        _answer(fields["answers"], answer)


def _answer(folder, answer):
    """Files of other hosts' ranks would be nobody's: they have no such folder."""
    if os.path.isdir(folder):
        part = os.path.join(folder, f".{os.getpid()}")
        with open(part, "w", encoding="utf-8") as f:
            json.dump(answer, f)
        os.replace(part, os.path.join(folder, f"{answer['rank']}-{os.getpid()}"))


def _rank():
    import torch

    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _act(model, name, fields):
    what = name[len(_ORDER):] if name.startswith(_ORDER) else name
    if what == "connect":
        return _connect(model, fields)
    receiver = _receivers.get(id(model))
    if receiver is None:
        raise WeightBridgeError("not connected: call connect() first")
    if what == "close":
        del _receivers[id(model)]
        return receiver.close(0.0)
    done = receiver.update(fields["timeout"])
    if done is None:
        raise WeightBridgeTimeout(f"no transfer came within {fields['timeout']} s")
    return done.version


def _connect(model, fields):
    if id(model) in _receivers:
        raise WeightBridgeError("this engine is connected already")
    if _receivers:
        raise WeightBridgeError("a draft model beside the model would keep its old weights: start the engine without "
                                "speculative decoding")
    for name, tensor in modules.tensors(model).items():
        if getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
            raise WeightBridgeError(f"{name} is on {tensor.device}: only memory of the CPU can be attached")
    folder = fields.get("manifest") or _checkpoint()
    if not os.path.isdir(folder):
        raise WeightBridgeError(f"{folder} is no folder: say in `manifest` where the checkpoint's files are")
    receiver = ReceiverAdapter(model.load_weights, params=model, manifest=folder, rank=_rank(),
                               **{k: fields[k] for k in ("engine", "socket", "object", "leave_out", "allow_unmapped")
                                  if fields.get(k) is not None})
    receiver.connect(fields.get("timeout"))
    _receivers[id(model)] = receiver


def _checkpoint():
    from sglang.srt.runtime_context import get_model

    return get_model().model_path
