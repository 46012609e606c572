# SPDX-License-Identifier: Apache-2.0
"""The reference engines against the oracle, on tiny models of every arch and layout."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "demo")]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import make_checkpoint  # noqa: E402
from engines import arena, deploy, make, models, oracle, safetensors_io, versions  # noqa: E402
from engines.base import LoadError  # noqa: E402

SEED = int(os.environ.get("WB_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
DENSE = models.load("tiny-qwen3-moe", arch="qwen3", experts=0, heads=8, kv_heads=4)
TIED = models.load("tiny-qwen3-moe", arch="qwen3", experts=0, tie_word_embeddings=True,
                   ckpt_stores_tied_lm_head=True)
MOE = models.load("tiny-qwen3-moe")
MLA = models.load("tiny-mla-moe")
MLA_Q = models.load("tiny-mla-moe", q_lora_rank=0, mtp_layers=0, shared_experts=2)
ALL = [DENSE, TIED, MOE, MLA, MLA_Q]


def specs():
    """(spec) of every layout and arch, a few ranks each."""
    trainers = [dict(), dict(tp=2, tp_rank=1), dict(tp=2, tp_rank=1, pp=2, pp_rank=0),
                dict(tp=2, tp_rank=0, pp=2, pp_rank=1, ep=4, ep_rank=3),
                dict(tp=4, tp_rank=2, ep=8, ep_rank=5), dict(tp=4, tp_rank=3),
                dict(tp=8, tp_rank=7, vocab_multiple=64),
                dict(pp=3, pp_rank=2, stages=[1, 1, 2]), dict(pp=3, pp_rank=1, stages=[1, 1, 2])]
    shards = [dict(), dict(world=4, rank=3), dict(world=3, rank=2), dict(world=7, rank=6),
              dict(world=3, rank=1, masters=True), dict(world=3, rank=2, stacked=True),
              dict(world=5, rank=4, stacked=True, masters=True),
              dict(world=2, rank=0, tied="alias"), dict(world=7, rank=3, flat=True),
              dict(world=7, rank=6, flat=True, masters=True)]
    engines = [dict(), dict(tp=2, tp_rank=1), dict(tp=4, tp_rank=3, tied="alias"),
               dict(tp=8, tp_rank=7), dict(tp=8, tp_rank=5, ep=8), dict(tp=4, tp_rank=2, ep=2),
               dict(tp=4, tp_rank=3, dp=2, ep=4, dense_tp=1),
               dict(tp=4, tp_rank=3, dp=2, ep=4, dense_tp=2, shared_tp=2),
               dict(pp=2, pp_rank=0, tp=2), dict(pp=2, pp_rank=1, tp=2, tp_rank=1),
               dict(tp=2, tp_rank=1, gate_up="transposed"),
               dict(tp=2, tp_rank=0, gate_up="transposed", interleave=True, ep=2),
               dict(tp=2, tp_rank=1, interleave=True), dict(tp=2, tp_rank=1, swap=True),
               dict(bias_dtype="BF16")]
    for c in ALL:
        for framework, table in (("megatron", trainers), ("fsdp2", shards), ("vllm", engines),
                                 ("sglang", engines)):
            for s in table:
                yield c, {"framework": framework, "model": c.to_dict(), **s}
    for framework in ("vllm", "sglang"):
        yield MLA, {"framework": framework, "model": MLA.to_dict(), "tp": 2, "tp_rank": 1,
                    "ep": 2, "draft": True}


def same_bytes(engine, want, label):
    assert engine.params.keys() == want.keys(), \
        f"{label}: {sorted(engine.params.keys() ^ want.keys())[:4]}"
    for name, (a, _) in engine.params.items():
        assert a.shape == want[name].shape, f"{label}: {name} {a.shape} {want[name].shape}"
        assert a.view(want[name].dtype).tobytes() == want[name].tobytes(), f"{label}: {name}"


def loaders_agree_with_the_oracle():
    ckpts = {id(c): versions.random_checkpoint(c, SEED) for c in ALL}
    later = {id(c): versions.at_version(ckpts[id(c)], 7) for c in ALL}
    rng = random.Random(SEED)
    n = 0
    for c, spec in specs():
        label = json.dumps({k: v for k, v in spec.items() if k != "model"}) + c.arch
        ckpt = ckpts[id(c)]
        engine = make(spec, lambda shape, dtype: np.full(shape, 77, dtype))
        order = list(ckpt.items())
        rng.shuffle(order)
        engine.load_weights(iter(order))
        same_bytes(engine, oracle.build(spec, ckpt), label)
        assert oracle.verify_params(engine.params, ckpt, spec, 1) == [], label
        if spec["framework"] in ("megatron", "fsdp2"):
            engine.set_version(3)
            engine.set_version(7)
        else:
            engine.load_weights(later[id(c)].items())
        same_bytes(engine, oracle.build(spec, ckpt, 7), label)
        assert oracle.verify_params(engine.params, ckpt, spec, 7) == [], label
        n += 1
    return f"{n} workers"


def verify_finds_any_wrong_element():
    rng = np.random.default_rng(SEED)
    n = 0
    for c, s in ((MLA, dict(framework="sglang", tp=2, tp_rank=1, ep=2)),
                 (MOE, dict(framework="vllm", tp=2, gate_up="transposed", interleave=True)),
                 (TIED, dict(framework="megatron", tp=4, tp_rank=3, pp=2, pp_rank=1)),
                 (MOE, dict(framework="fsdp2", world=3, rank=1, masters=True))):
        spec, ckpt = {"model": c.to_dict(), **s}, versions.random_checkpoint(c, SEED)
        engine, _ = arena.for_spec(spec, "heap", pitch=32)
        engine.load_weights(ckpt.items())
        assert oracle.verify_params(engine.params, ckpt, spec, 1) == []
        for name, (a, _) in engine.params.items():
            words = a.view({2: np.uint16, 4: np.uint32}[a.itemsize])
            first = tuple(int(rng.integers(0, d)) for d in a.shape)
            last = tuple(d - 1 for d in a.shape)
            before = {at: words[at] for at in (first, last)}
            for at in before:
                words[at] ^= 1 << int(rng.integers(0, 8 * a.itemsize))
            got = oracle.verify_params(engine.params, ckpt, spec, 1)
            assert [(m.name, m.index, m.count) for m in got] == [(name, first, len(before))], got
            for at, value in before.items():
                words[at] = value
            n += 1
        # A wrong version is wrong everywhere but in padding.
        rows = sum(m.count for m in oracle.verify_params(engine.params, ckpt, spec, 2))
        pads = sum(a.size for a, _ in engine.params.values()) - rows
        assert 0 <= pads <= 1024 * c.hidden, pads
        assert oracle.verify_params({}, ckpt, spec, 1)[0].index is None
    return f"{n} parameters"


def counts_are_those_of_the_published_deployments():
    # parameters, (tensor, rectangle) pairs, GB of one worker at full size
    for name, s, want in (
            ("Moonlight-16B-A3B", dict(framework="megatron", tp=2, ep=8), (714, 949, 5.20)),
            ("Moonlight-16B-A3B", dict(framework="sglang", tp=8, ep=8), (404, 1057, 4.07)),
            ("Qwen3-30B-A3B", dict(framework="megatron", tp=4, ep=8), (1875, 2739, 8.04)),
            ("Qwen3-30B-A3B", dict(framework="sglang", tp=8, ep=8), (435, 2739, 7.68)),
            ("Qwen3-32B", dict(framework="megatron", tp=8, pp=2), (257, 353, 4.10)),
            ("Qwen3-32B", dict(framework="megatron", tp=8, pp=2, pp_rank=1), (258, 354, 4.10)),
            ("Qwen3-32B", dict(framework="sglang", tp=8), (515, 707, 8.19)),
            ("Kimi-K2-Instruct", dict(framework="sglang", tp=32, ep=32, dp=8, dense_tp=1),
             (975, 4967, 70.61))):
        spec = {"model": models.load(name).to_dict(), **s}
        params, pairs, size = oracle.count(spec)
        assert (params, pairs, round(size / 1e9, 2)) == want, (name, s, params, pairs, size)
    assert models.tensor_count(models.load("Moonlight-16B-A3B"))[0] == 5317
    assert models.tensor_count(models.load("Qwen3-30B-A3B"))[0] == 18867


def trainers_hold_what_engines_need():
    n = 0
    for c, trainer, engine in (
            (TIED, deploy.megatron(TIED, 4, tp=2, pp=2), deploy.engine("vllm", TIED, 2)),
            (MOE, deploy.megatron(MOE, 16, tp=4, pp=2, ep=8),
             deploy.engine("sglang", MOE, 8, ep=8)),
            (MLA, deploy.megatron(MLA, 8, tp=2, ep=8),
             deploy.engine("sglang", MLA, 4, dp=2, ep=4, dense_tp=1, draft=True)),
            (DENSE, deploy.fsdp2(DENSE, 7), deploy.engine("vllm", DENSE, 2, pp=2)),
            (MOE, deploy.fsdp2(MOE, 5, flat=True), deploy.engine("vllm", MOE, 4, ep=2))):
        shapes = {name: shape for name, shape, _ in models.tensors(c)}
        held = {name: np.zeros(s, np.bool_) for name, s in shapes.items()}
        for spec in trainer:
            for mask, where in _places(spec, held):
                mask[where] = True
        for spec in engine:
            for mask, where in _places(spec, held):
                assert mask[where].all(), (spec, where)
                n += 1
    assert deploy.demo(TIED)[0][3]["pp_rank"] == 1
    for name in "abcde":
        trainer, engines = deploy.pair(name)
        assert (len(trainer), sum(map(len, engines))) == {
            "a": (8, 8), "b": (16, 16), "c": (128, 64), "d": (256, 256), "e": (16, 16)}[name]
    return f"{n} rectangles"


def _places(spec, masks):
    """Yield (mask of a tensor, index of a rectangle that the worker has)."""
    for rule in oracle.rules(spec).values():
        for b in rule.blocks():
            for tensor, _, rows in oracle.pieces(b):
                if tensor:
                    mask = masks[tensor]
                    mask = mask.reshape(-1, 1) if b.flat or mask.ndim == 1 else mask
                    yield mask, (rows, slice(b.col, b.col + b.width))


def every_element_differs_between_versions():
    bits = np.arange(65536, dtype=np.uint16)
    finite = (bits & 0x7F80) != 0x7F80
    seen = set()
    for v in range(1, 1 + versions.PERIOD):
        a = bits.copy()
        versions.mutate(a, "BF16", v)
        assert v == 1 or (a != bits).all()
        assert (((a & 0x7F80) != 0x7F80) == finite).all()
        seen.add(int(a[0]))
    assert len(seen) == versions.PERIOD
    a = np.random.default_rng(SEED).random(1000, np.float32)
    b = a.copy()
    versions.mutate(b, "F32", 2)
    versions.mutate(b, "F32", 9, 2)
    assert (a != b).all() and np.isfinite(b).all()
    versions.mutate(b, "F32", 1, 9)
    assert (a == b).all()
    odd = np.zeros((5, 8), np.uint16)[:, :7]
    versions.mutate(odd, "BF16", 4)
    assert (odd == versions.word("BF16", 4)).all()


def raises(kind, part, call, *args):
    try:
        call(*args)
    except kind as e:
        assert part in str(e), e
        return
    raise AssertionError(f"{kind.__name__} with {part!r} expected")


def loaders_name_what_they_refuse():
    spec = {"framework": "sglang", "model": MLA.to_dict(), "tp": 2}
    engine = make(spec)
    raises(LoadError, "model.layers.0.bogus", engine.load_weights,
           [("model.layers.0.bogus", np.zeros(3, np.uint16))])
    raises(LoadError, "model.norm.weight", engine.load_weights,
           [("model.norm.weight", np.zeros(3, np.uint16))])
    engine.load_weights([("model.layers.0.self_attn.rotary_emb.inv_freq", np.zeros(4))])
    raises(ValueError, "unknown settings tpp", make, {**spec, "tpp": 2})
    raises(ValueError, "does not divide by 3", make, {**spec, "tp": 3})


def loaders_take_views_and_ml_dtypes():
    spec = {"framework": "megatron", "model": MLA.to_dict(), "tp": 2, "tp_rank": 1}
    ckpt = versions.random_checkpoint(MLA, SEED)
    a, b = make(spec), make(spec)
    a.load_weights((n, t.view(ml_dtypes.bfloat16) if t.dtype == np.uint16 else t)
                   for n, t in ckpt.items())
    assert oracle.verify_params(a.params, ckpt, spec, 1) == []
    flat = {n: np.broadcast_to(t.reshape(-1)[:1], t.shape) for n, t in ckpt.items()}
    b.load_weights(flat.items())
    assert oracle.verify_params(b.params, flat, spec, 1) == []


def tied_embeddings_share_storage():
    engine = make({"framework": "vllm", "model": TIED.to_dict(), "tied": "alias"})
    assert engine.params["lm_head.weight"][0] is engine.params["model.embed_tokens.weight"][0]
    assert "lm_head.weight" not in make({"framework": "vllm", "model": TIED.to_dict()}).params


def canaries_and_pads_are_checked():
    spec = {"framework": "vllm", "model": MOE.to_dict(), "tp": 2}
    ckpt = versions.random_checkpoint(MOE, SEED)
    for kind in ("memfd", "heap"):
        engine, mem = arena.for_spec(spec, kind, pitch=64)
        engine.load_weights(ckpt.items())
        with tempfile.TemporaryDirectory() as tmp:
            path = None
            if kind == "heap":
                path = os.path.join(tmp, "dump")
                mem.dump(path)
            image = arena.Image(json.loads(json.dumps(mem.describe(engine.params, path))))
            assert oracle.verify_params(image.params, ckpt, spec, 1) == []
            assert image.check() == mem.check() == []
        array = engine.params["model.layers.0.mlp.experts.w13_weight"][0]
        base = mem.buffer.__array_interface__["data"][0]
        at = array.__array_interface__["data"][0] - base
        row = array.shape[-1] * array.itemsize
        for place in (at - 1, at + row, at + array.strides[0] * array.shape[0]):
            keep = mem.buffer[place]
            mem.buffer[place] = 0
            assert mem.check() == [place], (kind, place)
            mem.buffer[place] = keep
        assert mem.check() == []


def safetensors_round_trips_and_refuses():
    ckpt = versions.random_checkpoint(MLA, SEED)
    listed = models.tensors(MLA)
    with tempfile.TemporaryDirectory() as tmp:
        half = len(listed) // 2
        where = {}
        for i, part in enumerate((listed[:half], listed[half:])):
            name = f"model-{i}.safetensors"
            safetensors_io.write(os.path.join(tmp, name), part, (ckpt[n] for n, _, _ in part))
            where.update({n: name for n, _, _ in part})
        with open(os.path.join(tmp, safetensors_io.INDEX), "w", encoding="utf-8") as f:
            json.dump({"weight_map": where}, f)
        got = safetensors_io.Checkpoint(tmp)
        assert list(got.keys()) == list(ckpt.keys())
        assert all(np.array_equal(t, ckpt[n]) and t.dtype == ckpt[n].dtype for n, t in got.items())
        assert models.fit(MLA, got.info()) == MLA
        bad = os.path.join(tmp, "bad.safetensors")
        t = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
        for head, data, what in ((b"", b"", "too short"), (None, b"", "a header of"),
                                 ({"a": t}, b"1234567", "bytes 0..8 of 7"),
                                 ({"a": {**t, "shape": [2, 3]}}, b"12345678", "is not 8 bytes"),
                                 ({"a": {**t, "dtype": "B16"}}, b"12345678", "unknown dtype"),
                                 ({"a": {**t, "shape": [-2, -2]}}, b"12345678", "whole numbers"),
                                 ({"a": {"dtype": "BF16"}}, b"", "needs dtype"),
                                 ([1], b"", "not an object"), (b"{", b"", "not JSON")):
            raw = head if isinstance(head, bytes) else json.dumps(head).encode()
            size = struct.pack("<Q", 1 << 60 if head is None else len(raw))
            with open(bad, "wb") as f:
                f.write((size if what != "too short" else b"") + raw + data)
            raises(safetensors_io.FormatError, what, safetensors_io.File, bad)


def user_configs_are_read_or_refused_by_a_sentence():
    dense = {"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 128, "vocab_size": 1000,
             "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
             "intermediate_size": 256, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
    mla = {"model_type": "kimi_k2", "num_hidden_layers": 4, "hidden_size": 128,
           "vocab_size": 1000, "num_attention_heads": 8, "num_key_value_heads": 8,
           "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
           "v_head_dim": 16, "intermediate_size": 256, "moe_intermediate_size": 48,
           "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
           "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
    with tempfile.TemporaryDirectory() as tmp:
        def read(hf):
            with open(os.path.join(tmp, "config.json"), "w", encoding="utf-8") as f:
                json.dump(hf, f)
            return models.from_hf(tmp)
        raises(models.ModelError, "No such file", models.from_hf, tmp)
        assert models.tensors(read(dense)) == models.tensors(DENSE)
        assert models.tensors(read(mla)) == models.tensors(MLA)
        assert models.tensors(read({**mla, "model_type": "deepseek_v3", "q_lora_rank": None,
                                    "num_nextn_predict_layers": 0, "n_shared_experts": 2})) \
            == models.tensors(MLA_Q)
        raises(models.ModelError, "supported are deepseek_v3, kimi_k2, moonlight, qwen3", read,
               {**dense, "model_type": "llama"})
        raises(models.ModelError, "hidden_size is missing", read,
               {k: v for k, v in dense.items() if k != "hidden_size"})
        raises(models.ModelError, "quantised", read, {**mla, "quantization_config": {}, **{
            "quantization_config": {"quant_method": "fp8"}}})
        present = {n: (s, d) for n, s, d in models.tensors(DENSE)}
        del present["model.norm.weight"]
        raises(models.ModelError, "model.norm.weight is missing", models.fit, DENSE, present)


def made_checkpoints_are_whole_and_kept():
    c = models.load("Qwen3-0.6B", layers=2, width=32)
    with tempfile.TemporaryDirectory() as tmp:
        said = []
        one = make_checkpoint.make(c, where=tmp, say=said.append)
        assert make_checkpoint.make(c, where=tmp, say=said.append) == one and len(said) == 1
        cut = make_checkpoint.make(c, shards=3, where=tmp)
        assert len([n for n in os.listdir(cut) if n.endswith(".safetensors")]) == 3
        for folder in (one, cut):
            files = safetensors_io.Checkpoint(folder)
            assert "lm_head.weight" in files
            assert models.tensors(models.fit(models.from_hf(folder), files.info())) \
                == models.tensors(c)
        words = safetensors_io.Checkpoint(one)["model.embed_tokens.weight"]
        assert len(np.unique(words)) > 50000
        moe = make_checkpoint.make(MLA, where=tmp, finite=True)
        for name, t in safetensors_io.Checkpoint(moe).items():
            bits = t.view(np.uint16) if t.dtype == np.uint16 else t.view(np.uint32) >> 16
            assert ((bits & 0x7F80) != 0x7F80).all(), name
        assert models.fit(models.from_hf(moe), safetensors_io.Checkpoint(moe).info()) == MLA


def verify_runs_in_a_process_of_its_own():
    spec = {"framework": "vllm", "model": TIED.to_dict(), "tp": 2, "tied": "alias"}
    tool = os.path.join(os.path.dirname(make_checkpoint.__file__), "verify.py")
    with tempfile.TemporaryDirectory() as tmp:
        folder = make_checkpoint.make(TIED, where=tmp)
        engine, mem = arena.for_spec(spec, pitch=16)
        engine.load_weights(safetensors_io.Checkpoint(folder).items())
        both = json.dumps({"image": mem.describe(engine.params), "spec": spec})

        def run(version):
            return subprocess.run([sys.executable, tool, "--checkpoint", folder, "--version",
                                   str(version)], input=both, text=True, capture_output=True,
                                  check=False)
        good = run(1)
        assert good.returncode == 0 and json.loads(good.stdout)["wrong"] == [], good.stderr
        bad = run(2)
        assert bad.returncode == 1 and "model.norm.weight[0]" in bad.stdout
        mem.buffer[0] = 0
        assert "1 canary bytes overwritten, the first at 0" in run(1).stdout


def widths_and_layers_shrink():
    c = models.load("Qwen3-30B-A3B", layers=2, width=16)
    assert (c.hidden, c.head_dim, c.experts, c.layers, c.heads) == (128, 8, 128, 2, 32)
    raises(models.ModelError, "not a multiple", models.load, "Qwen3-30B-A3B", 1, 7)


def main():
    print(f"seed {SEED}")
    for test in (loaders_agree_with_the_oracle, verify_finds_any_wrong_element,
                 counts_are_those_of_the_published_deployments,
                 trainers_hold_what_engines_need, every_element_differs_between_versions,
                 made_checkpoints_are_whole_and_kept, verify_runs_in_a_process_of_its_own,
                 loaders_name_what_they_refuse,
                 loaders_take_views_and_ml_dtypes, tied_embeddings_share_storage,
                 canaries_and_pads_are_checked, safetensors_round_trips_and_refuses,
                 user_configs_are_read_or_refused_by_a_sentence, widths_and_layers_shrink):
        note = test()
        print(f"{test.__name__}: ok{', ' + note if note else ''}", flush=True)


if __name__ == "__main__":
    main()
