# SPDX-License-Identifier: Apache-2.0
"""SenderAdapter and ReceiverAdapter against a scripted agent: their calls, and what they raise."""

import os
import struct
import tempfile
import threading
import time

import numpy as np

from fx_adapters import PARAMS, main, poll, raises, receiver, sender, test  # first: it finds the package

import fake_agent as fa
import weightbridge as wb


@test
def arguments_are_checked_before_anything_is_opened():
    load = len  # any callable
    raises(ValueError, "sender_staging", wb.SenderAdapter, load, params=PARAMS,
           sender_staging="Disk")
    raises(ValueError, "params is empty", wb.SenderAdapter, load)
    raises(TypeError, "load_weights", wb.SenderAdapter, 3, params=PARAMS)
    r = wb.ReceiverAdapter(load, params=PARAMS)
    raises(wb.WeightBridgeError, "connect", r.poll_requests)
    raises(wb.WeightBridgeError, "connect", r.fileno)
    raises(wb.WeightBridgeError, "connect", r.update, 0)
    r.close()
    e = raises(wb.WeightBridgeError, "/nonexistent/x", wb.SenderAdapter(
        load, params=PARAMS, socket="/nonexistent/x", connect_timeout=0.05).connect)
    assert isinstance(e, TimeoutError)


@test
def connect_attaches_and_tells_progress():
    def play(a):
        a.hello()
        play.attach = a.expect(fa.ATTACH)
        play.table = os.pread(a.fds[2], 1000, 0)
        a.attached()
        for n in (1, 2):
            a.send(fa.STATUS, f"waiting for {n} of 4 trainer workers")
        play.heard.wait(10)
        a.send(fa.PLANNED, 3, 5, "xxh128:" + "1" * 32, 40, 0)
        a.expect(fa.DETACH)

    play.heard, said = threading.Event(), []

    def progress(sentence):
        said.append(sentence)
        if "2 of 4" in sentence:
            play.heard.set()

    with fa.Script(play) as s:
        r = receiver(s.agent, object="ns/wt", model="actor", rank=3, receiver_staging="HostMemory")
        r.connect(10, progress=progress)
        assert r.worker == "worker-x"
        assert r.plan == {"term": 3, "number": 5, "digest": "xxh128:" + "1" * 32, "version": 40}
        raises(wb.WeightBridgeError, "already", r.connect)
        r.close()
        r.close()
        raises(wb.WeightBridgeError, "connect", r.poll_requests)
    assert said[-1] == "waiting for 2 of 4 trainer workers" and len(said) == len(set(said))
    obj, model, role, engine, rank, send, recv = play.attach[:7]
    assert (obj, model, role, engine, rank) == ("ns/wt", "actor", 2, "e0", 3)
    assert (send, recv) == (0, 2)
    n_mem, n_param = play.attach[10:12]
    assert n_param == 2 and len(play.table) == 24 * n_mem + 16 * n_param
    for i, array in enumerate(PARAMS.values()):
        mem, _, offset = struct.unpack_from("<IIQ", play.table, 24 * n_mem + 16 * i)
        kind, _, size, base = struct.unpack_from("<IIQQ", play.table, 24 * mem)
        assert kind == 2 and base + offset == array.ctypes.data
        assert offset + array.nbytes <= size and size % 4096 == 0


@test
def connect_probes_load_weights():
    pool = wb.SharedMemoryPool()
    params = {"qkv": pool.empty((6, 4), "F32"), "norm": np.full(4, 7, np.float32),
              "none": np.zeros((0, 4), np.float32)}
    params["qkv"][...] = 5
    manifest = [("q", (4, 4), "F32"), ("k", (2, 4), "F32"), ("norm", (4,), "F32")]

    def load_weights(weights):
        for name, tensor in weights:
            if name == "q":
                params["qkv"][:4] = tensor
            elif name == "k":
                params["qkv"][4:] = tensor
            else:
                params["norm"][...] = tensor

    def play(a):
        play.attach = a.up()
        play.blobs = a.blobs
        a.recv()

    with fa.Script(play) as s:
        t = wb.SenderAdapter(load_weights, params=params, manifest=manifest, socket=s.agent.path)
        with t.connect(10, progress=False):
            source = t.source_map
    assert (params["qkv"] == 5).all() and (params["norm"] == 7).all()  # as before
    assert source.param_names == ["qkv", "norm"]
    assert play.blobs[:2] == [source.manifest_blob(), source.map_blob()]
    assert play.attach[7:9] == [len(play.blobs[0]), len(play.blobs[1])]

    for bad, part in ((np.zeros((6, 5), np.float32), "F32 of shape (6, 5) with strides (5, 1), the "
                       "map has F32 of shape (6, 4) with strides (4, 1)"),
                      (np.zeros((4, 6), np.float32).T, "with strides (1, 6)"),
                      (np.zeros((6, 4), np.int32), "I32 of shape (6, 4)")):
        other = {"qkv": bad, "norm": params["norm"]}
        with fa.Script(lambda a: (a.hello(), a.recv())) as s:
            raises(wb.WeightBridgeError, part,
                   wb.SenderAdapter(None, params=other, source_map=source,
                                    socket=s.agent.path).connect)
    with fa.Script(lambda a: (a.hello(), a.recv())) as s:
        raises(wb.NotCopyError, "qkv", wb.SenderAdapter(
            lambda w: params["qkv"].__setitem__(slice(4), dict(w)["q"] * 2), params=params,
            manifest=manifest, socket=s.agent.path).connect)


