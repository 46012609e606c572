# SPDX-License-Identifier: Apache-2.0
"""What tests of the adapters have in common: adapters of a scripted agent, and a list of tests."""

import os
import sys
import time

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), os.path.dirname(os.path.abspath(__file__))]

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402

TESTS = []


def test(f):
    TESTS.append(f)
    return f


class FakeMap:
    """Stands for a SourceMap: what attach needs of it."""

    notes = gaps = ""
    unmapped = ()
    outside = {}  # noqa: RUF012 (nobody writes it)

    def __init__(self, params):
        self.param_names, self.params = list(params), params

    def check(self, name, value, for_writing):
        assert value.shape == self.params[name].shape

    def write_constants(self, params):
        pass

    def manifest_blob(self):
        return b"manifest"

    def map_blob(self):
        return b"source map"


def raises(kind, part, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind as e:
        assert part in str(e), f"{part!r} is not in: {e}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


PARAMS = {"a": np.zeros(100, np.float32), "b": np.zeros((8, 8), np.float32)}


def sender(agent, **kw):
    return wb.SenderAdapter(None, params=PARAMS, source_map=FakeMap(PARAMS),
                            socket=agent.path, connect_timeout=10, reconnect_timeout=5, **kw)


def receiver(agent, **kw):
    return wb.ReceiverAdapter(None, params=PARAMS, source_map=FakeMap(PARAMS), engine="e0",
                              socket=agent.path, connect_timeout=10, **kw)


def poll(r, bound=20.0):
    end = time.monotonic() + bound
    while time.monotonic() < end:
        update = r.poll_requests()
        if update is not None or r.last_abort:
            return update
    raise AssertionError("no update")


def main():
    """Run what is marked @test, in order."""
    for f in TESTS:
        t0 = time.monotonic()
        try:
            f()
        except BaseException:
            print(f"FAIL {f.__name__}", flush=True)
            raise
        print(f"ok   {f.__name__} {(time.monotonic() - t0) * 1000:.0f} ms", flush=True)
