# SPDX-License-Identifier: Apache-2.0
"""The memory that adapters attach: where it lies, and that it stays there."""

import functools
import gc
import logging
import struct
import threading
import weakref

import numpy as np

from fx_adapters import FakeMap, main, poll, raises, test  # first: it finds the package

import fake_agent as fa
import weightbridge as wb


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


class Storage:
    """Like torch's: it may get smaller under the tensors that it is of."""

    def __init__(self, data):
        self.data, self.bytes = data, data.nbytes

    def data_ptr(self):
        return self.data.ctypes.data

    def nbytes(self):
        return self.bytes


class Stored(Tensor):
    def __init__(self, storage):
        super().__init__(storage.data)
        self.untyped_storage = lambda: storage

    def detach(self):
        return Stored(self.untyped_storage())


@test
def a_storage_that_is_cut_under_its_parameter_is_noticed():
    """Address, shape, strides and type are what they were; behind the cut it is somebody else's memory."""
    from weightbridge.places import Places, Source

    storage = Storage(np.zeros(100, np.float32))
    params = {"bias": Stored(storage)}
    places = Places(params)
    places.check(Source(params))
    storage.bytes -= 4
    raises(wb.ParametersMoved, "parameter bias (its storage is another one)", places.check, Source(params))
    storage.bytes += 4
    places.check(Source(params))


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


if __name__ == "__main__":
    main()
