# SPDX-License-Identifier: Apache-2.0
"""A trainer's own exporter, read backwards: where each tensor of its checkpoint lies in its parameters.

Trainers can write checkpoints: some function makes the checkpoint's tensors of the module's.  Most of such functions only
rename, cut and transpose.  Run on tensors without memory, such a function shows by shape, strides and offset which part
of which parameter each of its results is; `Exports.load` then does the opposite, into the memory that a worker has: what
SenderAdapter and ReceiverAdapter call load_weights.  It fills distributed parameters (DTensor) without a collective.

A module may have more rows for its vocabulary than the checkpoint has words, because hardware likes round numbers.  Such
rows are padding: no tensor of the checkpoint fills them, nothing is sent from there, and load() leaves them as they are.

Needs torch.
"""

import bisect

from .. import manifest as manifests
from ..errors import WeightBridgeError
from ..manifest import dtype_name

_SAID = 4  # names in a sentence


def _some(names):
    more = len(names) - _SAID
    return ", ".join(list(names)[:_SAID]) + (f" and {more} more" if more > 0 else "")


class Exports:
    """state      function that gives name -> tensor as the module has them now, without tied duplicates; distributed
                  ones as they are (DTensor).  Called again for each load.
    export        function of a dict as `state` gives it, of full tensors, that returns the checkpoint's; None: the same
    dtype         what the checkpoint's tensors are cast to where the module has floating-point numbers, as trainers with
                  FP32 masters do; None: as the module has them
    kept          names of the module whose type stays all the same (buffers)
    padded        names of the module whose last rows may be padding: where the exporter makes one tensor of the rows
                  before and none of those, or `checkpoint` has fewer rows.  For any other parameter that is refused
    checkpoint    what the engines load, as SenderAdapter's `manifest`; None: what the exporter makes
    Raises WeightBridgeError that names what the exporter does not merely cut out of a parameter."""

    def __init__(self, state, export=None, dtype=None, kept=(), padded=(), checkpoint=None):
        import torch

        self._torch, self._state = torch, state
        tensors = state()
        self._names = list(tensors)
        self._shapes = {n: tuple(t.shape) for n, t in tensors.items()}
        self._parts = {}  # checkpoint's name -> (ours, shape, strides, offset in ours)
        self._of = {}  # ours -> the checkpoint's names that fill it
        self.manifest = []  # (name, shape, dtype), sorted by name as a folder of files is read
        self._rows = {}  # ours -> how many of its rows the checkpoint has, where there is padding behind them
        self._own = {}  # ours -> how many of these this worker has, where that is known already
        self._trace(export)
        if checkpoint is not None:
            self._cut(manifests.read(checkpoint), padded)
        self._check(padded)
        dtype = dtype and getattr(torch, dtype_name_of_torch(dtype))
        for name in sorted(self._parts):
            ours, shape, _, _ = self._parts[name]
            kind = tensors[ours].dtype
            if dtype is not None and kind.is_floating_point and ours not in kept:
                kind = dtype
            self.manifest.append((name, shape, dtype_name(kind)))

    def _trace(self, export):
        """One storage without memory holds all parameters, so that an offset says which one a result is of."""
        torch, counts = self._torch, [_count(self._shapes[n]) for n in self._names]
        # Parameters lie behind a gap as large as all of them: nothing that an exporter makes anew looks like a part of it.
        starts, end = [], sum(counts) + 1
        for n in counts:
            starts.append(end)
            end += n
        whole = torch.empty(end, dtype=torch.float32, device="meta")
        ghosts = {name: whole[at:at + n].view(self._shapes[name]) for name, at, n in zip(self._names, starts, counts)}
        with torch.no_grad(), _kept_views(torch):
            made = export(ghosts) if export else ghosts
        strange = []
        for name, t in made.items():
            if (t.device.type != "meta" or t.untyped_storage().nbytes() != whole.untyped_storage().nbytes()
                    or t.storage_offset() < starts[0]):
                strange.append(name)
                continue
            i = bisect.bisect_right(starts, t.storage_offset()) - 1
            ours = self._names[i]
            self._parts[name] = (ours, tuple(t.shape), t.stride(), t.storage_offset() - starts[i])
            self._of.setdefault(ours, []).append(name)
        if strange:
            raise WeightBridgeError(
                f"the exporter calculates {_some(strange)}: only what it cuts out of one parameter, as it is, can be sent "
                "from there")

    def _cut(self, checkpoint, padded):
        """Tensors that have fewer rows than the parameter that they fill take their share of it."""
        for name, shape, _ in checkpoint:
            ours, full, strides, offset = self._parts.get(name, (None, shape, None, 0))
            if ours not in padded or full == shape or full != self._shapes[ours] or full[1:] != shape[1:]:
                continue  # load() refuses what does not fit
            if shape[0] > full[0]:
                raise WeightBridgeError(f"tensor {name} has {shape[0]} rows, parameter {ours} has {full[0]}: the module lacks "
                                        "words of the engines' checkpoint.  Give it as many, or start engines from a "
                                        "checkpoint of this module")
            self._parts[name] = (ours, shape, strides, offset)

    def _check(self, padded):
        """Each element of a parameter is of one tensor, but for padding."""
        for ours, names in self._of.items():
            n, shape = sum(_count(self._parts[x][1]) for x in names), self._shapes[ours]
            if n == _count(shape):
                continue
            row = _count(shape[1:])
            if ours not in padded or len(names) > 1 or n % row or _end(self._parts[names[0]]) != n:
                raise WeightBridgeError(f"the exporter does not write each element of parameter {ours} once (it makes "
                                        f"{_some(names)} of it).  Padding behind its rows: give the name in `padded`")
            self._rows[ours] = n // row

    def params(self):
        """Name -> what this worker has of each parameter, for adapters' `params`; of those with padding where there is more."""
        now = {n: t for n, t in self._state().items() if n in self._of}
        return {n: t.to_local() if hasattr(t, "to_local") else t for n, t in now.items()
                if n not in self._rows or self._own_rows(n, t)}

    def _own_rows(self, ours, target):
        """How many rows of a parameter with padding are not padding, of those that this worker has."""
        if ours not in self._own:
            shape = tuple(target.shape)
            column = self._torch.arange(shape[0]).view(-1, *(1,) * (len(shape) - 1))
            here = _part(target, (column < self._rows[ours]).expand(shape))  # cut as the parameter is, whatever cuts it
            self._own[ours] = int(here.flatten(1).any(1).sum()) if here.dim() > 1 else int(here.sum())
        return self._own[ours]

    def load(self, weights):
        """Writes tensors of the checkpoint, an iterable of (name, tensor), into the module, in place.

        Names that the module has nothing for are passed by.  A parameter of which only a part comes is refused."""
        torch, begun = self._torch, {}
        with torch.no_grad():
            now = self._state()
            for name, tensor in weights:
                if name not in self._parts:
                    continue
                ours, shape, strides, offset = self._parts[name]
                if tuple(tensor.shape) != shape:
                    raise WeightBridgeError(f"tensor {name} is {list(tensor.shape)}, parameter {ours} takes {list(shape)}")
                target = now[ours]
                if ours not in begun:
                    begun[ours] = (_full(torch, target), set(self._of[ours]))
                full, missing = begun[ours]
                full.as_strided(shape, strides, full.storage_offset() + offset).copy_(tensor)
                missing.discard(name)
                if not missing:
                    _put(target, full, self._own_rows(ours, target) if ours in self._rows else None)
                    begun[ours] = (None, missing)
        short = [n for names in (m for _, m in begun.values()) for n in names]
        if short:
            raise WeightBridgeError(f"the checkpoint lacks {_some(sorted(short))}, which the module keeps together with others")


