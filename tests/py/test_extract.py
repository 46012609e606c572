# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract: what loads, what is refused, the cache, the command, packing."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "..", "..")
PACKAGE = os.path.join(TOP, "agent", "python")
sys.path[:0] = [PACKAGE]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from fx_run import run_all  # noqa: E402

TESTS = []


def test(f):
    TESTS.append(f)
    return f


def raises(kind, part, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind as e:
        assert part in str(e), f"{part!r} is not in: {e}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


class Worker:
    """Fused qkv, a column slice cast to fp32, a padded embedding, one bias nobody writes."""

    manifest = [("q", (32, 24), "BF16"), ("k", (8, 24), "BF16"), ("v", (8, 24), "BF16"),
                ("o", (24, 32), "BF16"), ("embed", (50, 24), "BF16"), ("norm", (24,), "F32")]

    def __init__(self):
        r = np.random.default_rng(3)

        def make(*shape, dtype=np.uint16):
            return r.integers(0, 1 << 15, shape).astype(dtype)
        self.qkv, self.o, self.embed = make(48, 24), make(24, 16, dtype=np.float32), make(64, 24)
        self.norm, self.bias = make(24, dtype=np.float32), make(24)
        self.params = {"qkv": self.qkv, "o": self.o, "embed": (self.embed, "BF16"),
                       "norm": self.norm, "bias": self.bias}
        self.calls = 0

    def load_weights(self, weights):
        self.calls += 1
        for name, t in weights:
            if name in "qkv":
                at = {"q": 0, "k": 32, "v": 40}[name]
                self.qkv[at:at + len(t)] = t
            elif name == "o":
                self.o[:] = (t[:, 16:].astype(np.uint32) << 16).view(np.float32)
            elif name == "embed":
                self.embed[:50] = t
                self.embed[50:] = 0
            elif name == "norm":
                self.norm[:] = t

    def checkpoint(self):
        r = np.random.default_rng(5)
        return {n: r.standard_normal(s).astype(
            ml_dtypes.bfloat16 if d == "BF16" else np.float32) for n, s, d in self.manifest}


def words(tensors):
    return [(n, t.view(np.uint16) if t.dtype.name == "bfloat16" else t)
            for n, t in tensors.items()]


def snapshot(params):
    return {n: (a[0] if isinstance(a, tuple) else a).tobytes() for n, a in params.items()}


@test
def a_worker_comes_out_and_is_as_before():
    w = Worker()
    before = snapshot(w.params)
    m = wb.extract(w.load_weights, w.manifest, w.params)
    assert snapshot(w.params) == before and w.calls == 5
    assert m.param_names == list(w.params) and m.n_ops == 6
    assert m.param("qkv")["ops"] == 3 and m.param("embed")["constants"] == 1
    assert m.param("bias")["unwritten"] == 1 and m.digest.startswith("xxh128:")
    values = w.checkpoint()
    got = m.apply(values)
    w.load_weights(iter(words(values)))
    for name in ("qkv", "o", "embed", "norm"):
        have = w.params[name][0] if isinstance(w.params[name], tuple) else w.params[name]
        assert got[name].tobytes() == have.tobytes(), name
    other = Worker()
    m.apply(values, into=other.params)
    assert other.bias.tobytes() == before["bias"] and other.qkv.tobytes() == w.qkv.tobytes()
    assert other.embed.tobytes() == w.embed.tobytes()


@test
def equal_layouts_have_equal_digests_and_survive_bytes():
    a, b = (wb.extract(w.load_weights, w.manifest, w.params) for w in (Worker(), Worker()))
    c = wb.SourceMap.from_bytes(a.to_bytes())
    assert a.digest == b.digest == c.digest and a.manifest_digest == c.manifest_digest
    assert json.loads(a.to_json()) == json.loads(c.to_json())
    assert json.loads(a.to_json())["digest"] == a.digest
    assert c.tensors == Worker.manifest
    raises(wb.WeightBridgeError, "", wb.SourceMap.from_bytes, a.to_bytes()[:-1])


@test
def report_says_what_each_parameter_is_made_of():
    w = Worker()
    text = wb.extract(w.load_weights, w.manifest, w.params).report()
    for part in ("qkv  BF16[48,24]  3 ops", "<- o columns 16..31, BF16 to F32",
                 "constant: 336 elements (raw 0x0)", "bias  BF16[24]  unwritten: 24 elements",
                 "5 passes"):
        assert part in text, (part, text)


@test
def ml_dtypes_views_and_expanded_fills_give_the_same_map():
    plain = Worker()
    want = wb.extract(plain.load_weights, plain.manifest, plain.params).digest
    w = Worker()
    w.params["qkv"] = w.qkv.view(ml_dtypes.bfloat16)
    seen = set()

    def load(weights):
        def as_words():
            for name, t in weights:
                seen.add(t.dtype.name)
                yield name, t.view(np.uint16) if t.dtype.name == "bfloat16" else t
        w.load_weights(as_words())

    assert wb.extract(load, w.manifest, w.params).digest == want and "bfloat16" in seen
    w = Worker()
    assert wb.extract(w.load_weights, w.manifest, w.params, expand_bytes=1).digest == want


@test
def tensors_are_fresh_each_time():
    w = Worker()
    kept = []

    def load(weights):
        first = list(weights)
        kept.extend(t for _, t in first)
        w.load_weights(iter(first))

    wb.extract(load, w.manifest, w.params)
    at = [t.__array_interface__["data"][0] for t in kept]
    assert len(set(at)) == len(at) == 30


@test
def memory_of_tensors_is_used_again_only_when_nobody_holds_any_of_it():
    manifest = [(f"w{i}", (96, 512 + 64 * i), "BF16") for i in range(12)]
    params = {n: np.zeros(s, np.uint16) for n, s, _ in manifest}
    at, kept = [], []

    def load(weights, keep):
        for i, (name, t) in enumerate(weights):
            at.append(t.__array_interface__["data"][0])
            if keep and i % 3 == 0:  # a part of it, by way of other objects
                part = memoryview(t[1:5].T) if i % 2 else t.reshape(-1)[7:99].view(np.uint8)
                kept.append((part, bytes(part)))
            params[name][...] = t

    want = wb.extract(lambda w: load(w, False), manifest, params).digest
    assert len(set(at)) < len(at) / 2, "memory is not used again"
    assert wb.extract(lambda w: load(w, True), manifest, params).digest == want
    assert kept and all(bytes(part) == then for part, then in kept)


@test
def lists_files_folders_and_indexes_are_manifests():
    w = Worker()
    ordered = sorted(w.manifest)
    want = wb.extract(w.load_weights, ordered, w.params).digest

    def write(path, tensors):
        head, at = {}, 0
        for name, shape, dtype in tensors:
            size = int(np.prod(shape)) * (2 if dtype == "BF16" else 4)
            head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        raw = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
        with open(path, "wb") as f:
            f.write(len(raw).to_bytes(8, "little") + raw)

    with tempfile.TemporaryDirectory() as d:
        write(os.path.join(d, "a.safetensors"), w.manifest)
        one = os.path.join(d, "a.safetensors")
        assert wb.extract(w.load_weights, one, w.params).digest == want
        assert wb.extract(w.load_weights, d, w.params).digest == want
        os.mkdir(os.path.join(d, "cut"))
        write(os.path.join(d, "cut", "x-1.safetensors"), w.manifest[3:])
        write(os.path.join(d, "cut", "x-2.safetensors"), w.manifest[:3])
        index = os.path.join(d, "cut", "model.safetensors.index.json")
        where = {n: f"x-{1 + (i < 3)}.safetensors" for i, (n, _, _) in enumerate(w.manifest)}
        with open(index, "w", encoding="utf-8") as f:
            json.dump({"weight_map": where}, f)
        assert wb.extract(w.load_weights, index, w.params).digest == want
        assert wb.extract(w.load_weights, os.path.join(d, "cut"), w.params).digest == want
        with open(index, "w", encoding="utf-8") as f:
            json.dump({"weight_map": {**where, "lost": "x-1.safetensors"}}, f)
        raises(wb.WeightBridgeError, "tensor lost is not in x-1.safetensors", wb.extract,
               w.load_weights, index, w.params)
        with open(one, "r+b") as f:
            f.truncate(100)
        raises(wb.WeightBridgeError, "header is damaged", wb.extract, w.load_weights, one,
               w.params)
        raises(wb.WeightBridgeError, "No such file", wb.extract, w.load_weights,
               os.path.join(d, "no.safetensors"), w.params)


@test
def bad_manifests_are_named():
    w = Worker()
    for manifest, part in (([], "empty"), ([("q", 3)], "needs (name, shape, dtype)"),
                           ([("q", (2, 2), "C128")], "tensor q: type C128"),
                           ([("q", (2, 0), "F32")], "tensor q"),
                           ([("q", (2,), "F32"), ("q", (2,), "F32")], "q"),
                           ([("q", (1,) * 9, "F32")], "more than 8")):
        raises(wb.WeightBridgeError, part, wb.extract, w.load_weights, manifest, w.params)


@test
def bad_parameters_are_named():
    w = Worker()
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    for value, part in ((frozen, "read-only"), (np.zeros(4, complex), "parameter p: type complex128"),
                        ((np.zeros(4, np.float32), "BF16"), "elements of 4 bytes are no BF16"),
                        (np.zeros(8, np.float32)[::-1], "reversed"),
                        (np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 4), (4, 4)),
                         "overlapping"), (3, "parameter p")):
        raises(wb.WeightBridgeError, part, wb.extract, w.load_weights, w.manifest, {"p": value})
    raises(TypeError, "dict", wb.extract, w.load_weights, w.manifest, [1])
    raises(TypeError, "callable", wb.extract, 3, w.manifest, w.params)
    raises(wb.WeightBridgeError, "framework", wb.extract, w.load_weights, w.manifest, w.params,
           framework="jax")


