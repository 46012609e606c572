# SPDX-License-Identifier: Apache-2.0
"""What weightbridge.adapters reads out of exporters, and what it refuses by name.  In one process, without agents."""
import os
import subprocess
import sys


def refused(part, f, *args, **kw):
    from weightbridge.errors import WeightBridgeError

    try:
        f(*args, **kw)
    except WeightBridgeError as e:
        assert part in str(e), f"{part!r} is not in: {e}"
        return
    raise AssertionError(f"not refused: {part}")


def stack(torch):
    """Experts kept together as [experts, gate and up, width], gate and up cut apart for the checkpoint."""
    params = {"gate_up": torch.zeros(3, 8, 5), "norm": torch.zeros(5)}

    def export(tensors):
        gate, up = tensors["gate_up"].chunk(2, dim=1)
        out = {"norm.weight": tensors["norm"].clone()}
        for e in range(3):
            out[f"{e}.gate"], out[f"{e}.up"] = gate.contiguous()[e].t(), up.contiguous()[e]
        return out
    return params, export


def an_exporter_that_cuts_and_transposes_is_followed_backwards(torch):
    from weightbridge.adapters.exports import Exports

    params, export = stack(torch)
    e = Exports(lambda: params, export, dtype=torch.bfloat16, kept=["norm"])
    assert e.manifest == [("0.gate", (5, 4), "BF16"), ("0.up", (4, 5), "BF16"), ("1.gate", (5, 4), "BF16"),
                          ("1.up", (4, 5), "BF16"), ("2.gate", (5, 4), "BF16"), ("2.up", (4, 5), "BF16"),
                          ("norm.weight", (5,), "F32")], e.manifest
    new = {n: torch.randn(s) for n, s, _ in e.manifest}
    e.load([*new.items(), ("of nobody", torch.zeros(1))])
    for name, t in export(params).items():
        assert torch.equal(t, new[name]), name


def a_part_of_a_parameter_and_a_wrong_shape_are_refused(torch):
    from weightbridge.adapters.exports import Exports

    params, export = stack(torch)
    e = Exports(lambda: params, export)
    some = [(n, torch.zeros(s)) for n, s, _ in e.manifest]
    refused("the checkpoint lacks 1.up", e.load, [t for t in some if t[0] != "1.up"])
    refused("tensor 0.up is [5, 4], parameter gate_up takes [4, 5]", e.load, [("0.up", torch.zeros(5, 4))])
    e.load([t for t in some if t[0] == "norm.weight"])  # a whole parameter may be missing: who maps it says so


def what_is_calculated_or_left_out_is_refused_by_name(torch):
    from weightbridge.adapters.exports import Exports

    params = {"a": torch.zeros(4, 4), "b": torch.zeros(4, 4)}
    for export, part in ((lambda t: {"a": t["a"] - 1, "b": t["b"]}, "calculates a:"),
                         (lambda t: {"both": torch.cat([t["a"], t["b"]])}, "calculates both:"),
                         (lambda t: {"a": t["a"][:3], "b": t["b"]}, "each element of parameter a once"),
                         (lambda t: {"a": t["a"], "c": t["a"], "b": t["b"]}, "each element of parameter a once")):
        refused(part, Exports, lambda: params, export)
    refused("calculates a:", Exports, lambda: {"a": params["a"]}, lambda t: {"a": t["a"] * 2})


def experts_of_transformers_are_named_one_by_one_and_tied_weights_once(torch):
    import transformers as hf

    from weightbridge.adapters import transformers

    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1, "vocab_size": 64, "head_dim": 16}
    moe = hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**small, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=24,
                                                   tie_word_embeddings=True))
    names = [n for n, _, _ in transformers.exports(moe, dtype="BF16").manifest]
    assert "model.layers.0.mlp.experts.1.gate_proj.weight" in names, names
    assert "lm_head.weight" not in names and "model.embed_tokens.weight" in names, names
    assert {d for _, _, d in transformers.exports(moe, dtype="BF16").manifest} == {"BF16"}


