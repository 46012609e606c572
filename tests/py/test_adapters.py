# SPDX-License-Identifier: Apache-2.0
"""SenderAdapter, ReceiverAdapter and shared memory against a scripted agent."""

import functools
import gc
import logging
import os
import select
import signal
import struct
import sys
import threading
import time
import weakref

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), os.path.dirname(os.path.abspath(__file__))]

import numpy as np  # noqa: E402

import fake_agent as fa  # noqa: E402
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


@test
def reject_is_its_sentence():
    def play(a):
        a.hello()
        a.expect(fa.ATTACH)
        a.send(fa.REJECT, -17, "rank 0 is claimed twice: by worker-1 and worker-2")

    with fa.Script(play) as s:
        raises(wb.WeightBridgeError, "claimed twice: by worker-1", sender(s.agent).connect)


@test
def plan_that_does_not_come_names_who_is_missing():
    def play(a):
        a.hello()
        a.expect(fa.ATTACH)
        a.attached()
        a.send(fa.STATUS, "waiting for rollout worker e1/0")
        a.recv()

    with fa.Script(play) as s:
        e = raises(wb.WeightBridgeTimeout, "e1/0", sender(s.agent).connect, 0.1, False)
        assert "within 0.1 s" in str(e), e


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


class Tensor:
    """Like torch's: another storage may come under the same object."""

    class device:  # noqa: N801
        type = "cpu"

    def __init__(self, data):
        self.data = data

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self):
        return tuple(s // self.data.itemsize for s in self.data.strides)

    def element_size(self):
        return self.data.itemsize

    def detach(self):
        return Tensor(self.data)


def moves():
    """name -> (parameters, what moves them, what is said, what brings them back)."""
    owner = np.zeros(100, np.float32)
    bias, weight = Tensor(owner), np.zeros((8, 8), np.float32)
    params = {"bias": bias, "weight": weight}

    def put(data):
        return lambda: setattr(bias, "data", data)

    cases = {
        "another storage": (put(np.zeros(100, np.float32)), "parameter bias (its storage is another"),
        "another type": (put(np.zeros(100, np.float64)), "it was float32 of shape (100,)"),
        "another shape": (put(owner[:50]), "it is float32 of shape (50,)"),
        "other strides": (put(np.zeros(200, np.float32)[::2]), "with strides (2,)"),
        "another array": (lambda: params.update(weight=weight.copy()), "parameter weight (its"),
        "none": (lambda: params.pop("weight"), "parameter weight (it is not in params any more)"),
        "less storage": (lambda: owner.resize(10, refcheck=False), "parameter bias ("),
    }

    def back():
        owner.resize(100, refcheck=False)
        bias.data = owner
        params["weight"] = weight

    return params, cases, back


@test
def parameters_that_moved_are_not_sent():
    def play(a):
        a.up()
        play.detached = a.recv()[0] in (fa.DETACH, 0)  # and no SEND

    params, cases, back = moves()
    with fa.Script(play) as s:
        t = wb.SenderAdapter(None, params=params, source_map=FakeMap(params), socket=s.agent.path,
                             connect_timeout=10).connect()
        for what, (move, said) in cases.items():
            if what == "less storage":
                continue  # it cannot come back: the last of all
            move()
            e = raises(wb.ParametersMoved, said, t.send_weights, 1)
            same = what in ("another storage", "another array")
            assert ("call rebind()" if same else "connect a new one") in str(e), (what, str(e))
            assert e.names == ["weight" if "weight" in said else "bias"]
            back()
        cases["less storage"][0]()
        raises(wb.ParametersMoved, cases["less storage"][1], t.send_weights, 1)
        t.close()
    assert play.detached


class Router:
    """A module whose bias is another tensor after the first forward; no dict shows that."""

    def __init__(self):
        self._parameters = {"weight": np.zeros((4, 4), np.float32)}
        self._buffers = {"bias": np.zeros(4, np.float32)}
        self.scale = np.zeros(3, np.float32)  # nobody's parameter

    def named_parameters(self):
        yield from self._parameters.items()

    def named_modules(self):
        yield "", self

    def load_weights(self, weights):
        raise AssertionError("a map was given")


@test
def a_module_that_has_other_tensors_than_params_is_noticed():
    def play(a):
        a.up()
        play.said = a.recv()[0]

    router = Router()
    params = {"r.weight": router._parameters["weight"], "r.bias": router._buffers["bias"]}
    for load in (router.load_weights, lambda w: router.load_weights(w)):
        with fa.Script(play) as s:
            t = wb.SenderAdapter(load, params=params, source_map=FakeMap(params),
                                 socket=s.agent.path, connect_timeout=10).connect()
            first = router._buffers["bias"]
            router.scale = router.scale + 0
            for other in (first.astype(np.float64), first + 0, None):
                router._buffers["bias"] = other
                e = raises(wb.ParametersMoved, "parameter r.bias (its module has another tensor in its "
                           "place): not where connect() found it; call rebind()", t.send_weights, 1)
                assert e.names == ["r.bias"] and "with params as they are now" in str(e)
            router._buffers["bias"] = first[:]  # another object, the same memory
            t._check_places()
            router._buffers["bias"] = first
            t.close()
        assert play.said in (fa.DETACH, 0)


@test
def parameters_that_get_nothing_are_an_error():
    """An engine that packed its weights into other memory: what is left of them has no elements, or
    is not what load_weights writes."""
    def play(a):
        for _ in range(10):  # calls of connect() below
            a.hello()
            if a.recv()[0] == fa.ATTACH:
                a.attached()
                a.send(fa.PLANNED, 3, 5, "xxh128:" + "1" * 32, -1, 0)
                a.recv()

    params = {"qkv.weight": np.zeros((6, 4), np.float32), "o.weight": np.zeros(0, np.float32),
              "norm": np.zeros(4, np.float32), "rotary.cos": np.zeros(7, np.float32)}

    def load(weights):
        for name, t in weights:
            if name == "q":
                params["qkv.weight"][:4] = t

    def connect(kind, given=None, **options):
        with kind(load, params=given or params, manifest=[("q", (4, 4), "F32"), ("o", (2, 2), "F32")],
                  socket=s.agent.path, connect_timeout=10, **options) as a:
            return a.source_map

    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    log = logging.getLogger("weightbridge")
    log.addHandler(handler)
    log.propagate = False
    with fa.Script(play) as s:
        rollout = functools.partial(connect, wb.ReceiverAdapter, engine="e0")
        why = {"norm": "load_weights does not write it", "rotary.cos": "load_weights does not write it",
               "o.weight": "it has no elements"}
        for allowed, left in ((False, list(why)), ((), list(why)), ("rotary.*", ["norm", "o.weight"]),
                              (["norm", "rot*"], ["o.weight"]), (["o"], list(why))):
            e = raises(wb.UnmappedError, f"{len(left)} parameter", rollout, allow_unmapped=allowed)
            assert e.names == left and all(f"{n} ({why[n]})" in str(e) for n in left), (left, e)
        e = raises(wb.UnmappedError, "2 parameters get nothing", connect, wb.SenderAdapter)
        assert e.names == ["norm", "rotary.cos"], e.names  # an uneven shard is no fault of a trainer
        assert "parameters without elements (1): o.weight" in said
        made = rollout(allow_unmapped=True)
        rollout(allow_unmapped=("norm", "*.cos", "o.*"))
        other = {**params, "late": np.zeros(4, np.float32)}
        e = raises(wb.UnmappedError, "late (the source map does not have it)", connect,
                   wb.SenderAdapter, other, source_map=made, allow_unmapped=["norm", "rotary.cos"])
        connect(wb.SenderAdapter, source_map=made, allow_unmapped=True)
    log.removeHandler(handler)
    log.propagate = True
    for line in ("tensors that go into no parameter here (1 of 2): o (as",
                 "parameters that load_weights does not write (2 of 3): norm, rotary.cos",
                 "parameters that load_weights writes in part (1 of 3): qkv.weight (not 8 of 24 elements)"):
        assert any(x.startswith(line) for x in said), (line, said)


@test
def memory_that_is_attached_outlives_its_parameters():
    def play(a):
        a.up()
        play.go.wait(10)
        a.recv()

    play.go = threading.Event()
    tensor, tell = Tensor(np.zeros(100, np.float32)), []
    weakref.finalize(tensor.data, tell.append, "freed")
    with fa.Script(play) as s:
        t = wb.SenderAdapter(None, params={"a": tensor}, source_map=FakeMap({"a": tensor}),
                             socket=s.agent.path, connect_timeout=10).connect()
        tensor.data = np.ones(100, np.float32)
        gc.collect()
        assert not tell, "the agent may read it"
        play.go.set()
        t.close()
        gc.collect()
        assert tell == ["freed"]


@test
def parameters_that_moved_are_not_written():
    def play(a):
        a.up()
        for transfer in (1, 2):
            a.stop_far()
            a.expect(fa.PARKED)
            a.send(fa.BEGIN, transfer, transfer * 10)
            _, code, said = a.expect(fa.BEGUN)
            assert code < 0 and said.startswith("ParametersMoved: parameter bias ("), said
            a.end(transfer, fa.ABORTED, "worker-x: " + said)
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 3, 30)
        assert a.expect(fa.BEGUN)[1] == 0
        a.end(3, fa.COMMITTED)
        a.expect(fa.RESUMED)
        a.recv()

    params, _, _ = moves()
    first, hooks = params["bias"].data, []

    def before(version):
        hooks.append(version)
        if version == 20:
            params["bias"].data = first.copy()

    with fa.Script(play) as s:
        with wb.ReceiverAdapter(None, params=params, source_map=FakeMap(params), engine="e0",
                                socket=s.agent.path, connect_timeout=10,
                                before_update_hook=before) as r:
            params["bias"].data = first.copy()
            raises(wb.ParametersMoved, "call rebind()", poll, r)
            assert hooks == [] and r.last_abort.startswith("worker-x: ParametersMoved")
            params["bias"].data, r.last_abort = first, None
            raises(wb.ParametersMoved, "call rebind()", poll, r)  # moved by the hook
            params["bias"].data, r.last_abort = first, None
            assert poll(r).version == 30 and hooks == [20, 30]


