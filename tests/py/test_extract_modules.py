# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract with modules: tensors that no dict of parameters has.  What load_weights
copies there is in the map, what else it does there is put back and named."""

import functools
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), HERE]

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from fx_run import run_all  # noqa: E402
from test_extract import raises  # noqa: E402

TESTS = []
F32 = np.float32
MANIFEST = [("kv_b", (12, 8), "F32"), ("gate.bias", (6,), "F32"), ("norm", (8,), "F32")]


def test(f):
    TESTS.append(f)
    return f


class Module:
    """As torch.nn.Module: parameters and buffers in dicts of their own, the rest plain attributes."""

    def __init__(self):
        self._parameters, self._buffers, self._modules = {}, {}, {}

    def __getattr__(self, name):
        for place in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(place, ()):
                return self.__dict__[place][name]
        raise AttributeError(name)

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, m in self._modules.items():
            yield from m.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self):
        seen = set()
        for prefix, m in self.named_modules():
            for name, p in m._parameters.items():
                if p is not None and id(p) not in seen:
                    seen.add(id(p))
                    yield f"{prefix}.{name}" if prefix else name, p


class Attention(Module):
    """MLA as engines have it: two derived tensors beside the weight, filled when it is loaded."""

    def __init__(self, value):
        super().__init__()
        self._parameters["weight"] = np.full((12, 8), value, F32)
        self._buffers["cos"] = np.full((5, 4), 9, F32)  # load_weights does not write it
        self._buffers["positions"] = np.arange(5)  # nor this, which has what a probe writes first
        self.w_kc = np.full((8, 4), value, F32)
        self.w_vc = np.full((8, 8), value, F32)
        self.cache = np.full((1000, 1000), 3, F32)  # larger than the model
        self.view = self._parameters["weight"][4:]

    def derive(self):
        weight = self._parameters["weight"]
        self.w_kc[:], self.w_vc[:] = weight[:4].T, weight[4:]
        self.view = weight[4:]  # another object each time, the same memory


class Model(Module):
    def __init__(self, value=7.0):
        super().__init__()
        self._modules["attn"], self._modules["gate"] = Attention(value), Module()
        self._parameters["norm"] = np.full(8, value, F32)
        self.gate._buffers["bias"] = np.full(6, value, F32)
        self.gate._parameters["none"] = None

    def load_weights(self, weights):
        for name, t in weights:
            if name == "kv_b":
                self.attn.weight[:] = t
            elif name == "norm":
                self.norm[:] = t
            else:
                self.gate.bias[:] = t
        self.attn.derive()


def state(model):
    """Everything, to be compared later: names, objects, contents."""
    out = {}
    for prefix, m in model.named_modules():
        for place in (m.__dict__, m._parameters, m._buffers):
            for key, value in place.items():
                if isinstance(value, np.ndarray):
                    out[prefix, key] = id(value) if key != "view" else 0, value.tobytes()
                elif value is None:
                    out[prefix, key] = None
    return out


def as_before(model, f, *args, **kw):
    before = state(model)
    try:
        return f(*args, **kw)
    finally:
        assert state(model) == before, [k for k, v in state(model).items() if before.get(k) != v]


def values(seed=0):
    r = np.random.default_rng(seed)
    return {n: r.standard_normal(s).astype(F32) for n, s, _ in MANIFEST}


@test
def tensors_that_load_weights_copies_into_are_in_the_map():
    model = Model()
    m = as_before(model, wb.extract, model.load_weights, MANIFEST, model)
    assert m.param_names == ["norm", "attn.weight", "attn.w_kc", "attn.w_vc", "gate.bias"] \
        and m.unmapped == [] and not m.outside, (m.param_names, m.outside)
    given = values()
    made = m.apply(given)
    model.load_weights(iter(given.items()))
    for name, tensor in (("attn.w_kc", model.attn.w_kc), ("attn.w_vc", model.attn.w_vc),
                         ("attn.weight", model.attn.weight), ("gate.bias", model.gate.bias)):
        assert made[name].tobytes() == tensor.tobytes(), name


MODEL = Model()


@test
def a_dict_leaves_them_out_and_they_are_named():
    def by_global(weights):
        MODEL.load_weights(weights)

    model = MODEL
    loaders = (model.load_weights, lambda w: model.load_weights(w), by_global,
               functools.partial(Model.load_weights, model))
    for load in loaders:
        m = as_before(model, wb.extract, load, MANIFEST, dict(model.named_parameters()))
        assert m.param_names == ["norm", "attn.weight"]
        assert m.outside == {f"{n} of Model": "load_weights writes it"
                             for n in ("gate.bias", "attn.w_kc", "attn.w_vc")}, m.outside


class Scales(Model):
    """A derived tensor that is no copy."""

    def load_weights(self, weights):
        super().load_weights(weights)
        self.attn.w_vc[:] *= 2


class Exchanges(Model):
    """Derived tensors that are others after each load, one of them not there before."""

    def __init__(self, value=7.0):
        super().__init__(value)
        self.attn.w_x = None

    def load_weights(self, weights):
        super().load_weights(weights)
        self.attn.w_kc, self.attn.w_x = self.attn.w_kc.copy(), self.attn.w_vc + 1
        self.attn.fresh = self.attn.w_vc + 1


class Rebinds(Model):
    """Another parameter in place of the first one."""

    def load_weights(self, weights):
        super().load_weights(weights)
        self.attn._parameters["weight"] = self.attn.weight + 0


class Swaps(Model):
    def load_weights(self, weights):
        for name, t in weights:
            if name == "kv_b":
                self.attn._parameters["weight"] = t + 0
            elif name == "norm":
                self.norm[:] = t


class Frees(Model):
    def load_weights(self, weights):
        super().load_weights(weights)
        del self.attn.w_kc


@test
def what_is_no_copy_is_put_back_and_named():
    with tempfile.TemporaryDirectory() as d:
        for _ in range(2):
            model = Scales()
            m = as_before(model, wb.extract, model.load_weights, MANIFEST, model, cache_dir=d)
            assert list(m.outside) == ["attn.w_vc"] and "attn.w_kc" in m.param_names, m.outside
            assert not m.notes
    assert "writes it" in m.outside["attn.w_vc"]  # the cache does not know more
    model = Exchanges()
    m = as_before(model, wb.extract, model.load_weights, MANIFEST, model)
    assert "its storage was moved" in m.outside["attn.w_kc"]
    assert m.outside["attn.w_x"] == m.outside["attn.fresh"] == (
        "load_weights puts another tensor in its place") and len(m.outside) == 3, m.outside
    assert model.attn.w_x is None and not hasattr(model.attn, "fresh")
    m = as_before(model, wb.extract, model.load_weights, MANIFEST, dict(model.named_parameters()))
    assert len(m.outside) == 5, m.outside
    model = Frees()
    raises(wb.LoadWeightsError, "w_kc", as_before, model, wb.extract, model.load_weights, MANIFEST,
           model)


@test
def a_parameter_that_is_replaced_in_its_module_is_named():
    model = Rebinds()
    e = raises(wb.NotCopyError, "attn.weight: all elements: its storage was moved", as_before, model,
               wb.extract, model.load_weights, MANIFEST, model)
    assert len(e.faults) == 1
    e = raises(wb.NotCopyError, "attn.weight: rows 0..11 (96 elements): written by the first", as_before,
               model, wb.extract, model.load_weights, MANIFEST, dict(model.named_parameters()))
    assert "load_weights puts other tensors in place of attn.view, attn.weight, and must" in str(e), e
    model = Swaps()
    m = as_before(model, wb.extract, model.load_weights, MANIFEST, dict(model.named_parameters()))
    assert m.outside["attn.weight"] == "load_weights puts another tensor in its place"


@test
def all_is_as_before_when_load_weights_raises():
    for kind in (Model, Scales, Exchanges, Rebinds):
        for when in range(1, 6):
            model, calls = kind(), []

            def load(weights, model=model, calls=calls):
                calls.append(1)
                model.load_weights(weights)
                if len(calls) == when:
                    raise KeyError("no such layer")

            for params in (model, dict(model.named_parameters()), model.named_parameters):
                calls.clear()
                if params == model.named_parameters:
                    def params(model=model):
                        return dict(model.named_parameters())
                raises(wb.LoadWeightsError, f"pass {when} of", as_before, model, wb.extract, load,
                       MANIFEST, params)


@test
def attributes_in_the_memory_of_parameters_are_left_alone():
    model = Model()
    flat = np.full(200, 5, F32)  # as of a trainer that keeps all parameters in one buffer
    model.attn._parameters["weight"] = flat[:96].reshape(12, 8)
    model._parameters["norm"] = flat[100:108]
    model.flat, model.words = flat, flat.view(np.int32)  # two types, for parameters not allowed
    model.tied = Module()
    model._modules["tied"] = model.tied
    model.tied._parameters["weight"] = model.attn.weight
    model.tied.half = model.attn.weight[::2]
    model.twice = model.attn.w_kc
    model.broad = np.broadcast_to(np.ones(3, F32), (4, 3))
    model.empty, model.text = np.zeros((0, 4), F32), np.array(["a"])
    m = as_before(model, wb.extract, model.load_weights, MANIFEST, model)
    assert sorted(m.param_names) == sorted(["norm", "attn.weight", "twice", "attn.w_vc",
                                            "gate.bias"]), m.param_names
    # A view of another array than the weight, until load_weights makes one of the weight.
    assert list(m.outside) == ["attn.view"], m.outside


class Anything:
    """Says that it has whatever it is asked for."""

    def __getattr__(self, name):
        return lambda *_: Anything()

    def __call__(self, *_):
        return Anything()


@test
def objects_that_claim_to_be_modules_are_not_looked_into():
    model, mock = Model(), Anything()

    def load(weights):
        mock.report(len(MANIFEST))
        model.load_weights(weights)

    assert len(as_before(model, wb.extract, load, MANIFEST, model).param_names) == 5


def main():
    run_all(TESTS)


if __name__ == "__main__":
    main()