@test
def a_loader_that_raises_is_named_with_pass_and_tensor():
    w = Worker()
    before = snapshot(w.params)

    def load(weights):
        for name, t in weights:
            if name == "v" and w.calls == 3:
                raise KeyError("no such layer")
            w.load_weights(iter([(name, t)]))
            w.calls -= 1
        w.calls += 1

    e = raises(wb.LoadWeightsError, "raised KeyError in pass 4 of 5 (row digit 0), at tensor v",
               wb.extract, load, w.manifest, w.params)
    assert isinstance(e.__cause__, KeyError) and snapshot(w.params) == before
    w = Worker()

    def strict(weights):  # wants a tensor that the manifest lacks
        tensors = dict(weights)
        w.qkv[:] = tensors["gone"]

    raises(wb.LoadWeightsError, "KeyError", wb.extract, strict, w.manifest, w.params)

    def shapes(weights):
        for name, t in weights:
            if name == "q":
                w.qkv[:33] = t

    raises(wb.LoadWeightsError, "at tensor q", wb.extract, shapes, w.manifest, w.params)


@test
def what_is_not_a_copy_is_listed_whole():
    w = Worker()
    r = np.random.default_rng(0)
    w.params["shuffled"] = shuffled = np.zeros(1000, np.float32)
    w.params["scaled"] = scaled = np.ones((4, 24), np.float32)
    before = snapshot(w.params)

    def load(weights):
        for name, t in weights:
            w.load_weights(iter([(name, t)]))
            if name == "norm":
                scaled[1:3] = t * 2
                shuffled[:] = r.permutation(np.resize(t, 1000))

    e = raises(wb.NotCopyError, "2 parameters", wb.extract, load, w.manifest, w.params)
    assert len(e.faults) == 2 and e.code == -4007
    assert e.faults[1].startswith("parameter scaled: rows 1..2 (48 elements): arithmetic")
    assert e.faults[0].startswith("parameter shuffled:")
    assert snapshot(w.params) == before


