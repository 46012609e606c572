# SPDX-License-Identifier: Apache-2.0
"""extract with the real torch: tensors in, tensors out, no NumPy in that Python.

Runs itself again under a Python that has torch (tests/bench/torch.sh finds one, never downloads
here); without one it is skipped.
"""
import os
import subprocess
import sys

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python")]

import weightbridge  # noqa: E402


def words(t, torch):
    return t.contiguous().view(torch.uint8).flatten()


def fused(torch):
    """qkv-like fusion with a transpose, a cast, padding, and a parameter that is a view."""
    big = torch.full((40, 128), 7, dtype=torch.bfloat16)
    params = {"ab": big[:32], "n": torch.zeros(32), "q": torch.zeros(16, 8, dtype=torch.int8),
              "half": torch.zeros(32, 16, dtype=torch.float16)}

    def load(tensors):
        for name, t in tensors:
            assert isinstance(t, torch.Tensor), type(t)
            if name == "a.weight":
                params["ab"][:, :64].copy_(t.t())
            elif name == "b.weight":
                params["ab"][:, 64:].data.copy_(t.narrow(0, 0, 64).t())
            elif name == "n":
                params["n"].copy_(t)  # bf16 to fp32
            elif name == "q":
                params["q"][:8].copy_(t)
            else:
                params["half"].data.copy_(t[:, ::2].clone())

    manifest = [("a.weight", (64, 32), "BF16"), ("b.weight", (80, 32), "BF16"),
                ("n", (32,), "BF16"), ("q", (8, 8), "I8"), ("h", (32, 32), "F16")]
    return params, load, manifest


def values(torch, manifest):
    kinds = {"BF16": torch.bfloat16, "I8": torch.int8, "F16": torch.float16}
    g = torch.Generator().manual_seed(3)
    return {n: (torch.randn(s, generator=g) * 20).to(kinds[d]) for n, s, d in manifest}


def refused(kind, part, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind as e:
        assert part in str(e), f"{part!r} is not in: {e}"
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def moved(torch):
    """Storage that a framework exchanges or frees after connect() is noticed, and kept alive."""
    from weightbridge.places import Places, Source
    bias, weight = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16)), torch.zeros(8, 8)
    params = {"bias": bias, "weight": weight}
    places, source = Places(params), Source(params)
    places.check(source)
    places.check(Source({"bias": bias.detach(), "weight": weight.view(8, 8)}))  # the same memory
    first = bias.data
    for data, part in ((first.float(), "it was torch.bfloat16 of shape (8,) with strides (1,), it is "
                                       "torch.float32"), (first.clone(), "its storage is another one")):
        bias.data = data  # a router bias that is promoted at the first forward
        refused(weightbridge.ParametersMoved, f"parameter bias ({part}", places.check, source)
    bias.data = first
    places.check(source)
    weight.untyped_storage().resize_(0)
    refused(weightbridge.ParametersMoved, "parameter weight (", places.check, source)


def freed(torch):
    """A loader that frees a storage under its tensor, and gives it another: nothing is put there."""
    p = torch.zeros(1 << 20, dtype=torch.bfloat16)

    def load(tensors):
        for _, t in tensors:
            p.untyped_storage().resize_(0)
            p.untyped_storage().resize_(2 << 20)
            p.copy_(t)

    refused(weightbridge.NotCopyError, "parameter p: all elements: its storage was freed",
            weightbridge.extract, load, [("t", (1 << 20,), "BF16")], {"p": p}, framework="torch")
    p.untyped_storage().resize_(16)
    refused(weightbridge.WeightBridgeError, "parameter p: its storage has 16 bytes",
            weightbridge.extract, load, [("t", (1 << 20,), "BF16")], {"p": p}, framework="torch")