@test
def second_thread_inside_send_weights_is_told_so():
    def play(a):
        a.up()
        a.expect(fa.SEND)
        a.state(1, 2)
        play.go.wait(10)
        a.state(1, 3)
        a.expect(fa.SEND)
        a.state(2, 3)
        a.recv()

    play.go = threading.Event()
    with fa.Script(play) as s:
        t = sender(s.agent).connect()
        t.send_weights(1)

        def send_second():
            while True:  # either of the two may be the one that is told
                try:
                    return t.send_weights(2)
                except wb.WeightBridgeError as e:
                    assert "another thread" in str(e), e
                    time.sleep(0.001)

        second = threading.Thread(target=send_second)
        second.start()
        for _ in range(10000):  # until the other one is inside
            e = raises(wb.WeightBridgeError, "", t.send_weights, 3, timeout=0)
            if "another thread" in str(e):
                break
            time.sleep(0.001)
        assert "another thread is inside send_weights" in str(e)
        play.go.set()
        second.join(10)
        assert not second.is_alive()
        t.close()


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
def update_waits_and_fileno_wakes():
    def play(a):
        a.up()
        for transfer in (1, 2):
            play.go.wait(10)
            play.go.clear()
            time.sleep(0.05)  # the worker is inside its wait, most likely: both orders must work
            a.set_stop(a.word()[0] + 1)
            a.send(fa.WAKE, 0)
            a.expect(fa.PARKED)
            a.send(fa.BEGIN, transfer, transfer * 10)
            a.expect(fa.BEGUN)
            a.end(transfer, fa.COMMITTED)
            a.expect(fa.RESUMED)
        a.recv()

    play.go = threading.Event()
    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            t0 = time.monotonic()
            assert r.update(0.05) is None and time.monotonic() - t0 >= 0.05
            play.go.set()
            assert r.update(10).version == 10
            assert not select.select([r], [], [], 0)[0]
            play.go.set()
            update = None
            while update is None:
                assert select.select([r], [], [], 10)[0]
                update = r.poll_requests()
            assert update.version == 20


