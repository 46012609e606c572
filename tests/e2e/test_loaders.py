# SPDX-License-Identifier: Apache-2.0
"""The Python adapters at real agents: loaders that do what cannot be planned, damaged caches, and
buffers that are small."""
import contextlib
import os
import sys
import threading
import time

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path.insert(0, os.path.join(TOP, "agent", "python"))

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from cluster import Cluster, SLOW, run  # noqa: E402
from test_transfer import deploy, send, sent, updated  # noqa: E402

ROWS, COLS = 96, 64
MANIFEST = [("w", (ROWS, COLS), "F32"), ("b", (ROWS,), "F32")]
WAIT = 30.0 * SLOW


class Model:
    """A worker's parameters and a loader that copies; others bend `load`."""

    def __init__(self, fill=0.0):
        self.params = {"weight": np.full((ROWS, COLS), fill, np.float32),
                       "bias": np.full(ROWS, fill, np.float32)}

    def load(self, weights):
        for name, t in weights:
            self.params["weight" if name == "w" else "bias"][...] = t


class Raises(Model):
    def load(self, weights):
        super().load(weights)
        raise KeyError("layers.9 is not in the index")


class Rebinds(Model):
    def load(self, weights):
        super().load(weights)
        self.params["bias"] = self.params["bias"].copy()


class Calculates(Model):
    def load(self, weights):
        super().load(weights)
        self.params["weight"][3:5] *= 2


class Shuffles(Model):
    def __init__(self, fill=0.0):
        super().__init__(fill)
        self.rng = np.random.default_rng(3)

    def load(self, weights):
        super().load(weights)
        self.params["bias"][...] = self.rng.permutation(self.params["bias"])


def adapter(c, kind, model, **kw):
    if kind is wb.ReceiverAdapter:
        kw["engine"] = "e0"
    return kind(model.load, params=model.params, manifest=MANIFEST, socket=c.agents["pod"].socket,
                connect_timeout=WAIT, **kw)


def connected(*adapters):
    """connect() waits for the others, so each has a thread."""
    bad = []

    def one(a):
        try:
            a.connect()
        except Exception as e:  # noqa: BLE001
            bad.append(e)
    threads = [threading.Thread(target=one, args=(a,), daemon=True) for a in adapters]
    for t in threads:
        t.start()
    for t in threads:
        t.join(WAIT)
        assert not t.is_alive(), "connect() hangs"
    assert not bad, bad


@contextlib.contextmanager
def joined(s, r):
    """Adapters of a trainer and an engine in one pod that have a plan, until they are closed."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        sender, receiver = adapter(c, wb.SenderAdapter, s), adapter(c, wb.ReceiverAdapter, r)
        connected(sender, receiver)
        yield sender, receiver
        receiver.close()
        sender.close()


def transfer(sender, s, receiver, r, version):
    new = np.random.default_rng(version)
    for p in s.params.values():
        p[...] = new.standard_normal(p.shape, np.float32)
    done = threading.Thread(target=sender.send_weights, args=(version,), daemon=True)
    done.start()
    end, update = time.monotonic() + WAIT, None
    while update is None and time.monotonic() < end:
        update = receiver.poll_requests()
    done.join(WAIT)
    assert update and update.version == version, receiver.last_abort
    for name, p in s.params.items():
        assert p.tobytes() == r.params[name].tobytes(), name


def loaders_that_cannot_be_planned_are_named_and_harm_nobody():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        for bad, kind, words in (
                (Raises, wb.LoadWeightsError, ("KeyError", "pass 1 of 5")),
                (Rebinds, wb.NotCopyError, ("parameter bias", "its storage was moved")),
                (Calculates, wb.NotCopyError, ("parameter weight: rows 3..4", "arithmetic")),
                (Shuffles, wb.NotCopyError, ("parameter bias",))):
            for side in (wb.SenderAdapter, wb.ReceiverAdapter):
                m = bad(7.0)
                first = dict(m.params)
                before = {k: p.tobytes() for k, p in first.items()}
                never = {"whole": False} if side is wb.ReceiverAdapter else {}
                a = adapter(c, side, m, **never)
                try:
                    a.connect()
                    raise AssertionError(f"{bad.__name__} was planned")
                except kind as e:
                    for w in words:
                        assert w in str(e), (bad.__name__, w, str(e))
                a.close()
                assert {k: p.tobytes() for k, p in first.items()} == before, bad.__name__
        s, r = Model(), Model()
        sender, receiver = adapter(c, wb.SenderAdapter, s), adapter(c, wb.ReceiverAdapter, r)
        connected(sender, receiver)
        for v in (1, 2):
            transfer(sender, s, receiver, r, v)
        receiver.close()
        sender.close()


class Derives:
    """A module, as torch's: beside its parameters a tensor that load_weights derives from one."""

    def __init__(self, fill=0.0):
        self._parameters = {"weight": np.full((ROWS, COLS), fill, np.float32),
                            "bias": np.full(ROWS, fill, np.float32)}
        self.w_t = np.full((COLS, ROWS), fill, np.float32)

    def named_parameters(self):
        yield from self._parameters.items()

    def named_modules(self):
        yield "", self

    def load(self, weights):
        for name, t in weights:
            self._parameters["weight" if name == "w" else "bias"][...] = t
        self.w_t[...] = self._parameters["weight"].T