class Half:
    """One of two ranks that look alike and hold different rows, with passes counted."""

    def __init__(self, rank):
        self.rank, self.passes, self.params = rank, 0, {"w": np.zeros((4, 4), np.float32)}

    def load(self, weights):
        self.passes += 1
        for _, tensor in weights:
            self.params["w"][...] = tensor[4 * self.rank:4 * self.rank + 4]

    def map_with(self, **options):
        """Its map, as an adapter finds it, and the passes that it took."""
        before = self.passes
        with fa.Script(lambda a: (a.up(), a.recv())) as s:
            t = wb.SenderAdapter(self.load, params=self.params, manifest=[("w", (8, 4), "F32")],
                                 rank=self.rank, socket=s.agent.path, **options)
            with t.connect(10, progress=False):
                return t.source_map.digest, self.passes - before


@test
def options_of_extraction_are_taken_by_the_adapter():
    with tempfile.TemporaryDirectory() as folder:
        ranks = [Half(0), Half(1)]
        first = [r.map_with(cache_dir=folder) for r in ranks]
        assert first[0][0] != first[1][0] and min(n for _, n in first) > 1, first
        # A second rank has not taken the place of the first: neither probes again.
        assert [r.map_with(cache_dir=folder) for r in ranks] == [(d, 1) for d, _ in first]
        assert ranks[0].map_with(cache_dir=folder, cache_key="other")[1] > 1
        for bound in ({"threads": 1}, {"n_hash": 1}):
            assert ranks[0].map_with(**bound) == first[0], bound
        assert ranks[0].map_with(n_hash=3) == (first[0][0], first[0][1] + 2)


@test
def reject_is_its_sentence():
    def play(a):
        a.hello()
        a.expect(fa.ATTACH)
        a.send(fa.REJECT, -17, "rank 0 is claimed twice: by worker-1 and worker-2")

    with fa.Script(play) as s:
        raises(wb.WeightBridgeError, "claimed twice: by worker-1", sender(s.agent).connect)


@test
def send_weights_returns_a_transfer():
    def play(a):
        a.up()
        assert a.expect(fa.SEND) == [70, 0]
        a.state(7, 1)
        a.state(7, 2)
        play.go.wait(10)
        a.state(7, 3, engines={"e0": "Committed", "e1": "Torn"})
        assert a.expect(fa.SEND) == [-1, fa.HOLD | fa.KEEP]
        a.state(8, 2)
        assert a.expect(fa.RELEASE) == [8]
        a.state(8, 3, fa.E_ABORTED, "all engines are gone")
        a.expect(fa.DETACH)

    play.go = threading.Event()
    with fa.Script(play) as s:
        with sender(s.agent, rank=0) as t:
            one = t.send_weights(70)
            assert (one.state, one.version, one.transfer) == ("released", 70, 7)
            e = raises(wb.WeightBridgeTimeout, "transfer 7", one.wait, 0.05)
            assert "after 0.1 s" in str(e), e
            play.go.set()
            assert one.wait(10) is one and one.state == "final"
            assert one.engines == {"e0": "Committed", "e1": "Torn"} and one.seconds == 1.5
            assert repr(one) == "<Transfer 7 version 70 final, 1 of 2 Torn>", one
            two = t.send_weights(hold=True)
            two.release()
            raises(wb.TransferAborted, "all engines are gone", two.wait)
            assert two.state == "failed" and "failed" in repr(two)
        assert one.engines == {"e0": "Committed", "e1": "Torn"}  # after close as well


@test
def failure_nobody_saw_comes_from_the_next_send_or_close():
    def play(a):
        a.up()
        for transfer in (1, 2):
            a.expect(fa.SEND)
            a.state(transfer, 2)
            play.returned.wait(10)
            play.returned.clear()
            a.state(transfer, 3, fa.E_ABORTED, f"cause {transfer}")
        a.expect(fa.DETACH)

    play.returned = threading.Event()
    with fa.Script(play) as s:
        t = sender(s.agent).connect()
        t.send_weights(1)
        play.returned.set()
        raises(wb.TransferAborted, "cause 1", t.send_weights, 2)
        t.send_weights(2)
        play.returned.set()
        raises(wb.TransferAborted, "cause 2", t.close)