def tried_out(torch):
    """A loader that calculates is tried out, and afterwards a framework can free the parameter's storage as before."""
    from weightbridge.arrays import TorchMaker
    from weightbridge.places import Source
    from weightbridge.whole import Whole
    p = torch.nn.Parameter(torch.full((4, 8), 3.0, dtype=torch.bfloat16))

    def load(tensors):
        for _, t in tensors:
            p.data.copy_(2 * t)

    assert not Whole(load, Source({"p": p}), [("t", (4, 8), "BF16")], TorchMaker()).try_out()
    assert (p == 3).all()
    assert p.untyped_storage().resizable()
    p.untyped_storage().resize_(0)


def module(torch):
    """A module with a buffer, a derived tensor beside the parameters and tied weights, as params."""
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kv_b = torch.nn.Linear(8, 12, bias=False, dtype=torch.bfloat16)
            self.register_buffer("bias", torch.zeros(6))
            self.register_buffer("positions", torch.arange(5))
            self.w_kc = torch.zeros(8, 4, dtype=torch.bfloat16)
            self.view = self.kv_b.weight[4:]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer(), Layer()])
            self.embed = torch.nn.Embedding(16, 8, dtype=torch.bfloat16)
            self.head = torch.nn.Linear(8, 16, bias=False, dtype=torch.bfloat16)
            self.head.weight = self.embed.weight

        @torch.no_grad()
        def load_weights(self, weights):
            for name, t in weights:
                if name == "embed":
                    self.embed.weight.copy_(t)
                    continue
                layer = self.layers[int(name[0])]
                (layer.bias if "bias" in name else layer.kv_b.weight).copy_(t)
            for layer in self.layers:
                layer.w_kc.copy_(layer.kv_b.weight[:4].t())
                layer.view = layer.kv_b.weight[4:]

    torch.manual_seed(5)
    model = Model()
    manifest = [("embed", (16, 8), "BF16")] + [
        (f"{i}.{n}", s, "BF16") for i in (0, 1) for n, s in (("kv_b", (12, 8)), ("bias", (6,)))]
    before = {n: words(t, torch).clone() for n, t in [*model.state_dict().items(),
                                                      ("0", model.layers[0].w_kc)]}
    first = weightbridge.extract(model.load_weights, manifest, model, framework="torch")
    assert set(first.param_names) == {"embed.weight", *(
        f"layers.{i}.{n}" for i in (0, 1) for n in ("kv_b.weight", "bias", "w_kc"))}, first.param_names
    assert not first.outside and not first.unmapped, first.outside
    for n, t in [*model.state_dict().items(), ("0", model.layers[0].w_kc)]:
        assert torch.equal(words(t, torch), before[n]), n
    given = values(torch, manifest)
    made = first.apply(given)
    model.load_weights(iter(given.items()))
    assert torch.equal(made["layers.1.w_kc"], model.layers[1].w_kc)
    dropped = weightbridge.extract(model.load_weights, manifest, dict(model.named_parameters()),
                                   framework="torch")
    assert set(dropped.outside) == {f"layers.{i}.{n} of Model" for i in (0, 1)
                                    for n in ("bias", "w_kc")}, dropped.outside

    def rebinds(weights):
        model.load_weights(weights)
        model.layers[0].kv_b.weight = torch.nn.Parameter(model.layers[0].kv_b.weight.clone())

    weight = model.layers[0].kv_b.weight
    before = words(weight, torch).clone()
    refused(weightbridge.NotCopyError, "layers.0.kv_b.weight: all elements: its storage was moved",
            weightbridge.extract, rebinds, manifest, model, framework="torch")
    assert model.layers[0].kv_b.weight is weight and torch.equal(words(weight, torch), before)


