# SPDX-License-Identifier: Apache-2.0
"""Where parameters lie: their storage is kept alive, and what happens to it is noticed.

An engine may give a parameter another storage at any time (`.data = ...`, another array under the
same name, a promotion to another type), or another size to the storage it has.
"""

from . import arrays, modules
from .errors import ParametersMoved, WeightBridgeError

_NAMED = 4  # parameters in one sentence


class Source:
    """The parameters that a user gave, looked up anew each time: a dict, whose entries and whose
    tensors' storages may be exchanged, a function that returns one, or a module."""

    def __init__(self, given):
        self.module = given if modules.is_module(given) else None
        if not (self.module is not None or callable(given) or hasattr(given, "items")):
            try:
                given = dict(given)
            except (TypeError, ValueError):
                _refuse(given)
        self._given, self._hidden = given, frozenset()

    def without(self, names):
        """The same parameters but for some."""
        other = Source(self._given)
        other._hidden = self._hidden.union(names)
        return other

    def now(self):
        """Name -> array, of this moment."""
        if self.module is not None:
            given = {n: modules.local(p) for n, p in self.module.named_parameters()}
        else:
            given = self._given() if callable(self._given) else self._given
        items = given.items() if hasattr(given, "items") else _refuse(given)
        return {n: a for n, a in items if n not in self._hidden}

    def some(self, names):
        """The same for `names`, which may be a module's buffers and attributes too; what is there."""
        now = self.now()
        if self.module is not None:
            now.update(modules.some_of(self.module, [n for n in names if n not in now]))
        return {n: now[n] for n in names if n in now}


def _refuse(given):
    raise TypeError("params must be a dict of parameter name to array, a function that returns one, or "
                    f"a module, not {type(given).__name__}")


class Place:
    """One parameter's memory as it is now."""

    __slots__ = ("_face", "_storage", "held", "is_device")

    def __init__(self, value):
        self.held, self.is_device = arrays.holder(value), arrays.is_device(value)
        self._face = arrays.face(value)
        self._storage = arrays.storage(self.held)

    @property
    def address(self):
        return self._face[0]

    def is_gone(self):
        """Was the storage freed or cut under who holds it?  Then its memory must not be touched."""
        if self._storage is None:
            return False
        address, size = arrays.storage(self.held)
        return address != self._storage[0] or size < self._storage[1]

    def is_at(self, face):
        return face == self._face

    def change(self, value):
        """What is different now, (a sentence, did only the address change); None: nothing."""
        face = arrays.face(value)
        if face[1:] != self._face[1:]:
            return f"it was {_text(self._face)}, it is {_text(face)}", False
        if face != self._face or self.is_gone():
            return "its storage is another one", True
        return None


def _text(face):
    _, shape, strides, dtype = face
    return f"{dtype} of shape {tuple(shape)} with strides {tuple(strides)}"


class Places:
    """The memory of all parameters that are attached.

    A dict of tensors does not show that a module has others in their place by now: `behind`, the
    modules that the loader speaks of, are asked too.
    """

    def __init__(self, params, behind=()):
        self._places = {n: Place(v) for n, v in params.items()}
        names = {place.address: n for n, place in self._places.items()}
        self._names = []  # (module, {its name for a tensor: ours})
        for module in behind:
            found = {}
            for key, tensor in modules.tensors(module).items():
                face = modules.face(tensor)
                name = names.get(face and face[0])
                if name is not None and self._places[name].is_at(face):
                    found[key] = name
            self._names.append((module, found))

    def check(self, source):
        """Raises ParametersMoved when what a Source has now is not what was attached."""
        now, moved = source.some(self._places), {}
        for name, place in self._places.items():
            if name not in now:
                moved[name] = "it is not in params any more", False
                continue
            try:
                change = place.change(now[name])
            except WeightBridgeError as e:
                change = str(e), False
            if change:
                moved[name] = change
        for module, names in self._names:
            there = modules.some_of(module, names)
            for key, name in names.items():
                if name not in moved and not self._places[name].is_at(
                        modules.face(there.get(key))):
                    moved[name] = "its module has another tensor in its place", True
        if moved:
            raise ParametersMoved(_sentence(moved), names=list(moved))


def _sentence(moved):
    some = [f"{n} ({why})" for n, (why, _) in list(moved.items())[:_NAMED]]
    if len(moved) > _NAMED:
        some.append(f"{len(moved) - _NAMED} more")
    what = "parameter" if len(moved) == 1 else f"{len(moved)} parameters,"
    if all(same for _, same in moved.values()):
        do = ("call rebind() where they move, before the next transfer (with params as they are now, "
              "if these are others)")
    else:
        do = ("the source map does not fit any more: close this adapter and connect a new one, which "
              "probes again")
    return f"{what} {', '.join(some)}: not where connect() found it; {do}"