@test
def restarted_agent_gets_the_worker_back():
    def play(a):
        first = a.up()
        blobs = a.blobs
        a.drop()
        again = a.up()
        # But for the polls so far, of which there may be some before the loss is noticed.
        assert again[:fa.COUNT] + again[fa.COUNT + 1:] == first[:fa.COUNT] + first[fa.COUNT + 1:]
        assert a.blobs == blobs
        a.stop_far()
        a.expect(fa.PARKED)
        a.send(fa.BEGIN, 1, 10)
        a.expect(fa.BEGUN)
        a.end(1, fa.COMMITTED)
        a.expect(fa.RESUMED)
        a.recv()

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            assert poll(r).version == 10


@test
def forked_child_is_told_and_harms_nothing():
    def play(a):
        a.up()
        a.expect(fa.DETACH)
        play.count = a.word()[0]

    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            pid = os.fork()
            if pid == 0:
                try:
                    raises(wb.WeightBridgeError, "forked", r.poll_requests)
                    raises(wb.WeightBridgeError, "forked", r.update, 1)
                    r.close()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            r.poll_requests()
    assert play.count == 1


@test
def signal_reaches_a_waiting_worker():
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop()

    def play(a):
        a.up()
        a.recv()

    old = signal.signal(signal.SIGALRM, handler)
    with fa.Script(play) as s:
        with receiver(s.agent) as r:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            t0 = time.monotonic()
            raises(Stop, "", r.update)
            assert time.monotonic() - t0 < 5
            assert r.poll_requests() is None
    signal.signal(signal.SIGALRM, old)