def distributed(torch):
    """A DTensor is refused with the remedy; in a module its local part is taken."""
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = dist.init_device_mesh("cpu", (1,))
    linear = torch.nn.Linear(8, 4, bias=False)
    linear.weight = torch.nn.Parameter(distribute_tensor(linear.weight.data, mesh, [Shard(0)]))

    @torch.no_grad()
    def load(weights):
        for _, t in weights:
            linear.weight.to_local().copy_(t)

    manifest, params = [("w", (4, 8), "F32")], dict(linear.named_parameters())
    said = "parameter weight: it is a distributed tensor (DTensor): give what this worker has of it, "
    refused(weightbridge.WeightBridgeError, said + "tensor.to_local()", weightbridge.extract, load,
            manifest, params)
    refused(weightbridge.WeightBridgeError, said, weightbridge.SenderAdapter(
        load, params=params, manifest=manifest, socket="/nonexistent/x").connect)
    m = weightbridge.extract(load, manifest, linear)
    assert m.param("weight")["ops"] == 1
    dist.destroy_process_group()


def only_moved(torch):
    """Types that are moved as words; a bool of torch's cannot be, and is named."""
    kinds = {"I64": torch.int64, "F64": torch.float64, "I16": torch.int16, "U32": torch.uint32,
             "F8_E8M0": torch.float8_e8m0fnu}
    params = {k: torch.zeros(6, 4).to(t) for k, t in kinds.items()}
    other = torch.zeros(3)

    def load(weights):
        for name, t in weights:
            (other if name == "n" else params[name]).copy_(t if name == "n" else t.t())

    manifest = [("n", (3,), "F32"), *((k, (4, 6), k) for k in kinds)]
    m = weightbridge.extract(load, manifest, {**params, "n": other})
    assert all(m.param(k)["ops"] for k in kinds)
    given = {k: torch.randint(0, 255, (4, 6 * p.element_size()), dtype=torch.uint8).view(p.dtype)
             for k, p in params.items()} | {"n": torch.ones(3)}
    m.apply(given, into={**params, "n": other})
    for k, p in params.items():
        assert torch.equal(words(p, torch), words(given[k].t(), torch)), k
    params["mask"] = torch.zeros(6, 4, dtype=torch.bool)
    refused(weightbridge.NotCopyError, "tensor mask is BOOL and copied nowhere byte by byte",
            weightbridge.extract, load, [*manifest, ("mask", (4, 6), "BOOL")], {**params, "n": other})
    m = weightbridge.extract(load, [*manifest, ("mask", (4, 6), "BOOL")], {**params, "n": other},
                             leave_out="mask")
    assert m.unmapped == ["mask"]


def inside():
    import torch
    only_moved(torch)
    distributed(torch)
    moved(torch)
    freed(torch)
    tried_out(torch)
    module(torch)
    params, load, manifest = fused(torch)
    before = {k: words(v, torch).clone() for k, v in params.items()}
    sm = weightbridge.extract(load, manifest, params)  # torch's: found out
    for k, v in params.items():
        assert torch.equal(words(v, torch), before[k]), f"{k} was not put back"
    given = values(torch, manifest)
    made = sm.apply(given)
    load(iter(given.items()))
    for k, v in params.items():
        assert isinstance(made[k], torch.Tensor), type(made[k])
        if k == "q":  # its lower half is written by nobody
            assert torch.equal(made[k][:8], v[:8])
            continue
        assert torch.equal(words(made[k], torch), words(v, torch)), k
    again = weightbridge.extract(load, manifest, params, framework="torch")
    assert again.digest == sm.digest
    print(f"torch {torch.__version__}: {sm.digest}")


def main():
    if os.environ.get("WB_TEST_TORCH_INSIDE"):
        inside()
        return 0
    found = subprocess.run(["sh", os.path.join(TOP, "tests", "bench", "torch.sh")], text=True,
                           capture_output=True, check=False,
                           env={**os.environ, "WB_TORCH": "off", "LD_PRELOAD": ""})
    if found.returncode:
        print("no Python with torch here; `make bench` gets one")
        return 77
    if os.environ.get("LD_PRELOAD"):
        print("torch under a sanitizer is not what is tested")
        return 77
    return subprocess.run([found.stdout.strip(), os.path.abspath(__file__)], check=False,
                          env={**os.environ, "WB_TEST_TORCH_INSIDE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