def what_a_loader_derives_is_transferred_with_its_module():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        s, r = Model(), Derives()
        r.params = dict(r.named_parameters())
        try:  # the dict does not have it, so that a transfer would leave it as it is
            adapter(c, wb.ReceiverAdapter, r).connect()
            raise AssertionError("a derived tensor was left out")
        except wb.UnmappedError as e:
            assert e.names == ["w_t of Derives"], e
            assert "w_t of Derives (outside of params, load_weights writes it)" in str(e), e
        assert not r.w_t.any()
        sender = adapter(c, wb.SenderAdapter, s)
        receiver = wb.ReceiverAdapter(r.load, params=r, manifest=MANIFEST, engine="e0",
                                      socket=c.agents["pod"].socket, connect_timeout=WAIT)
        connected(sender, receiver)
        for version in (1, 2):
            transfer(sender, s, receiver, r, version)
            assert r.w_t.tobytes() == s.params["weight"].T.tobytes()
        r.w_t, first = r.w_t.copy(), r.w_t
        raised = []
        poll = threading.Thread(target=lambda: raised.append(refused(wb.ParametersMoved, receiver)),
                                daemon=True)
        poll.start()
        try:
            sender.send_weights(3).wait(WAIT)
            raise AssertionError("an attribute that moved was written")
        except wb.TransferAborted as e:
            assert "parameter w_t (its storage is another one)" in str(e), e
        poll.join(WAIT)
        assert raised and raised[0].names == ["w_t"], raised
        receiver.rebind(timeout=WAIT)
        transfer(sender, s, receiver, r, 4)
        assert r.w_t.tobytes() == s.params["weight"].T.tobytes() != first.tobytes()
        receiver.close()
        sender.close()


class Pads(Model):
    """Rows that are padding, written by load_weights alone; dummy weights were put there before."""

    def __init__(self, fill=0.0):
        super().__init__(fill)
        self.params["weight"] = np.full((ROWS + 8, COLS), fill, np.float32)

    def load(self, weights):
        for name, t in weights:
            if name == "w":
                self.params["weight"][:ROWS], self.params["weight"][ROWS:] = t, 0
            else:
                self.params["bias"][...] = t


def tensors_of_types_that_are_only_moved_arrive():
    manifest = [*MANIFEST, ("steps", (5,), "I64"), ("scale", (3, 2), "F64"), ("mask", (7,), "BOOL"),
                ("odd", (4,), "C128")]

    class Mixed(Model):
        def __init__(self, fill):
            super().__init__(fill)
            self.params |= {"steps": np.full(5, int(fill)), "scale": np.full((2, 3), fill),
                            "mask": np.full(7, bool(fill))}

        def load(self, weights):
            for name, t in weights:
                name = {"w": "weight", "b": "bias"}.get(name, name)
                self.params[name][...] = t.T if name == "scale" else t

    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        s, r = Mixed(0.0), Mixed(1.0)
        common = {"manifest": manifest, "leave_out": ["odd"], "connect_timeout": WAIT,
                  "socket": c.agents["pod"].socket}
        sender = wb.SenderAdapter(s.load, params=s.params, **common)
        receiver = wb.ReceiverAdapter(r.load, params=r.params, engine="e0", **common)
        connected(sender, receiver)
        s.params["steps"][:] = [1, -1, 2**62, -2**63, 3]
        s.params["scale"][:] = [[np.pi, np.inf, -0.0], [5e-324, np.nan, 1]]
        s.params["mask"][:] = [True, False] * 3 + [True]
        done = threading.Thread(target=sender.send_weights, args=(1,), daemon=True)
        done.start()
        assert receiver.update(WAIT).version == 1
        done.join(WAIT)
        for name, p in s.params.items():
            assert p.tobytes() == r.params[name].tobytes(), name
        receiver.close()
        sender.close()


