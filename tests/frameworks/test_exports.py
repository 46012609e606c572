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


def main():
    import torch

    for test in (an_exporter_that_cuts_and_transposes_is_followed_backwards,
                 a_part_of_a_parameter_and_a_wrong_shape_are_refused,
                 what_is_calculated_or_left_out_is_refused_by_name,
                 experts_of_transformers_are_named_one_by_one_and_tied_weights_once,
                 a_map_of_a_module_is_exact_and_a_promotion_afterwards_is_noticed):
        test(torch)
        print("ok", test.__name__, flush=True)


if __name__ == "__main__":
    if os.environ.get("WB_INSIDE"):
        main()
    else:
        from fx import base_env, python

        sys.exit(subprocess.run([python("torch"), os.path.abspath(__file__)], env={**base_env(), "WB_INSIDE": "1"},
                                check=False).returncode)