def padding_is_no_source_and_stays_as_it_is(torch):
    """The exporter cuts it away, or the engines' checkpoint has fewer rows; the parameter is one piece, or strided."""
    import weightbridge
    from weightbridge.adapters.exports import Exports

    for base in (torch.zeros(8, 5), torch.zeros(5, 8).t()):
        params = {"embed": base, "norm": torch.zeros(5)}
        for e in (Exports(lambda: params, lambda t: {"e": t["embed"][:6], "norm": t["norm"]}, padded=["embed"]),
                  Exports(lambda: params, lambda t: {"e": t["embed"], "norm": t["norm"]}, padded=["embed", "norm"],
                          checkpoint=[("e", (6, 5), "F32"), ("norm", (5,), "F32"), ("of nobody", (1,), "F32")])):
            params["embed"].fill_(9)
            new = {n: torch.randn(s) for n, s, _ in e.manifest}
            e.load(new.items())
            assert torch.equal(params["embed"][:6], new["e"]) and torch.equal(params["norm"], new["norm"])
            assert params["embed"][6:].eq(9).all()
            found = weightbridge.extract(e.load, e.manifest, e.params)
            assert params["embed"][6:].eq(9).all() and not found.unmapped
            assert "embed (not 10 of 40 elements)" in found.gaps, found.gaps
            params["embed"].fill_(3)
            found.apply(new, into=e.params())
            assert params["embed"][6:].eq(3).all() and torch.equal(params["embed"][:6], new["e"])


def padding_is_only_what_lies_behind_the_rows_of_a_parameter_that_may_have_it(torch):
    from weightbridge.adapters.exports import Exports

    params = {"a": torch.zeros(8, 5)}
    for export in (lambda t: {"a": t["a"][1:7]}, lambda t: {"a": t["a"][:, :4]}, lambda t: {"a": t["a"][::2]},
                   lambda t: {"a": t["a"][:6], "b": t["a"][5:6]}, lambda t: {"a": t["a"][:3], "b": t["a"][3:6]},
                   lambda t: {"a": t["a"][2:6], "b": t["a"][3:5]}, lambda t: {"a": t["a"], "b": t["a"][:6]}):
        refused("each element of parameter a once", Exports, lambda: params, export, padded=["a"])
    refused("give the name in `padded`", Exports, lambda: params, lambda t: {"a": t["a"][:6]})
    refused("a has 9 rows, parameter a has 8: the module lacks words", Exports, lambda: params, padded=["a"],
            checkpoint=[("a", (9, 5), "F32")])
    for more, shape in (({}, (6, 5)), ({"padded": ["a"]}, (6, 4)), ({"padded": ["a"]}, (8, 4))):
        e = Exports(lambda: params, checkpoint=[("a", shape, "F32")], **more)
        refused(f"tensor a is {list(shape)}, parameter a takes [8, 5]", e.load, [("a", torch.zeros(shape))])