@test
def every_kind_of_change_to_values_is_refused():
    r = np.random.default_rng(1)
    p = np.zeros((24, 32), np.float32)
    both = np.zeros((2, 24, 32), np.float32)

    def late(t):  # right in all passes but one
        late.calls += 1
        return t[::-1] if late.calls == 4 else t

    late.calls = 0
    changes = {"minus one": lambda t: t - 1, "scaled": lambda t: t * 0.5, "exp": np.exp,
               "negated": lambda t: -t, "absolute": np.abs, "sum": lambda t: t + t[::-1],
               "clamped": lambda t: np.clip(t, -1.6, 1.6),
               "clamped far": lambda t: np.clip(t, -100, 100), "sorted": np.sort,
               "shuffled": r.permutation, "one pass": late,
               "quantised": lambda t: np.rint(t / 0.1).clip(-128, 127) * np.float32(0.1),
               "mean": lambda t: np.broadcast_to(t.mean(1, keepdims=True), t.shape),
               "largest": lambda t: np.broadcast_to(t.max(1, keepdims=True), t.shape)}
    for name, change in changes.items():
        def load(weights, change=change):
            for n, t in weights:
                both[0] = t
                with np.errstate(all="ignore"):
                    p[:] = change(t)
                both[1] = t
        e = raises(wb.NotCopyError, "parameter p: ", wb.extract, load, [("t", (24, 32), "F32")],
                   {"p": p, "both": both})
        assert len(e.faults) == 1, (name, e.faults)
        assert not p.any() and not both.any()


