# SPDX-License-Identifier: Apache-2.0
"""Says how far a long call is: at once on a terminal, a plain line now and then elsewhere."""

import logging
import sys
import threading
import time

_log = logging.getLogger("weightbridge")

_EVERY = 10.0  # s between lines where there is no terminal
_WRITTEN_OVER = 0.2  # s between those of a terminal, which are


def is_terminal():
    return sys.stderr is not None and sys.stderr.isatty()


def line(sentence):
    print(f"weightbridge: {sentence}", file=sys.stderr, flush=True)


class Repeated:
    """A warning in the log at once, and every 10 s while it goes on."""

    def __init__(self, call):
        self._call, self._begin, self._next = call, time.monotonic(), 0.0

    def say(self, sentence):
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            _log.warning("%s waits, for %.0f s now: %s", self._call, now - self._begin, sentence)


class Probing:
    """`wish`: a callable that gets sentences; True: stderr; None: only a terminal."""

    def __init__(self, wish):
        self._tell = wish if callable(wish) else None
        self._is_line = wish in (True, None) and not self._tell and is_terminal()
        self._is_plain = wish is True and not self._is_line
        self._every = _EVERY if self._is_plain else _WRITTEN_OVER
        self._next = time.monotonic() + (_EVERY if self._is_plain else 0)

    def say(self, sentence):
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        if self._tell:
            self._tell(sentence)
        elif self._is_line:
            print(f"\r\033[Kweightbridge: {sentence}", end="", file=sys.stderr, flush=True)
        elif self._is_plain:
            line(sentence)

    def end(self):
        if self._is_line:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Waiting:
    """While connect() runs without a terminal, and nobody asked for its sentences: every 10 s a
    warning in the log (`wish` None) or a line on stderr (True) with what it is at."""

    def __init__(self, wish):
        self.is_quiet = wish in (True, None) and not callable(wish) and not is_terminal()
        self._emit = line if wish is True else lambda text: _log.warning("%s", text)
        self._sentence = ""
        self._over = threading.Event()
        self._thread = None

    def at(self, sentence):
        self._sentence = sentence

    def __enter__(self):
        if self.is_quiet:
            self._thread = threading.Thread(target=self._run, name="weightbridge-connect",
                                            daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self._over.set()
        if self._thread:
            self._thread.join()

    def _run(self):
        begin = time.monotonic()
        while not self._over.wait(_EVERY):
            self._emit(f"connect() has waited for {time.monotonic() - begin:.0f} s: "
                       f"{self._sentence}")