@test
def receiver_runs_hooks_and_returns_updates():
    def play(a):
        a.up()
        for transfer in (1, 2):
            a.stop_far()
            a.expect(fa.PARKED)
            a.send(fa.BEGIN, transfer, transfer * 10)
            assert a.expect(fa.BEGUN) == [transfer, 0, ""]
            a.end(transfer, fa.COMMITTED)
            assert a.expect(fa.RESUMED) == [transfer, 0, ""]
        a.recv()

    seen = []
    with fa.Script(play) as s:
        with receiver(s.agent, before_update_hook=lambda v: seen.append(("before", v)),
                      after_update_hook=lambda v: seen.append(("after", v))) as r:
            one, two = poll(r), poll(r)
    assert (one.version, one.transfer, one.digest) == (10, 1, "xxh128:" + "2" * 32)
    assert two.version == 20
    assert seen == [("before", 10), ("after", 10), ("before", 20), ("after", 20)]


@test
def hook_that_raises_aborts_and_raises_here():
    def play(a):
        a.up()
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 1, 10)
        _, code, said = a.expect(fa.BEGUN)
        assert code < 0 and said == "KeyError: 'busy'", said
        a.end(1, fa.ABORTED, "worker-x: before_update_hook raised KeyError")
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 2, 20)
        a.expect(fa.BEGUN)
        a.end(2, fa.COMMITTED)
        _, code, said = a.expect(fa.RESUMED)
        assert code < 0 and said == "ValueError: cache"
        a.recv()

    def before(version):
        if version == 10:
            raise KeyError("busy")

    def after(version):
        raise ValueError("cache")

    with fa.Script(play) as s:
        with receiver(s.agent, before_update_hook=before, after_update_hook=after) as r:
            raises(KeyError, "busy", poll, r)
            assert r.last_abort == "worker-x: before_update_hook raised KeyError"
            r.last_abort = None
            assert r.poll_requests() is None
            raises(ValueError, "cache", poll, r)


@test
def aborted_update_is_none_and_says_why():
    def play(a):
        a.up()
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 1, 10)
        a.expect(fa.BEGUN)
        a.end(1, fa.ABORTED, "trainer-3 is gone")
        a.recv()

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            assert poll(r) is None and r.last_abort == "trainer-3 is gone"


@test
def torn_raises_until_repaired():
    def play(a):
        a.up()
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 1, 10)
        a.expect(fa.BEGUN)
        a.end(1, fa.TORN, "trainer-3 is gone")
        play.go.wait(10)
        a.send(fa.BEGIN, 2, 20)
        assert a.expect(fa.BEGUN)[1] < 0  # the hook would not have it
        a.end(2, fa.ABORTED, "worker-x: before_update_hook raised KeyError")
        a.send(fa.BEGIN, 3, 30)
        a.expect(fa.BEGUN)
        a.end(3, fa.COMMITTED)
        a.expect(fa.RESUMED)
        a.recv()

    def before(version):
        seen.append(("before", version, r.torn))
        if version == 20:
            raise KeyError("busy")

    def repaired():
        for _ in range(1000):
            try:
                return poll(r)
            except wb.WeightsTorn as e:
                causes.add(type(e.__cause__))
        raise AssertionError("no repair")

    play.go, seen, causes = threading.Event(), [], set()
    with fa.Script(play) as s:
        r = receiver(s.agent, repair_timeout=0.05, before_update_hook=before,
                     after_update_hook=lambda v: seen.append(("after", v, r.torn)))
        with r:
            assert not r.torn
            raises(wb.WeightsTorn, "trainer-3 is gone", poll, r)
            raises(wb.WeightsTorn, "do not serve", r.poll_requests)
            assert r.torn and seen == [("before", 10, False)], seen
            play.go.set()
            assert repaired().transfer == 3 and not r.torn
            assert causes <= {type(None), KeyError}, causes
    assert seen == [("before", 10, False), ("before", 20, True), ("before", 30, True),
                    ("after", 30, False)], seen


@test
def idle_poll_costs_little():
    def play(a):
        a.up()
        a.recv()

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            runs, n = [], 200000
            for _ in range(7):
                f = r.poll_requests
                t0 = time.perf_counter_ns()
                for _ in range(n):
                    f()
                runs.append((time.perf_counter_ns() - t0) / n)
    print(f"idle poll_requests: {sorted(runs)[3]:.0f} ns (median of 7)")


if __name__ == "__main__":
    main()