@test
def a_tensor_that_is_skipped_leaves_its_rows_unwritten():
    w = Worker()

    def load(weights):
        w.load_weights((n, t) for n, t in weights if n != "k")

    m = wb.extract(load, w.manifest, w.params)
    assert m.param("qkv")["unwritten"] == 1 and m.param("qkv")["ops"] == 2


@test
def rebound_storage_is_a_fault():
    w = Worker()
    before = w.qkv.tobytes()

    def load(weights):
        tensors = list(weights)
        w.qkv = w.params["qkv"] = np.zeros_like(w.qkv)
        w.load_weights(iter(tensors))

    first = w.qkv
    raises(wb.NotCopyError, "parameter qkv: all elements: its storage was moved", wb.extract,
           load, w.manifest, w.params)
    assert first.tobytes() == before

    def resize(weights):
        list(weights)
        w.params["norm"] = np.zeros(25, np.float32)

    raises(wb.NotCopyError, "parameter norm: all elements: its shape", wb.extract, resize,
           w.manifest, w.params)


@test
def reload_replaces_the_copy():
    w = Worker()
    bias, values = w.bias.tobytes(), words(w.checkpoint())
    m = wb.extract(w.load_weights, w.manifest, w.params,
                   reload=lambda: w.load_weights(iter(values)))
    assert w.bias.tobytes() == bias
    assert w.qkv.tobytes() == m.apply(dict(values))["qkv"].tobytes()


@test
def tied_weights_and_views_are_one():
    w = Worker()
    w.params["lm_head"] = (w.embed, "BF16")
    w.params["window"] = w.qkv[32:, 4:9]
    m = wb.extract(w.load_weights, w.manifest, w.params)
    assert m.param("lm_head")["view_of"] == "embed" and m.n_ops == 6
    got = m.apply(w.checkpoint())
    assert np.shares_memory(got["lm_head"], got["embed"])
    assert got["window"].tobytes() == got["qkv"][32:, 4:9].tobytes()
    w.params["odd"] = w.embed.view(np.float16)
    raises(wb.WeightBridgeError, "odd", wb.extract, w.load_weights, w.manifest, w.params)


@test
def buffers_and_dlpack_are_parameters():
    data = (ctypes.c_float * 24)()

    class Capsule:
        array = np.zeros((48, 24), np.float32)

        def __dlpack__(self, **kw):
            return self.array.__dlpack__(**kw)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def load(weights):
        for name, t in weights:
            if name == "norm":
                np.frombuffer(data, np.float32)[:] = t
                Capsule.array[7] = t

    m = wb.extract(load, Worker.manifest, {"n": data, "d": Capsule()})
    assert m.param("n")["ops"] == 1 and m.param("d")["ops"] == 1


