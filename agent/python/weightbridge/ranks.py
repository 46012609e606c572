# SPDX-License-Identifier: Apache-2.0
"""Ranks that probe together, because their load_weights call each other (collective loaders).

All run the same passes: before each one they tell each other what they need, by an all-gather of
bytes that the caller gives.  One that fails says so there, and all fail by its words.
"""

import os
import struct
import threading

from .errors import WeightBridgeError

_TOKEN = 16
_GOES_ON, _FAILED = b"\0", b"\1"
_LEAVE = 10.0  # s; the others may stand in a collective of their loaders, and never come


class Alone:
    """One rank by itself."""

    index, n = 0, 1
    is_over = True

    def start(self, about):
        pass

    def agree(self, word):
        return word

    def leave(self, error):
        pass


class Ranks:
    """`group`: an object with `all_gather(bytes)`, or such a function, which gives a list of what
    every rank gave, in the same order on each."""

    def __init__(self, group):
        self._gather = getattr(group, "all_gather", group)
        if not callable(self._gather):
            raise TypeError("group must have all_gather(bytes), which gives a list with the bytes of "
                            f"each rank; {type(group).__name__} has not")
        self.index, self.n = 0, 1
        self.is_over = False

    def start(self, about):
        """Find out which rank this is; `about`: a sentence that must be the same on all."""
        token = os.urandom(_TOKEN)
        said = self._round(token + about.encode())
        mine = [i for i, s in enumerate(said) if s[:_TOKEN] == token]
        others = [i for i, s in enumerate(said) if s[_TOKEN:] != said[0][_TOKEN:]]
        if len(mine) != 1 or others:
            self.is_over = True
        if len(mine) != 1:
            raise WeightBridgeError(f"all_gather gave what this rank said {len(mine)} times: it must "
                                    "give what each rank said, once")
        if others:
            first, other = (said[i][_TOKEN:].decode() for i in (0, others[0]))
            raise WeightBridgeError(f"the ranks of group do not probe the same: rank 0 has {first}; "
                                    f"rank {others[0]} has {other}")
        self.index, self.n = mine[0], len(said)

    def agree(self, word):
        """The bitwise or of what all ranks say."""
        out = 0
        for s in self._round(struct.pack("<I", word)):
            out |= struct.unpack("<I", s)[0]
        return out

    def leave(self, error):
        """This rank has failed: the others hear it when they come to the next pass."""
        if self.is_over:
            return
        self.is_over = True
        text = f"{type(error).__name__}: {error}".encode()[:1000]
        told = threading.Thread(target=self._tell, args=(_FAILED + text,), daemon=True)
        told.start()
        told.join(_LEAVE)

    def _tell(self, data):
        try:
            self._gather(data)
        except Exception:  # noqa: B902 (what went wrong already is what counts)
            pass

    def _round(self, data):
        try:
            said = [bytes(s) for s in self._gather(_GOES_ON + data)]
        except BaseException as e:
            self.is_over = True
            if not isinstance(e, Exception):
                raise
            raise WeightBridgeError(f"all_gather raised {type(e).__name__}: {e} (has another rank "
                                    "ended?)") from e
        for i, s in enumerate(said):
            if s[:1] != _GOES_ON:
                self.is_over = True
                raise WeightBridgeError(f"rank {i} failed while the ranks probed together: "
                                        + s[1:].decode("utf-8", "replace"))
        return [s[1:] for s in said]


def of(group):
    """What `group` stands for; None: alone."""
    if group is None:
        return Alone()
    return group if isinstance(group, (Alone, Ranks)) else Ranks(group)
