# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract with loaders that do what loaders should not: nothing silently wrong, the
parameters as before, no memory touched that is gone."""

import copy
import gc
import os
import pickle
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), HERE]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from fx_run import run_all  # noqa: E402
from test_extract import raises  # noqa: E402

TESTS = []
SHAPE = (8, 16)
ONE = [("t", SHAPE, "F32")]
LARGE = 4 << 20  # elements: memory that malloc gives back to the kernel at once


def test(f):
    TESTS.append(f)
    return f


def zeros(dtype=np.float32):
    return np.zeros(SHAPE, dtype)


# ---- memory that goes away


@test
def iterator_kept_after_probing_is_refused():
    p, held = zeros(), []

    def load(weights):
        held.append(weights)
        p[:] = next(weights)[1]

    wb.extract(load, [*ONE, ("u", SHAPE, "F32")], {"p": p})
    raises(wb.WeightBridgeError, "tensor u taken after probing had ended", next, held[-1])


class Storage:
    def __init__(self, data):
        self.data = data

    def data_ptr(self):
        return self.data.ctypes.data

    def nbytes(self):
        return self.data.nbytes


class Tensor:
    """Like torch's: another storage may come under the same object."""

    class device:  # noqa: N801
        type = "cpu"

    def __init__(self, data):
        self.data = data
        self.shape, self.dtype = data.shape, data.dtype

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self):
        return tuple(s // self.data.itemsize for s in self.data.strides)

    def element_size(self):
        return self.data.itemsize

    def detach(self):
        return Tensor(self.data)

    def untyped_storage(self):
        return Storage(self.data)


@test
def storage_replaced_under_a_tensor_outlives_the_probe():
    p = Tensor(np.zeros(LARGE, np.float32))

    def load(weights):
        for _, t in weights:
            p.data = np.zeros(LARGE, np.float32)
            gc.collect()
            p.data[:t.size] = t.reshape(-1)

    raises(wb.NotCopyError, "its storage was moved", wb.extract, load, ONE, {"p": p})


@test
def storage_replaced_again_before_an_exception_outlives_the_probe():
    params, calls = {"p": np.zeros(LARGE, np.float32)}, []

    def load(weights):
        calls.append(1)
        list(weights)
        params["p"] = np.zeros(LARGE, np.float32)
        gc.collect()
        if len(calls) == 2:
            raise KeyError("no such layer")

    raises(wb.LoadWeightsError, "KeyError", wb.extract, load, ONE, params)


@test
def storage_freed_under_its_holders_is_not_touched():
    for when, raise_ in ((1, False), (3, False), (3, True), (5, True)):
        owner, other, calls = np.zeros(LARGE, np.float32), zeros(), []

        def load(weights):
            calls.append(1)
            for _, t in weights:
                owner[:16], other[:] = t[0], t
            if len(calls) == when:
                owner.resize(16, refcheck=False)  # as torch's untyped_storage().resize_(): no new array
                if raise_:
                    raise KeyError("no such layer")

        kind, said = ((wb.LoadWeightsError, "no such layer") if raise_ else
                      (wb.NotCopyError, "parameter p: all elements: its storage was freed"))
        raises(kind, said, wb.extract, load, ONE, {"p": owner, "q": other})
        assert not other.any()
        owner, other, calls = np.zeros(LARGE, np.float32), zeros(), []
        raises(wb.WeightBridgeError, said if raise_ else "parameter view: its storage has 64 bytes",
               wb.extract, load, ONE, {"p": owner, "view": owner[:50], "q": other})
        assert not other.any()


@test
def storage_freed_where_it_was_moved_to_is_not_touched():
    p, calls = Tensor(np.zeros(LARGE, np.float32)), []

    def load(weights):
        calls.append(1)
        list(weights)
        if len(calls) == 1:
            p.data = np.zeros(LARGE, np.float32)
        if len(calls) == 2:
            p.data.resize(16, refcheck=False)

    raises(wb.WeightBridgeError, "parameter p: its storage has 64 bytes and does not hold its",
           wb.extract, load, ONE, {"p": p})
    raises(wb.WeightBridgeError, "parameter p: its storage has 64 bytes", wb.extract, load, ONE,
           {"p": p})  # before anything is loaded


@test
def parameters_from_a_function_are_read_after_each_load():
    model = {"p": zeros(), "q": zeros()}

    def load(weights):
        for _, t in weights:
            model["p"][:] = t
            model["q"] = t + 0

    e = raises(wb.NotCopyError, "parameter q: all elements: its storage was moved", wb.extract,
               load, ONE, lambda: {n: a for n, a in model.items()})
    assert len(e.faults) == 1 and not model["q"].any()
    raises(TypeError, "a function that returns one, or a module, not int", wb.extract, load, ONE, lambda: 3)
    raises(TypeError, "a function that returns one, or a module, not int", wb.extract, load, ONE, 3)


@test
def loader_that_has_not_run_is_told_so():
    p = zeros()

    def lazy(weights):
        for name, t in weights:
            p[:] = t
            yield name

    async def later(weights):
        lazy(weights)

    raises(wb.WeightBridgeError, "returned a generator, which has not run", wb.extract, lazy, ONE,
           {"p": p})
    raises(wb.WeightBridgeError, "returned a coroutine, which has not run", wb.extract, later, ONE,
           {"p": p})

    def names(weights):  # has run, and returns something lazy
        done = list(lazy(weights))
        return (n for n in done)

    assert wb.extract(names, ONE, {"p": p}).n_ops == 1


# ---- the parameters are as before


@test
def what_load_weights_left_alone_is_put_back_when_it_writes_it_and_raises():
    p, q, calls = zeros(), np.full(SHAPE, 7, np.float32), []

    def plain(weights):
        for _, t in weights:
            p[:] = t

    def late(weights):
        calls.append(1)
        for _, t in weights:
            p[:] = t
            if len(calls) == when:
                q[:] = t
                raise KeyError("no such layer")

    with tempfile.TemporaryDirectory() as d:
        when = 3
        raises(wb.LoadWeightsError, "pass 3", wb.extract, late, ONE, {"p": p, "q": q})
        assert (q == 7).all() and not p.any()
        wb.extract(plain, ONE, {"p": p, "q": q}, cache_dir=d)
        when = 4
        raises(wb.LoadWeightsError, "from the cache", wb.extract, late, ONE, {"p": p, "q": q},
               cache_dir=d)
        assert (q == 7).all() and not p.any()


@test
def reload_with_a_stale_map_keeps_what_is_no_longer_written():
    p, q = zeros(), np.full(SHAPE, 7, np.float32)

    def both(weights):
        for _, t in weights:
            p[:], q[:] = t, t

    def one(weights):
        for _, t in weights:
            p[:] = t

    with tempfile.TemporaryDirectory() as d:
        wb.extract(both, ONE, {"p": p, "q": q}, cache_dir=d)
        m = wb.extract(one, ONE, {"p": p, "q": q}, cache_dir=d, reload=int)
    assert m.param("q")["unwritten"] == 1 and (q == 7).all()


@test
def reload_after_an_exception_keeps_what_is_not_written():
    p, calls = np.full(SHAPE, 7, np.float32), []
    p[7] = 1.5  # what the first pass writes

    def load(weights):
        calls.append(1)
        for _, t in weights:
            p[:4] = t[:4]
            if len(calls) == when:
                raise KeyError("no such layer")

    for when in (1, 2, 3):
        calls.clear()
        raises(wb.LoadWeightsError, f"pass {when}", wb.extract, load, ONE, {"p": p}, reload=int)
        assert (p[4:7] == 7).all() and (p[7] == 1.5).all(), when


# ---- nothing silently wrong


@test
def what_the_map_leaves_out_is_named():
    manifest = [*ONE, ("u", SHAPE, "BF16"), *[(f"l{i:02}", (4,), "BF16") for i in range(20)],
                ("wide", SHAPE, "F32"), ("both", SHAPE, "F32")]
    params = {"p": zeros(), "half": zeros(BF16), "none": np.zeros((0, 4), np.float32),
              "left": zeros(), "zero": np.ones(SHAPE, np.float32), "part": zeros(),
              "master": zeros(), "copy": zeros(BF16)}
    params["view"] = params["left"][2:4]

    def load(weights):
        for name, t in weights:
            if name == "t":
                params["p"][:], params["part"][:3] = t, t[:3]
            elif name == "wide":
                params["half"][:] = t
            elif name == "both":  # rounded in one place, but not where it would be sent from
                params["master"][:], params["copy"][:] = t, t
        params["zero"][:] = 0

    m = wb.extract(load, manifest, params)
    assert m.notes == "" and m.unmapped == ["left"]
    more = ", ".join(f"l{i:02}" for i in range(20))
    where = "(as it must be where other workers hold their layers or experts)"
    lines = ["tensors that go into no parameter here (21 of 24): u, {} " + where,
             "parameters that load_weights does not write (1 of 9): left",
             "parameters without elements (1 of 9): none",
             "parameters that get constants and nothing else (1 of 9): zero",
             "parameters that load_weights writes in part (1 of 9): part (not 80 of 128 elements)",
             "tensors held in a type that rounds them (1 of 24): wide (F32, as BF16 in half); a "
             "trainer sends them rounded"]
    for text, names in ((m.gaps, more[:33] + ", and 13 more"), (m.report(), more)):
        assert "\n".join(lines).format(names) in text, text
    assert pickle.loads(pickle.dumps(m)).gaps == m.gaps
    whole = wb.extract(load, [m.tensors[0], *m.tensors[-2:]], {n: params[n] for n in ("p", "master")})
    assert whole.gaps == "tensors that go into no parameter here (1 of 3): wide " + where + "\n"


@test
def what_only_the_first_call_writes_is_no_unwritten_element():
    for reload in (None, int):
        p, q, calls = zeros(), zeros(), []

        def load(weights):
            calls.append(1)
            for _, t in weights:
                p[:] = t
                if len(calls) == 1:
                    q[2:4] = t[2:4]

        q[7] = 1.5  # and never written
        e = raises(wb.NotCopyError, "written by the first call of load_weights and not by the",
                   wb.extract, load, ONE, {"p": p, "q": q}, reload=reload)
        assert len(e.faults) == 1


@test
def unwritten_elements_that_hold_the_constant_of_the_first_pass_are_unwritten():
    for dtype, value in ((np.float32, 1.5), (np.int8, 3)):
        p, q = zeros(dtype), np.full(SHAPE, value, dtype)

        def load(weights):
            for _, t in weights:
                p[:] = t
                q[:2] = t[:2]

        kind = "F32" if dtype is np.float32 else "I8"
        m = wb.extract(load, [("t", SHAPE, kind)], {"p": p, "q": q}, reload=int)
        assert m.param("q")["unwritten"] == 1 and (q[2:] == value).all()


@test
def a_loader_that_adds_to_what_is_there_is_refused():
    for dtype, kind in ((np.float32, "F32"), (np.float16, "F16"), (ml_dtypes.bfloat16, "BF16")):
        for reload in (None, int):
            p, q = zeros(dtype), zeros(dtype)

            def load(weights):
                for _, t in weights:
                    q[:] = t
                    with np.errstate(invalid="ignore"):
                        p[:] += t

            raises(wb.NotCopyError, "p: rows 0..7 (128 elements): arithmetic", wb.extract, load,
                   [("t", SHAPE, kind)], {"p": p, "q": q}, reload=reload)


@test
def a_table_made_by_load_weights_is_not_kept_in_the_cache():
    p, q, calls = zeros(), np.zeros((200, 64), np.float32), []
    table = np.random.default_rng(0).standard_normal(q.shape).astype(np.float32)

    def load(weights):
        calls.append(1)
        for _, t in weights:
            p[:] = t
        q[:] = table

    with tempfile.TemporaryDirectory() as d:
        for _ in range(2):
            m = wb.extract(load, ONE, {"p": p, "q": q}, cache_dir=d)
            assert "parameter q has more than 4096 ranges of constants" in m.notes
            assert "anew" not in m.notes
    assert len(calls) == 10


F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16
CUT = {"F32 cut to BF16": ("F32", BF16, lambda t: (t.view(np.uint32) >> 16).astype(np.uint16).view(BF16)),
       "F32 by way of BF16": ("F32", F32, lambda t: t.astype(BF16).astype(F32)),
       "F32 by way of F16": ("F32", F32, lambda t: t.astype(F16).astype(F32)),
       "F32 by way of BF16 to F16": ("F32", F16, lambda t: t.astype(BF16).astype(F16)),
       "F16 cut to BF16": ("F16", BF16, lambda t: (t.astype(F32).view(np.uint32) >> 16).astype(
           np.uint16).view(BF16)),
       "F16 by way of BF16": ("F16", F16, lambda t: t.astype(BF16).astype(F16))}


@test
def rounding_that_is_not_a_transfer_s_is_refused():
    for what, (kind, dtype, change) in CUT.items():
        p, q = zeros(dtype), zeros(F16)
        params = {"p": p, "q": q, "x": zeros(F32)}  # F16 beside F32: digits that fit all

        def load(weights, p=p, q=q, change=change):
            for name, t in weights:
                if name == "t":
                    p[:] = change(t)
                else:
                    q[:] = t

        e = raises(wb.NotCopyError, "than rounding to the nearest", wb.extract, load,
                   [("t", SHAPE, kind), ("h", SHAPE, "F16")], params)
        assert len(e.faults) == 1 and e.faults[0].startswith("parameter p:"), (what, e.faults)
    for what in ("F32 cut to BF16", "F32 by way of BF16"):
        kind, dtype, change = CUT[what]
        p = zeros(dtype)

        def alone(weights, p=p, change=change):
            for _, t in weights:
                p[:] = change(t)

        raises(wb.NotCopyError, "than rounding to the nearest", wb.extract, alone, ONE, {"p": p})


@test
def rounding_to_the_nearest_is_a_cast():
    r = np.random.default_rng(1)
    for kind, wire in (("F32", F32), ("F16", F16), ("BF16", BF16)):
        for dtype in (F32, F16, BF16):
            p, extra = zeros(dtype), zeros(BF16)

            def load(weights, p=p):
                for _, t in weights:
                    p[:] = t.astype(p.dtype)

            m = wb.extract(load, [("t", SHAPE, kind)], {"p": p, "extra": extra})
            values = r.standard_normal(SHAPE).astype(wire)
            assert m.param("p")["ops"] == 1
            assert m.apply({"t": values})["p"].tobytes() == values.astype(dtype).tobytes()


MOVED = {"I64": np.int64, "U64": np.uint64, "F64": np.float64, "U32": np.uint32, "I16": np.int16,
         "BOOL": np.bool_, "F8_E8M0": ml_dtypes.float8_e8m0fnu, "U16": np.uint16}


@test
def types_that_maps_do_not_know_are_moved_as_words():
    r = np.random.default_rng(5)
    for kind, dtype in MOVED.items():
        declared = (lambda a: (a, "U16")) if kind == "U16" else (lambda a: a)
        plain, turned, part = (np.zeros(s, dtype) for s in (SHAPE, SHAPE[::-1], (8, 5)))
        one, other = np.zeros((), dtype), zeros(BF16)
        params = {"plain": declared(plain), "turned": declared(turned), "part": declared(part),
                  "one": declared(one), "view": declared(plain[2:4]), "other": other}

        def load(weights, plain=plain, turned=turned, part=part, one=one, other=other, dtype=dtype):
            for name, t in weights:
                assert name == "x" or t.dtype == dtype, (t.dtype, dtype)
                if name == "t":
                    plain[:], turned[:], part[:] = t, t.T, t[:, 3:13:2]
                elif name == "s":
                    one[...] = t
                else:
                    other[:] = t

        manifest = [("t", SHAPE, kind), ("s", (), kind), ("x", SHAPE, "BF16")]
        with tempfile.TemporaryDirectory() as d:
            made = [wb.extract(load, manifest, params, cache_dir=d, expand_bytes=1) for _ in range(2)]
        assert made[0].digest == made[1].digest, kind
        assert not plain.view(np.uint8).any() and not turned.view(np.uint8).any(), kind
        raw = r.integers(0, 2 if kind == "BOOL" else 256, (*SHAPE, plain.itemsize), np.uint8)
        given = {"t": raw.view(dtype).reshape(SHAPE), "s": raw[0, 0].view(dtype).reshape(()),
                 "x": np.ones(SHAPE, BF16)}
        if kind == "U16":  # what NumPy calls so is BF16: its bytes
            given = {n: np.frombuffer(t.tobytes(), np.uint8).reshape(*t.shape, 2) if n != "x" else t
                     for n, t in given.items()}
        made[0].apply(given, into=params)
        words = raw.view(dtype).reshape(SHAPE)
        for got, want in ((plain, words), (turned, words.T), (part, words[:, 3:13:2]),
                          (one, words[0, 0])):
            assert got.tobytes() == want.tobytes(), kind


@test
def types_that_are_only_moved_are_not_calculated_with():
    for kind, dtype, change in (("I64", F32, lambda t: t), ("F64", F32, lambda t: t),
                                ("I64", np.int64, lambda t: t + 1), ("U32", F32, lambda t: t),
                                ("BOOL", F32, lambda t: t), ("I16", np.int64, lambda t: t)):
        p, q = zeros(dtype), zeros()

        def load(weights, p=p, q=q, change=change):
            for name, t in weights:
                with np.errstate(all="ignore"):
                    (p if name == "t" else q)[:] = change(t) if name == "t" else t

        manifest = [("t", SHAPE, kind), ("u", SHAPE, "F32")]
        e = raises(wb.NotCopyError, "", wb.extract, load, manifest, {"p": p, "q": q})
        assert "parameter p: " in str(e) or "tensor t is BOOL" in str(e), (kind, e)
        m = wb.extract(load, manifest, {"p": p, "q": q}, leave_out=["t*"])
        assert m.unmapped == ["p"] and m.tensors == [("u", SHAPE, "F32")]
    raises(wb.WeightBridgeError, "tensor t: type F4 is not supported: one of", wb.extract, load,
           [("t", SHAPE, "F4"), ("u", SHAPE, "F32")], {"q": q})
    e = raises(wb.WeightBridgeError, "leave_out takes the names", wb.extract, load,
               [("t", SHAPE, "F4")], {"q": q})
    assert wb.extract(load, [("t", SHAPE, "F4"), ("u", SHAPE, "F32")], {"q": q}, leave_out="t").n_ops == 1
    raises(wb.WeightBridgeError, "tensor t has more than 8", wb.extract, load,
           [("t", (1,) * 8, "I64")], {"q": q})


@test
def apply_takes_no_tensor_or_parameter_of_another_type():
    p = zeros(np.uint16)

    def load(weights):
        for _, t in weights:
            p[:] = t

    m = wb.extract(load, [("t", SHAPE, "BF16")], {"p": p})
    for dtype in (np.float16, np.int16, ">u2"):
        raises(wb.WeightBridgeError, "tensor t: (8, 16) of ", m.apply, {"t": np.ones(SHAPE, dtype)})
    for dtype in (np.uint16, BF16):
        assert m.apply({"t": np.ones(SHAPE, dtype)})["p"].any()
    for into in ({"p": zeros(BF16).T.reshape(SHAPE, order="F")}, {"p": zeros(F16)}, {}):
        raises(wb.WeightBridgeError, "parameter p ", m.apply, {"t": np.ones(SHAPE, BF16)}, into)


@test
def names_are_kept_whole_or_refused():
    p = zeros()

    def load(weights):
        for _, t in weights:
            p[:] = t

    for name in ("a b", "\u00e4\n\"\\", "\u2028", "x" * 512):
        m = wb.extract(load, [(name, SHAPE, "F32")], {name: p})
        assert m.param_names == [name] and m.tensors == [(name, SHAPE, "F32")]
    e = raises(wb.NotCopyError, "1 parameter:", wb.extract,
               lambda w: load((n, t + 1) for n, t in w), ONE, {"\u2028": p})
    assert len(e.faults) == 1
    for name, part in (("a\0b", "no name may have"), ("\udc80", "no name may have"),
                       (1, "is int: must be a string"), ("x" * 513, "")):
        raises(wb.WeightBridgeError, part, wb.extract, load, ONE, {name: p})
        raises(wb.WeightBridgeError, part, wb.extract, load, [(name, SHAPE, "F32")], {"p": p})


@test
def strides_of_single_elements_and_empty_arrays_are_no_part_of_a_layout():
    def digest(p, z):
        def load(weights):
            for _, t in weights:
                p[...] = t.reshape(p.shape)
        return wb.extract(load, [("t", (5,), "F32")], {"p": p, "z": z}).digest

    empty = np.zeros((0, 4), np.float32)
    want = digest(np.zeros((1, 5, 1), np.float32), empty)
    for p in (np.zeros((3, 5, 1), np.float32)[::2][:1], np.zeros((1, 5, 1), np.float32)[::-1],
              np.zeros((5, 7, 1), np.float32).transpose(1, 0, 2)[:1]):
        same = p.strides[1] == 4
        assert (digest(p, empty) == want) == same
    assert digest(np.zeros((1, 5, 1), np.float32), np.zeros((4, 0), np.float32).T) == want


@test
def columns_and_corners_of_one_matrix_are_told_apart():
    flat = np.zeros(128, np.float32)
    b = flat.reshape(8, 16)

    def load(weights):
        for _, t in weights:
            b[:] = t

    m = wb.extract(load, ONE, {f"c{i}": b[:, 4 * i:4 * i + 4] for i in range(4)})
    assert all(m.param(n)["ops"] == 1 and m.param(n)["view_of"] is None for n in m.param_names)
    for corners in (b[:, ::15], b[::7, ::15]):  # same first and last element
        m = wb.extract(load, ONE, {"corners": corners, "all": b})
        assert m.param("corners")["view_of"] == "all" and m.param("all")["ops"] == 1
        got = m.apply({"t": np.arange(128, dtype=np.float32).reshape(SHAPE)})
        assert got["corners"].ravel()[-1] == 127 and got["corners"].ravel()[0] == 0
    wrap = np.lib.stride_tricks.as_strided(flat[14:], (7, 4), (64, 4))
    for other in (b[:, 3:8], wrap):
        raises(wb.WeightBridgeError, "neither is a view of the other", wb.extract, load, ONE,
               {"a": b[:, :4], "other": other})


@test
def casts_that_no_transfer_knows_are_refused_by_the_types():
    casts = (("I8", np.int32, lambda t: t.astype(np.int32)),
             ("F8_E4M3", BF16, lambda t: t.view(ml_dtypes.float8_e4m3fn).astype(BF16)))
    mask = np.random.default_rng(0).random(SHAPE) < 0.5
    for kind, dtype, change in casts:
        p, q = zeros(dtype), np.zeros((70000, 3), BF16)  # rows of three and more digits

        def load(weights, p=p, q=q, change=change):
            for name, t in weights:
                if name == "q":
                    q[:] = t
                else:
                    p[:] = np.where(mask, change(t), 0)

        raises(wb.NotCopyError, f"to {'I32' if dtype is np.int32 else 'BF16'} in an unknown way",
               wb.extract, load, [("q", q.shape, "BF16"), ("t", SHAPE, kind)], {"p": p, "q": q})


@test
def maps_and_faults_go_to_other_processes():
    p = zeros()

    def load(weights, plus=0):
        for _, t in weights:
            p[:] = t + plus

    values = {"t": np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)}
    m = wb.extract(load, ONE, {"p": p})
    others, want = [pickle.loads(pickle.dumps(m)), copy.copy(m), copy.deepcopy(m)], m.digest
    del m
    gc.collect()
    for other in others:
        assert other.digest == want and other.param("p")["ops"] == 1 and "<- t" in other.report()
        assert other.apply(values)["p"].tobytes() == values["t"].tobytes()
    e = raises(wb.NotCopyError, "p: rows 0..7", wb.extract, lambda w: load(w, 1), ONE, {"p": p})
    other = pickle.loads(pickle.dumps(e))
    assert str(other) == str(e) and other.faults == e.faults and other.code == e.code == -4007


def main():
    run_all(TESTS)


if __name__ == "__main__":
    main()
