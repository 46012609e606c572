# SPDX-License-Identifier: Apache-2.0
"""What load_weights may write beside the parameters: other tensors of modules, looked at and put back.

A module given as `params`: its buffers and attributes belong to the map when load_weights copies
into them.  The modules behind load_weights: witnesses, which are only put back and named.
"""

import bisect

from . import _extract_abi as abi
from . import arrays, modules
from .errors import WeightBridgeError
from .places import Place

_NAMED = 4  # in one sentence
_REPLACED = "load_weights puts another tensor in its place"


class _Other:
    """One such tensor."""

    def __init__(self, name, role, module, key, described, place):
        self.name, self.role, self.module, self.key = name, role, module, key
        self.described, self.place = described, place


class Outside:
    """`reasons`: name -> why, of what load_weights writes and no transfer does."""

    def __init__(self, source, load_weights):
        self._source = source
        self._behind = [m for m in modules.behind(load_weights) if m is not source.module]
        self._modules = ([source.module] if source.module is not None else []) + self._behind
        self._bindings = modules.Bindings(self._modules)
        self._others, self.reasons = [], {}

    def find(self, described):
        """Which there are; `described`: the parameters, whose memory is not looked at again."""
        taken, names = _Spans(described), {p.name for p in described}
        # A cache may be larger than the model, and is not what a loader writes.
        most = sum(_bytes(p) for p in described)
        for module in self._modules:
            of = "" if module is self._source.module else f" of {type(module).__name__}"
            role = abi.WITNESS if of else abi.ATTRIBUTE
            for key, tensor in modules.tensors(module).items():
                other = _other(key + of, role, module, key, tensor)
                if (other and other.described.name not in names and _bytes(other.described) <= most
                        and taken.add(other.described)):
                    self._others.append(other)
                    names.add(other.described.name)

    @property
    def roles(self):
        return [other.role for other in self._others]

    @property
    def names(self):
        return [other.name for other in self._others]

    def held(self):
        """Their memory, as find() saw it."""
        return [other.place.held for other in self._others]

    def now(self):
        """([abi.Param], [Place]) of them as they are; one without an address is not there."""
        found, places, current = [], [], {}
        for other in self._others:
            of = current.setdefault(id(other.module), {})
            if not of:
                keys = [o.key for o in self._others if o.module is other.module]
                of.update(modules.some_of(other.module, keys))
            same = _other(other.name, other.role, other.module, other.key, of.get(other.key))
            found.append(same.described if same else _without_address(other.described))
            places.append(same.place if same else other.place)
        return found, places

    def told(self, reasons):
        self.reasons.update(reasons)

    def replaced(self):
        """A sentence for who wonders why a parameter is not written; "": it does not apply."""
        names = list(dict.fromkeys(name for name, *_ in self._bindings.changed()))
        if not names:
            return ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return (f"\n  (load_weights puts other tensors in place of {', '.join(names[:_NAMED])}{more}, "
                "and must write them in place)")

    def put_back(self):
        """After the library has put back what they hold: the same tensors under the same names."""
        for name in self._bindings.put_back():
            if not any(n == name or n.startswith(name + " of ") for n in self.reasons):
                self.reasons[name] = _REPLACED


class _Spans:
    """Memory that is taken: ranges of addresses that do not meet."""

    def __init__(self, described):
        self._begins, self._ends = [], []
        for low, high in sorted(_span(p) for p in described):
            if high > low and self._ends and low < self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], high)
            elif high > low:
                self._begins.append(low)
                self._ends.append(high)

    def add(self, p):
        """Take the memory of `p`; False when some of it is taken, or there is none."""
        low, high = _span(p)
        at = bisect.bisect_right(self._begins, low)
        if high == low or (at and self._ends[at - 1] > low) or (
                at < len(self._begins) and self._begins[at] < high):
            return False
        self._begins.insert(at, low)
        self._ends.insert(at, high)
        return True


def _other(name, role, module, key, tensor):
    """Described, or None: nothing that can be looked at."""
    try:
        if tensor is None:
            return None
        return _Other(name, role, module, key, arrays.describe(name, tensor), Place(tensor))
    except (WeightBridgeError, RuntimeError, TypeError, ValueError):
        return None


def _span(p):
    shape, strides = p.shape[:p.ndim], p.stride[:p.ndim]
    if 0 in shape or any(s < 0 for s in strides):
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(shape, strides))
    return p.data or 0, (p.data or 0) + (last + 1) * arrays.item_bytes(p.dtype.decode())


def _bytes(p):
    low, high = _span(p)
    return high - low


def _without_address(p):
    gone = abi.Param(name=p.name, dtype=p.dtype, ndim=p.ndim, data=None)
    gone.shape[:], gone.stride[:] = p.shape[:], p.stride[:]
    return gone