def padding_over_ranks_is_what_each_has_of_it(torch):
    """Cut by rows and by columns over ranks that have words alone, both, padding alone, and nothing."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from weightbridge.adapters.exports import Exports

    new = torch.randn(4, 6)
    for n, placement, cut in ((5, Shard(0), lambda t, r: t[2 * r:2 * r + 2]), (2, Shard(1), lambda t, r: t[:, 3 * r:3 * r + 3]),
                              (2, Replicate(), lambda t, r: t)):
        for rank in range(n):
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=n)
            mesh = dist.device_mesh.init_device_mesh("cpu", (n,))
            for words in (4, 3):
                local = cut(torch.full((8, 6), 9.0), rank).clone()
                param = DTensor.from_local(local, mesh, [placement], run_check=False, shape=torch.Size((8, 6)), stride=(6, 1))
                e = Exports(lambda p=param: {"a": p}, padded=["a"], checkpoint=[("a", (words, 6), "F32")])
                e.load([("a", new[:words])])
                want = torch.cat([new[:words], torch.full((8 - words, 6), 9.0)])
                assert torch.equal(local, cut(want, rank)), (placement, rank, words)
                has_words = placement != Shard(0) or 2 * rank < words
                assert list(e.params()) == ["a"] * has_words, (placement, rank, words)
            dist.destroy_process_group()


def embeddings_of_transformers_may_have_more_rows_than_the_engines_checkpoint(torch):
    import transformers as hf

    from weightbridge.adapters import transformers

    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1, "head_dim": 16}
    for tied, names in ((True, ["model.embed_tokens.weight"]), (False, ["lm_head.weight", "model.embed_tokens.weight"])):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**small, vocab_size=61, tie_word_embeddings=tied))
        engines = transformers.exports(model).manifest
        model.resize_token_embeddings(pad_to_multiple_of=64)
        e = transformers.exports(model, manifest=engines)
        assert e.manifest == engines and [n for n, s, _ in engines if s[0] == 61] == names, e.manifest
        whole = transformers.exports(model).manifest  # for engines of a checkpoint that was saved with its padding
        assert [n for n, s, _ in whole if s[0] == 64] == names, whole
        model.resize_token_embeddings(60)
        refused("61 rows, parameter", transformers.sender, model, manifest=engines)
        wrong = [(n, (31,) if s == (32,) else s, d) for n, s, d in engines]  # a norm has no padding
        refused("takes [32]", transformers.exports(model.__class__(hf.LlamaConfig(**small, vocab_size=61)), manifest=wrong).load,
                [(n, torch.zeros(s)) for n, s, _ in wrong])


def a_map_of_a_module_is_exact_and_a_promotion_afterwards_is_noticed(torch):
    import weightbridge
    from weightbridge.adapters.exports import Exports
    from weightbridge.places import Places, Source

    params, export = stack(torch)
    e = Exports(lambda: params, export, dtype=torch.bfloat16)
    found = weightbridge.extract(e.load, e.manifest, e.params)
    assert not found.unmapped and not found.gaps, found.gaps
    source = Source(e.params)
    places = Places(source.now())
    places.check(source)
    params["gate_up"] = params["gate_up"].clone()
    try:
        places.check(source)
        raise AssertionError("a parameter with other storage was not noticed")
    except weightbridge.ParametersMoved as moved:
        assert moved.names == ["gate_up"], moved


def a_loader_that_calculates_is_tried_out_and_put_back(torch):
    """Types of torch's, a module with a tensor that its loader derives, and one loader that adds to what is there."""
    from weightbridge import arrays
    from weightbridge.places import Source
    from weightbridge.whole import Whole

    kinds = {"norm": torch.bfloat16, "q": torch.int8, "f8": torch.float8_e4m3fn, "scale": torch.float32}

    def made(value):
        module = torch.nn.Module()
        for name, kind in kinds.items():
            part = torch.full((6, 4), value).to(kind)
            module.register_parameter(name, torch.nn.Parameter(part, requires_grad=part.is_floating_point()))
        module.w_t = torch.full((4, 6), value)
        return module

    def load(module, adds, weights):
        with torch.no_grad():
            for name, t in weights:
                if name == "norm":
                    module.norm.copy_(t - 1 + (module.norm if adds else 0))
                if name != "w":
                    continue
                module.scale.copy_(t.abs().amax(1, keepdim=True).expand(6, 4))
                module.q.copy_((t / module.scale * 127).round())
                module.f8.copy_((t / module.scale).to(torch.float8_e4m3fn))
                module.w_t.copy_(t.t())

    def content(module):
        return [t.detach().float().clone() for t in (*module.parameters(), module.w_t)]

    manifest = [("norm", (6, 4), "BF16"), ("w", (6, 4), "F32"), ("none", (0,), "F32")]
    for adds, wrong in ((False, []), (True, ["norm"])):
        module, other = made(3.0), made(2.0)
        taken = Whole(lambda w, m=module, a=adds: load(m, a, w), Source(module), manifest, arrays.maker("torch", False))
        before = content(module)
        assert taken.try_out() == wrong, taken.try_out()
        assert all(torch.equal(a, b) for a, b in zip(before, content(module)))
    taken = Whole(lambda w: load(module, False, w), Source(module), manifest, arrays.maker("torch", False))
    new = {"norm": torch.randn(6, 4).bfloat16(), "w": torch.randn(6, 4)}
    taken.keep(new.items())
    taken.load()
    load(other, False, new.items())
    assert sorted(taken.params) == ["norm", "w"]
    assert all(torch.equal(a, b) for a, b in zip(content(other), content(module)))


def main():
    import torch

    for test in (an_exporter_that_cuts_and_transposes_is_followed_backwards,
                 a_part_of_a_parameter_and_a_wrong_shape_are_refused,
                 what_is_calculated_or_left_out_is_refused_by_name,
                 experts_of_transformers_are_named_one_by_one_and_tied_weights_once,
                 padding_is_no_source_and_stays_as_it_is,
                 padding_is_only_what_lies_behind_the_rows_of_a_parameter_that_may_have_it,
                 padding_over_ranks_is_what_each_has_of_it,
                 embeddings_of_transformers_may_have_more_rows_than_the_engines_checkpoint,
                 a_map_of_a_module_is_exact_and_a_promotion_afterwards_is_noticed,
                 a_loader_that_calculates_is_tried_out_and_put_back):
        test(torch)
        print("ok", test.__name__, flush=True)


if __name__ == "__main__":
    if os.environ.get("WB_INSIDE"):
        main()
    else:
        from fx import base_env, python

        sys.exit(subprocess.run([python("torch"), os.path.abspath(__file__)], env={**base_env(), "WB_INSIDE": "1"},
                                check=False).returncode)