@test
def torch_tensors_are_parameters():
    try:
        import torch
    except ImportError:
        raises(wb.WeightBridgeError, "torch is not installed", wb.extract, len, Worker.manifest,
               Worker().params, framework="torch")
        return
    p = torch.nn.Parameter(torch.zeros(48, 24, dtype=torch.bfloat16))

    def load(weights):
        with torch.no_grad():
            for name, t in weights:
                if name in ("q", "k", "v"):
                    p[{"q": 0, "k": 32, "v": 40}[name]:][:len(t)].copy_(t)

    m = wb.extract(load, Worker.manifest, {"qkv": p}, framework="torch")
    assert m.param("qkv")["ops"] == 3
    values = {n: torch.randn(s).to(torch.bfloat16) for n, s, _ in Worker.manifest[:3]}
    assert torch.equal(m.apply(values)["qkv"], torch.cat([values[n] for n in "qkv"]))


@test
def the_cache_costs_one_call_and_is_never_stale():
    with tempfile.TemporaryDirectory() as d:
        w = Worker()
        a = wb.extract(w.load_weights, w.manifest, w.params, cache_dir=d)
        assert w.calls == 5 and not a.notes
        w = Worker()
        before = snapshot(w.params)
        b = wb.extract(w.load_weights, w.manifest, w.params, cache_dir=d)
        assert w.calls == 1 and a.digest == b.digest and "from the cache" in b.report()
        assert snapshot(w.params) == before

        class Other(Worker):
            def load_weights(self, weights):
                super().load_weights((n, t[::-1] if n == "v" else t) for n, t in weights)

        w = Other()
        c = wb.extract(w.load_weights, w.manifest, w.params, cache_dir=d)
        assert w.calls == 6 and c.digest != a.digest and "probing anew" in c.notes
        assert snapshot(w.params) == before
        files = os.listdir(d)
        assert len(files) == 1 and files[0].endswith(".map")
        with open(os.path.join(d, files[0]), "r+b") as f:
            f.seek(200)
            f.write(b"?????")
        w = Worker()
        e = wb.extract(w.load_weights, w.manifest, w.params, cache_dir=d)
        assert e.digest == a.digest and "ignored" in e.notes
        w = Worker()
        wb.extract(w.load_weights, w.manifest, w.params, cache_dir=d, cache_key="v2")
        assert w.calls == 5 and len(os.listdir(d)) == 2
        os.environ["XDG_CACHE_HOME"] = os.path.join(d, "xdg")
        wb.extract(w.load_weights, w.manifest, w.params, cache_dir=True)
        assert os.listdir(os.path.join(d, "xdg", "weightbridge"))
        del os.environ["XDG_CACHE_HOME"]


@test
def progress_is_told():
    w, said = Worker(), []
    wb.extract(w.load_weights, w.manifest, w.params, progress=said.append)
    assert said and said[0] == "pass 1 of 5 (constant): tensor 1 of 6"


MODULE = """
import numpy as np
import test_extract_module_helper as h
def good():
    w = h.Worker()
    return w.load_weights, w.manifest, w.params
def table():
    return dict(zip(("load_weights", "manifest", "params"), good()), progress=False)
def bad():
    w = h.Worker()
    def load(weights):
        for n, t in weights:
            if n == "norm":
                w.norm[:] = t + 1
    return load, w.manifest, w.params
def elsewhere():
    w = h.Worker()
    return w.load_weights, w.manifest, {"x": np.zeros((4, 6), np.float32)}
def odd():
    return 3


def raising():
    raise RuntimeError("no such model")


def wants(path):
    return path


def colour():
    return {"load_weights": print, "manifest": [("a", (1,), "BF16")], "params": {}, "colour": 1}


def number():
    return print, 3, {}


def minus():
    return print, [("a", (-2, 4), "BF16")], {}


def uncallable():
    return 3, [("a", (1,), "BF16")], {}


def leaving():
    raise SystemExit(3)


def loud():
    def load(weights):
        for n, t in weights:
            {}[n]
    return load, *good()[1:]


def numbered():
    return print, good()[1], {1: np.zeros(3, np.float32)}


def listed():
    return print, good()[1], {"p": [1, 2, 3]}


def unreloaded():
    def reload():
        raise OSError("no such disk")
    return dict(table(), reload=reload)


def stopped():
    def load(weights):
        raise KeyboardInterrupt
    return load, *good()[1:]
"""


