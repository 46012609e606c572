# SPDX-License-Identifier: Apache-2.0
"""extract of torch's tensors on a CUDA device: the same maps as on the CPU, and all is as before.  Skipped where torch
sees no such device.  As a program with a number, it times an extraction of so many layers instead."""
import json
import os
import sys
import time

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path[:0] = [os.path.join(TOP, "agent", "python")]

try:
    import torch
except ImportError:
    print("no torch in this Python")
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch sees no CUDA device")
    sys.exit(77)

import weightbridge as wb  # noqa: E402
from fx_run import run_all  # noqa: E402


class Attention(torch.nn.Module):
    def __init__(self, h):
        super().__init__()
        self.qkv = torch.nn.Parameter(torch.randn(2 * h, h, dtype=torch.bfloat16))
        self.o = torch.nn.Parameter(torch.randn(h, h, dtype=torch.bfloat16).t())  # stored transposed
        self.norm = torch.nn.Parameter(torch.randn(h))  # cast to FP32
        self.register_buffer("scale", torch.ones(4))  # never written
        self.register_buffer("kc", torch.zeros(h // 2, h, dtype=torch.bfloat16))  # derived by the loader


class Model(torch.nn.Module):
    """Fused and transposed weights, a padded embedding, stacked experts, a tied head; loaded as engines do."""

    def __init__(self, layers=2, h=64, experts=4, vocab=100):
        super().__init__()
        self.h, self.experts, self.vocab = h, experts, vocab
        self.embed = torch.nn.Parameter(torch.randn(vocab + 28, h, dtype=torch.bfloat16))
        self.head = self.embed
        self.layers = torch.nn.ModuleList(Attention(h) for _ in range(layers))
        self.w13 = torch.nn.Parameter(torch.randn(layers * experts, 2 * h, h, dtype=torch.bfloat16))
        self.w2 = torch.nn.Parameter(torch.randn(layers * experts, h, h // 2, dtype=torch.bfloat16))
        self.unused = torch.nn.Parameter(torch.randn(7))
        self.stream = None

    def manifest(self):
        h, out = self.h, [("embed", (self.vocab, self.h), "BF16")]
        for i in range(len(self.layers)):
            out += [(f"{i}.{n}", s, "BF16") for n, s in (("q", (h, h)), ("k", (h // 2, h)), ("v", (h // 2, h)),
                                                         ("o", (h, h)), ("norm", (h,)))]
            for e in range(self.experts):
                out += [(f"{i}.{e}.{n}", s, "BF16") for n, s in (("gate", (h, h)), ("up", (h, h)), ("down", (h, h)))]
        return out

    def load_weights(self, weights):
        if self.stream is not None:  # copies that are still under way when this returns
            with torch.cuda.stream(self.stream):
                return self._load(weights)
        return self._load(weights)

    @torch.no_grad()
    def _load(self, weights):
        h = self.h
        for name, t in weights:
            layer, _, rest = name.partition(".")
            expert, _, kind = rest.rpartition(".")
            if name == "embed":
                self.embed[:self.vocab].copy_(t)
                self.embed[self.vocab:].zero_()
            elif expert:
                at = int(layer) * self.experts + int(expert)
                if kind == "down":
                    self.w2[at].copy_(t[:, h // 2:])
                else:
                    self.w13[at, h * (kind == "up"):][:h].copy_(t)
            else:
                a = self.layers[int(layer)]
                if kind in "qkv":
                    first = {"q": 0, "k": h, "v": h + h // 2}[kind]
                    a.qkv[first:first + len(t)].copy_(t)
                    if kind == "k":
                        a.kc.copy_(t)
                else:
                    getattr(a, kind).copy_(t)


def content(model):
    return {n: t.detach().cpu().contiguous().view(torch.uint8).clone() for n, t in
            [*model.named_parameters(), *model.named_buffers()]}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def probe(model, **options):
    before = content(model)
    m = wb.extract(model.load_weights, model.manifest(), model, **options)
    assert same(before, content(model)), "a parameter is not as it was"
    assert m.unmapped == ["unused"], m.unmapped
    return m


def make(device, **sizes):
    torch.manual_seed(5)
    return Model(**sizes).to(device)


def maps_are_those_of_the_cpu():
    want = probe(make("cpu")).digest
    assert probe(make("cuda")).digest == want
    assert probe(make("cuda"), tensors_on="cuda").digest == want
    assert probe(make("cuda"), tensors_on="cuda", expand_bytes=1).digest == want
    assert probe(make("cuda"), threads=3, n_hash=2, seed=9).digest == want


def a_module_on_both_is_probed_where_each_parameter_lies():
    model = make("cuda")
    model.w2.data = model.w2.data.cpu()
    model.layers[0].qkv.data = model.layers[0].qkv.data.cpu()
    assert probe(model).digest == probe(make("cpu")).digest


def copies_of_another_stream_are_waited_for():
    model = make("cuda", layers=4, h=512)
    want = probe(make("cpu", layers=4, h=512)).digest
    model.stream = torch.cuda.Stream()
    assert probe(model, tensors_on="cuda").digest == want


def a_loader_that_computes_is_refused():
    model = make("cuda")
    load = model.load_weights
    before = content(model)
    try:
        wb.extract(lambda w: (load(w), model.w13.data.mul_(2)), model.manifest(), model)
    except wb.NotCopyError as e:
        assert "w13" in str(e) and "arithmetic" in str(e), e
    else:
        raise AssertionError("it was not refused")
    assert same(before, content(model))


def a_loader_that_puts_another_tensor_in_place_is_refused():
    for place in ("cuda", "cpu"):
        model = make("cuda")
        load, before, calls = model.load_weights, content(model), []

        def moving(w, load=load, model=model, calls=calls, place=place):
            load(w)
            calls.append(1)
            if len(calls) == 2:
                model.w2.data = model.w2.data.clone().to(place)
        try:
            wb.extract(moving, model.manifest(), model)
        except wb.NotCopyError as e:
            assert "w2: all elements: its storage was moved" in str(e), e
        else:
            raise AssertionError("it was not refused")
        assert same(before, content(model)), place


def constants_are_written_there():
    m, model = probe(make("cuda")), make("cuda")
    m.write_constants(dict(model.named_parameters()) | dict(model.named_buffers()))
    assert not model.embed[model.vocab:].any() and model.embed[:model.vocab].any()


def a_cached_map_is_checked_there():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        digests = {probe(make("cuda"), cache_dir=folder).digest for _ in range(2)}
        assert len(digests) == 1


TESTS = [maps_are_those_of_the_cpu, a_module_on_both_is_probed_where_each_parameter_lies,
         copies_of_another_stream_are_waited_for, a_loader_that_computes_is_refused,
         a_loader_that_puts_another_tensor_in_place_is_refused, constants_are_written_there, a_cached_map_is_checked_there]


def timed(layers):
    """A worker of `layers` layers of 128 experts; the tensors made on the GPU and, smaller, on the host."""
    torch.manual_seed(5)
    with torch.device("cuda"):
        model = Model(layers=layers, h=768, experts=128, vocab=18992)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    loads = []

    def load(weights):
        begin = time.perf_counter()
        model.load_weights(weights)
        torch.cuda.synchronize()
        loads.append(time.perf_counter() - begin)
    for on in ("cuda", "cuda", "cpu"):
        loads.clear()
        begin = time.perf_counter()
        m = wb.extract(load, model.manifest(), model, tensors_on=on)
        seconds = time.perf_counter() - begin
        print(json.dumps({"name": "extract_torch", "device": torch.cuda.get_device_name(), "tensors_on": on, "bytes": size,
                          "tensors": len(model.manifest()), "ops": m.n_ops, "passes": len(loads),
                          "seconds": round(seconds, 3), "load_seconds": round(sum(loads), 3),
                          "own_seconds": round(seconds - sum(loads), 3)}), flush=True)


def main():
    if len(sys.argv) > 1:
        timed(int(sys.argv[1]))
        return
    run_all(TESTS, f" on {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
