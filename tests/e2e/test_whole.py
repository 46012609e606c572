# SPDX-License-Identifier: Apache-2.0
"""Loaders that calculate: the checkpoint comes whole and goes through them at each update, where they make the same of it
each time."""
import logging
import os
import sys
import threading

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path.insert(0, os.path.join(TOP, "agent", "python"))

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from cluster import Cluster, run  # noqa: E402
from test_loaders import COLS, ROWS, WAIT, Calculates, Model, Rebinds, Shuffles, adapter, connected, joined  # noqa: E402


class Quantises(Model):
    """Rows as bytes with a scale each: nothing of the weight is a copy."""

    def __init__(self, fill=0.0):
        super().__init__(fill)
        self.params["weight"] = np.full((ROWS, COLS), int(fill), np.int8)
        self.params["scale"] = np.full((ROWS, 1), fill, np.float32)

    def load(self, weights):
        for name, t in weights:
            if name == "w":
                self.params["scale"][...] = np.abs(t).max(1, keepdims=True) / 127
                self.params["weight"][...] = np.rint(t / self.params["scale"])
                t -= t  # what it is given is its own
            else:
                self.params["bias"][...] = t


class Fails(Quantises):
    """When it is told to, between two tensors."""

    fails = False

    def load(self, weights):
        super().load(weights)
        if self.fails:
            raise KeyError("layers.9 is not in the index")


class Adds(Model):
    """To what is there: right for the first load alone."""

    def load(self, weights):
        for name, t in weights:
            self.params["weight" if name == "w" else "bias"][...] += t


class Once(Calculates):
    """And a parameter that is written by nobody."""

    def __init__(self, fill=0.0):
        super().__init__(fill)
        self.params["left"] = np.full(3, fill, np.float32)


class Log(logging.Handler):
    """What the package says, while the block runs."""

    def __enter__(self):
        self.said = []
        logging.getLogger("weightbridge").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("weightbridge").removeHandler(self)

    def emit(self, record):
        self.said.append(record.getMessage())


def loaded(kind, s):
    """What a loader makes of the sender's parameters, over something else."""
    m = kind(3.0)
    m.load([("w", s.params["weight"].copy()), ("b", s.params["bias"].copy())])
    return {n: p.tobytes() for n, p in m.params.items()}


def send_whole(sender, s, receiver, version):
    new = np.random.default_rng(version)
    for p in s.params.values():
        p[...] = new.standard_normal(p.shape, np.float32)
    done = threading.Thread(target=sender.send_weights, args=(version,), daemon=True)
    done.start()
    try:
        update = receiver.update(WAIT)
        assert update and update.version == version, receiver.last_abort
    finally:
        done.join(WAIT)


def a_loader_that_calculates_gets_the_checkpoint_whole():
    with Cluster() as c, Log() as log:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        for kind, more, words in ((Quantises, {}, "parameter weight: rows"), (Model, {"whole": True}, "whole=True:")):
            s, r, hooked = Model(), kind(7.0), []
            before = {n: (p.tobytes(), p.ctypes.data) for n, p in r.params.items()}
            sender = adapter(c, wb.SenderAdapter, s)
            receiver = adapter(c, wb.ReceiverAdapter, r, after_update_hook=lambda v, r=r, at=hooked: at.append(
                (v, {n: p.tobytes() for n, p in r.params.items()})), **more)
            connected(sender, receiver)
            assert {n: (p.tobytes(), p.ctypes.data) for n, p in r.params.items()} == before
            said, = [x for x in log.said if "receives the checkpoint whole, in 0.0 MiB" in x]
            assert words in said and "whole=False" in said, said
            for version in (1, 2):
                send_whole(sender, s, receiver, version)
                assert hooked.pop() == (version, loaded(kind, s)), "the hook saw something else"
                kept = receiver._whole.params["w"][0]  # what another engine may be fed from
                assert kept.tobytes() == s.params["weight"].tobytes(), "load_weights changed what has come"
            assert {n: p.ctypes.data for n, p in r.params.items()} == {n: at for n, (_, at) in before.items()}
            receiver.close()
            sender.close()
            log.said.clear()


def a_loader_that_cannot_load_again_gets_nothing_whole():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        for bad, more, words in ((Adds, {}, "arithmetic"), (Adds, {"whole": True}, "does not make weight, bias of the checkpoint"),
                                 (Once, {}, "arithmetic"), (Once, {"whole": True}, "does not make left of the checkpoint"),
                                 (Rebinds, {}, "its storage was moved"), (Shuffles, {}, "parameter bias")):
            m = bad(7.0)
            first = dict(m.params)
            a = adapter(c, wb.ReceiverAdapter, m, **more)
            try:
                a.connect()
                raise AssertionError(f"{bad.__name__} was planned")
            except wb.NotCopyError as e:
                assert words in str(e), (bad.__name__, str(e))
            assert all((p == 7).all() for p in first.values()), bad.__name__
        s, r = Model(), Once(7.0)
        sender, receiver = adapter(c, wb.SenderAdapter, s), adapter(c, wb.ReceiverAdapter, r, allow_unmapped=["le*"])
        connected(sender, receiver)
        send_whole(sender, s, receiver, 1)
        assert (r.params["left"] == 7).all() and r.params["weight"].tobytes() == loaded(Calculates, s)["weight"]
        receiver.close()
        sender.close()


def a_load_that_fails_is_told_and_the_next_update_heals_it():
    s, r = Model(), Fails(7.0)
    with joined(s, r) as (sender, receiver):
        send_whole(sender, s, receiver, 1)
        r.fails = True
        try:
            send_whole(sender, s, receiver, 2)
            raise AssertionError("a load that failed was taken for an update")
        except wb.WeightBridgeError as e:
            assert "version 2 is here, and load_weights raised KeyError" in str(e) and "do not serve" in str(e), e
        assert receiver.torn
        r.fails = False
        send_whole(sender, s, receiver, 3)
        assert not receiver.torn and {n: p.tobytes() for n, p in r.params.items()} == loaded(Quantises, s)
        receiver.release_memory(WAIT)  # the engine's parameters go to sleep, and wake up elsewhere
        r.params = {n: np.zeros_like(p) for n, p in r.params.items()}
        receiver.acquire_memory(r.params, kept=True, timeout=WAIT)
        send_whole(sender, s, receiver, 4)
        assert {n: p.tobytes() for n, p in r.params.items()} == loaded(Quantises, s)


if __name__ == "__main__":
    tests = [a_loader_that_calculates_gets_the_checkpoint_whole, a_loader_that_cannot_load_again_gets_nothing_whole,
             a_load_that_fails_is_told_and_the_next_update_heals_it]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