@test
def the_command_shows_a_map():
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(os.path.abspath(__file__), os.path.join(d, "test_extract_module_helper.py"))
        with open(os.path.join(d, "loaders.py"), "w", encoding="utf-8") as f:
            f.write(MODULE)
        for name, text in (("broken", "def x(:"), ("early", "raise ValueError('too early')")):
            with open(os.path.join(d, name + ".py"), "w", encoding="utf-8") as f:
                f.write(text)
        here = os.path.dirname(os.path.abspath(__file__))  # what the copy imports
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((PACKAGE, here))}

        def run(*args):
            return subprocess.run([sys.executable, "-m", "weightbridge", "extract", *args], cwd=d,
                                  env=env, capture_output=True, text=True, check=False)
        r = run("loaders:good")
        assert r.returncode == 0 and "qkv  BF16[48,24]  3 ops" in r.stdout, r
        r = run("loaders:table", "--json")
        assert r.returncode == 0 and len(json.loads(r.stdout)["ops"]) == 6, r
        r = run("loaders:bad")
        assert r.returncode == 1 and "parameter norm: elements 0..23" in r.stderr, r
        for target, part in (("loaders", "is not MODULE:FUNCTION"), ("nothing:x", "nothing"),
                             ("loaders:none", "has no none"), ("loaders:odd", "must return"),
                             ("loaders:elsewhere", "load_weights copies nothing of the checkpoint: called"),
                             ("loaders:raising", "raised RuntimeError: no such model (loaders.py, line"),
                             ("loaders:wants", "raised TypeError"), ("loaders:np", "is module, not a function"),
                             ("loaders:colour", "unexpected keyword argument 'colour'"),
                             ("loaders:number", "manifest is int: needs a list"),
                             ("loaders:minus", "tensor a has shape (-2, 4): no size can be negative"),
                             ("loaders:uncallable", "load_weights must be callable"),
                             ("loaders:leaving", "raised SystemExit: 3 (loaders.py, line"),
                             ("loaders:loud", "at tensor q: 'q' (loaders.py, line"),
                             ("loaders:numbered", "parameter name 1 is int: must be a string"),
                             ("loaders:listed", "parameter p: list is no array, tensor or buffer"),
                             ("loaders:unreloaded", "OSError: no such disk (loaders.py, line"),
                             ("loaders.py:good", "loaders.py is a file: name the module"),
                             ("broken:x", "cannot be imported: SyntaxError"), ("early:x", "ValueError: too early")):
            r = run(target)
            assert r.returncode == 1 and part in r.stderr and len(r.stderr.splitlines()) == 1, r
        r = run("loaders:stopped")
        assert r.returncode == 130 and r.stderr == "weightbridge: interrupted\n", r
        for library, part in ((os.path.join(d, "none"), "run `make` first"),
                              (os.path.join(d, "loaders.py"), "the library cannot be loaded")):
            env["WEIGHTBRIDGE_LIBRARY"] = library
            r = run("loaders:good")
            assert r.returncode == 1 and part in r.stderr and len(r.stderr.splitlines()) == 1, r


@test
def pip_packs_the_library():
    with tempfile.TemporaryDirectory() as d:
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import wheel_backend as b; "
                "print(b.build_wheel(sys.argv[2]))")
        run = [sys.executable, "-c", code, PACKAGE, d]
        r = subprocess.run(run, capture_output=True, text=True, check=False,
                           env={**os.environ, "WB_LIB": os.path.join(d, "nowhere")})
        assert r.returncode != 0 and "run `make` first" in r.stderr, r
        r = subprocess.run(run, capture_output=True, text=True, check=True)
        wheel = os.path.join(d, r.stdout.strip())
        target = os.path.join(d, "site")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
                        "--disable-pip-version-check", "--target", target, wheel], check=True)
        env = {k: v for k, v in os.environ.items() if k not in ("WB_BUILD", "PYTHONPATH")}
        r = subprocess.run([sys.executable, "-c", "import weightbridge._lib as l; print(l.path())"],
                           cwd=d, env={**env, "PYTHONPATH": target}, capture_output=True,
                           text=True, check=True)
        assert r.stdout.strip() == os.path.join(target, "weightbridge", "libweightbridge.so.0")


def main():
    run_all(TESTS)


if __name__ == "__main__":
    main()
