# SPDX-License-Identifier: Apache-2.0
"""Tensors of a module tree, as torch's: parameters, buffers, and plain attributes.

A loader may fill tensors that no dict of parameters has (derived copies, made after loading), and
put others in their place.  Nothing here needs torch: a module is what has named_parameters() and
named_modules().
"""

import functools
import types

from . import arrays
from .errors import WeightBridgeError

_DICTS = ("_parameters", "_buffers")  # of a module, beside its attributes
_MISSING = object()
_kinds = {}  # type -> is it one of arrays or tensors?


def is_module(thing):
    """Real methods: some objects claim to have whatever they are asked for."""
    return all(isinstance(getattr(thing, name, None), types.MethodType)
               for name in ("named_parameters", "named_modules"))


def is_tensor(thing):
    kind = type(thing)
    if kind not in _kinds:
        _kinds[kind] = arrays.is_torch(thing) or (hasattr(thing, "__array_interface__")
                                                  and hasattr(thing, "__setitem__"))
    return _kinds[kind]


def local(tensor):
    """What this worker has of a tensor that is distributed (DTensor): its own memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _places_of(module):
    """The dicts that hold a module's tensors."""
    own = getattr(module, "__dict__", {})
    return [own, *(own[k] for k in _DICTS if isinstance(own.get(k), dict))]


def tensors(module):
    """Name -> tensor of everything in the tree, parameters first."""
    out = {n: local(p) for n, p in module.named_parameters()}
    for prefix, m in module.named_modules():
        for place in _places_of(m):
            for key, value in place.items():
                if is_tensor(value):
                    out.setdefault(f"{prefix}.{key}" if prefix else key, local(value))
    return out


def some_of(module, names):
    """The same for some names only: what is there of them."""
    found, where = {}, dict(module.named_modules())
    for name in names:
        prefix, _, key = name.rpartition(".")
        for place in _places_of(where[prefix]) if prefix in where else ():
            if is_tensor(place.get(key)):
                found[name] = local(place[key])
    return found


def behind(function):
    """The modules that a loader belongs to or speaks of, as far as that can be seen."""
    found = {}

    def look(thing, deeper):
        if is_module(thing):
            found.setdefault(id(thing), thing)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, *thing.args, *thing.keywords.values()):
                look(part, deeper)
        elif deeper and callable(thing):
            look(getattr(thing, "__self__", None), False)
            plain = getattr(thing, "__func__", thing)
            for cell in getattr(plain, "__closure__", None) or ():
                try:
                    look(cell.cell_contents, False)
                except ValueError:  # not bound yet
                    pass
            for value in (*(getattr(plain, "__defaults__", None) or ()),
                          *(getattr(plain, "__kwdefaults__", None) or {}).values()):
                look(value, False)
            code = getattr(plain, "__code__", None)
            for name in code.co_names if code else ():
                look(plain.__globals__.get(name), False)

    look(function, True)
    return list(found.values())


def face(tensor):
    """arrays.face() of what is in a module; None for what has none."""
    try:
        return arrays.face(local(tensor)) if is_tensor(tensor) else None
    except (WeightBridgeError, RuntimeError, TypeError, ValueError):  # sparse, on no device ...
        return None


def _is_same(one, other):
    """Two objects for one piece of memory: a view that is made anew each time."""
    return face(one) is not None and face(one) == face(other)


class Bindings:
    """Which tensor each name of some modules stands for; put back when a loader changes it."""

    def __init__(self, modules):
        self._saved = [(prefix, place, dict(place)) for module in modules
                       for prefix, m in module.named_modules() for place in _places_of(m)]

    def changed(self):
        """Yields (name, dict, key, what was there) of what is another tensor now."""
        for prefix, place, saved in self._saved:
            for key in [*saved, *(k for k in place if k not in saved)]:
                old, new = saved.get(key, _MISSING), place.get(key, _MISSING)
                if old is not new and (is_tensor(old) or is_tensor(new)) and not _is_same(old, new):
                    yield f"{prefix}.{key}" if prefix else key, place, key, old

    def put_back(self):
        """Undo that; the names."""
        changed = list(self.changed())
        for _, place, key, old in changed:
            if old is _MISSING:
                del place[key]
            else:
                place[key] = old
        return list(dict.fromkeys(name for name, *_ in changed))