def what_a_loader_pads_with_is_written_once():
    s, r = Model(), Pads(7.0)
    with joined(s, r) as (sender, receiver):
        assert not r.params["weight"][ROWS:].any() and (r.params["weight"][:ROWS] == 7).all()
        padded, r.params = r.params, {k: p[:ROWS] for k, p in r.params.items()}
        transfer(sender, s, receiver, r, 1)
        assert not padded["weight"][ROWS:].any()
        receiver.release_memory(WAIT)
        again = {k: np.full_like(p, 5) for k, p in padded.items()}  # memory that never held weights
        receiver.acquire_memory(again, timeout=WAIT)
        assert not again["weight"][ROWS:].any() and (again["weight"][:ROWS] == 5).all()
        receiver.release_memory(WAIT)
        again["weight"][ROWS:] = 3
        receiver.acquire_memory(again, kept=True, timeout=WAIT)  # as it was left
        assert (again["weight"][ROWS:] == 3).all()


def refused(kind, receiver):
    try:
        receiver.update(WAIT)
    except kind as e:
        return e


def a_damaged_cache_is_never_believed():
    with Cluster() as c:
        d = c.path("cache")
        os.mkdir(d)
        m = Model()
        good = wb.extract(m.load, MANIFEST, m.params, cache_dir=d).digest
        path = os.path.join(d, os.listdir(d)[0])
        with open(path, "rb") as f:
            whole = f.read()
        for data in [whole[:n] for n in range(0, len(whole), 37)] + [
                whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1:]
                for i in range(len(whole))] + [whole + b"x", b"", os.urandom(len(whole))]:
            with open(path, "wb") as f:
                f.write(data)
            m = Model()
            got = wb.extract(m.load, MANIFEST, m.params, cache_dir=d)
            assert got.digest == good and (got.notes or data == whole), (len(data), got.notes)
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        with open(path, "wb") as f:
            f.write(whole[:100] + b"\xff" * 8 + whole[108:])
        s, r = Model(), Model()
        sender = adapter(c, wb.SenderAdapter, s, cache_dir=d)
        receiver = adapter(c, wb.ReceiverAdapter, r, cache_dir=d)
        connected(sender, receiver)
        transfer(sender, s, receiver, r, 1)
        receiver.close()
        sender.close()


def checkpoints_that_differ_are_named_by_tensor():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("pod")
        s, r = Model(), Model()
        other = [("w", (ROWS + 8, COLS), "BF16"), MANIFEST[1]]
        r.params["weight"] = np.zeros((ROWS, COLS), np.uint16)

        def load(weights):
            for name, t in weights:
                r.params["weight" if name == "w" else "bias"][...] = t[:ROWS]

        sender = adapter(c, wb.SenderAdapter, s)
        receiver = wb.ReceiverAdapter(load, params=r.params, manifest=other, engine="e0",
                                      socket=c.agents["pod"].socket, connect_timeout=WAIT)
        errors = []

        def connect(a):
            try:
                a.connect(WAIT)
            except wb.WeightBridgeError as e:
                errors.append(str(e))
        threads = [threading.Thread(target=connect, args=(a,), daemon=True)
                   for a in (sender, receiver)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(WAIT)
        assert len(errors) == 2, errors
        for e in errors:
            assert "w: trainer F32 [96,64], rollout BF16 [104,64]; all must list" in e, errors


# ---- buffers


def tensors_larger_than_the_buffer_are_cut():
    with Cluster() as c:
        t, r = deploy(c, trainers=1, per_engine=1, args=("--buffer", "8Mi"), rows=4096, cols=1024,
                      tensors=2)
        for v in (1, 2):
            send(t, v)
            sent(t, v, "e0=Committed")
            updated(r["e0"], v)


def a_buffer_below_the_minimum_is_named():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1, planDeadlineSeconds=5)
        c.agent("t0", "--buffer", "1Mi")
        c.agent("r0")
        t = c.worker("t0", "trainer", rows=8192, cols=2048, tensors=2)
        r = c.worker("r0", "rollout", engine="e0", cut="cols", rows=8192, cols=2048, tensors=2)
        c.agents["t0"].expect(r"plan refused .*(1048576|1 MiB|1.0 MiB|buffer|slots)", reject=None)
        for w in (t, r):
            w.expect(r"error .*(buffer|slots)", reject=None)


if __name__ == "__main__":
    tests = [loaders_that_cannot_be_planned_are_named_and_harm_nobody,
             what_a_loader_derives_is_transferred_with_its_module,
             what_a_loader_pads_with_is_written_once,
             tensors_of_types_that_are_only_moved_arrive,
             checkpoints_that_differ_are_named_by_tensor,
             a_damaged_cache_is_never_believed, tensors_larger_than_the_buffer_are_cut,
             a_buffer_below_the_minimum_is_named]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