def dtype_name_of_torch(dtype):
    """'bfloat16' for torch.bfloat16, 'bfloat16' or 'BF16'."""
    word = str(dtype).rsplit(".", 1)[-1]
    return {"BF16": "bfloat16", "F32": "float32", "F16": "float16"}.get(word, word)


def _count(shape):
    n = 1
    for k in shape:
        n *= k
    return n


def _end(part):
    """Where a part of a parameter ends in it, in elements."""
    _, shape, strides, offset = part
    return offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1


def _full(torch, target):
    """Where a whole parameter is put together: its own memory where that is possible."""
    if not hasattr(target, "to_local") and target.is_contiguous():
        return target.detach()
    return torch.empty(tuple(target.shape), dtype=target.dtype, device="cpu")


def _part(target, full):
    """What this worker has of `full`, a tensor that is cut as `target` is."""
    if not hasattr(target, "to_local"):
        return full
    from torch.distributed.tensor import distribute_tensor

    # No rank is the source: each cuts its own part out of what it has, and nobody is waited for.
    return distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=None).to_local()


def _put(target, full, rows):
    """rows: of this worker's part only the first ones are written; None: all."""
    if hasattr(target, "to_local"):
        to, part = target.to_local(), _part(target, full)
    elif full.data_ptr() != target.data_ptr():
        to, part = target.detach(), full
    else:
        return  # it was put together where it is
    if rows is None:
        to.copy_(part)
    else:
        to[:rows].copy_(part[:rows])


def _kept_views(torch):
    """contiguous() and clone() copy what could stay a view; an exporter calls them for those who read its results."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (torch.Tensor.contiguous, torch.Tensor.clone, torch.clone):
                return args[0]
            return func(*args, **(kwargs or {}))

    return Mode()


def untied(module):
    """A function for Exports' `state`: the module's state_dict without second names of tied parameters."""
    def state():
        first, second = set(), set()
        for name, p in module.named_parameters(remove_duplicate=False):
            (second if id(p) in first else first).add(id(p) if id(p) not in first else name)
        return {n: t for n, t in module.state_dict().items() if n not in second and hasattr(t, "data_ptr")}
    return state