@test
def pool_memory_is_attached_as_memfds():
    pool = wb.SharedMemoryPool(1 << 20)
    a = pool.empty((100, 3), "F32")
    b = pool.empty(7, np.int8)
    c = pool.copy(np.arange(12, dtype=np.int32).reshape(3, 4))
    big = pool.empty(2 << 20, "U8")  # a second memfd
    heap = np.zeros(10, np.float64)
    own = wb.empty((4, 4), "BF16")
    assert own.itemsize == 2 and a.dtype == np.float32 and not a.any()
    assert (c == np.arange(12).reshape(3, 4)).all() and a.ctypes.data % 64 == 0
    empty = np.zeros((0, 5), np.float32)  # of an uneven shard: not attached
    arrays = {"a": a, "a.T": a.T[1:], "b": b, "back": c[::-1, ::-2], "big": big, "heap": heap,
              "own": own}

    def play(agent):
        agent.up()
        play.table, play.n_fd = agent.blobs[2], len(agent.memfds)
        agent.recv()

    with fa.Script(play) as s:
        wb.SenderAdapter(None, params={**arrays, "empty": empty}, source_map=FakeMap(arrays),
                         socket=s.agent.path).connect().close()
    assert play.n_fd == 3
    n_mem = (len(play.table) - 16 * len(arrays)) // 24
    assert n_mem == 4
    low = {"back": c.ctypes.data + 4, "a.T": a.ctypes.data + 4}
    for i, (name, array) in enumerate(arrays.items()):
        mem, _, offset = struct.unpack_from("<IIQ", play.table, 24 * n_mem + 16 * i)
        kind, _, size, base = struct.unpack_from("<IIQQ", play.table, 24 * mem)
        assert kind == (2 if name == "heap" else 1), name
        assert base + offset == low.get(name, array.ctypes.data), name
        assert offset < size
    # Arrays outlive their pool, and so does the registration.
    del pool
    a[...] = 1
    assert wb.memory.register([("a", a.ctypes.data, a.nbytes)])[0][0][0] == 1
    raises(wb.WeightBridgeError, "parameter z is empty", wb.memory.register, [("z", 1, 0)])


@test
def heap_ranges_of_touching_pages_are_merged():
    page = 4096
    spans = [("a", 10 * page + 8, 100), ("b", 10 * page + 200, page), ("c", 12 * page, 4),
             ("d", 20 * page - 4, 8)]
    mems, places, _ = wb.memory.register(spans)
    assert mems == [(2, -1, 10 * page, 3 * page), (2, -1, 19 * page, 2 * page)]
    assert places == [(0, 8), (0, 200), (0, 2 * page), (1, page - 4)]


@test
def anything_with_memory_has_a_span():
    a = np.zeros((4, 6), np.float32)
    base = a.ctypes.data
    assert wb.memory.span(a) == (base, 96)
    assert wb.memory.span((a[1:3, ::2], "F32")) == (base + 24, 24 + 20)
    assert wb.memory.span(memoryview(a)) == (base, 96)
    assert wb.memory.span(a[:0])[1] == 0

    class Tensor:  # as torch's
        shape = (2, 3)

        def data_ptr(self):
            return 4096

        def element_size(self):
            return 2

        def stride(self):
            return (1, 4)

    assert wb.memory.span(Tensor()) == (4096, (1 + 8) * 2 + 2)


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


def main():
    for f in TESTS:
        t0 = time.monotonic()
        try:
            f()
        except BaseException:
            print(f"FAIL {f.__name__}", flush=True)
            raise
        print(f"ok   {f.__name__} {(time.monotonic() - t0) * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
