# SPDX-License-Identifier: Apache-2.0
"""wbctl simulate: figures of plans, files, and what it refuses.  Standard library only."""
import glob
import json
import os
import subprocess
import tempfile

TOP = os.environ.get("WB_TOP", ".")
BIN = os.path.join(os.environ["WB_BUILD"], "bin", "wbctl")
FIELDS = ("deployment", "workers", "classes", "messages", "peers_max", "plan_ms", "rss_mib", "t_min_ms",
          "worker_bound_ms", "load_over_bound", "pods", "near_gb", "head_mib", "part_max_mib", "replan_ms")
# EWTT and AGST over T_min that the paper says of its four deployments (section 4.2); of the dense one 0.19 s (4.4).
PAPER = {"a": (1.27, 0.90), "b": (1.18, 0.89), "c": (1.69, 1.46), "d": (2.12, 2.02), "e": (1.16, None)}
PREDICTED = ("ewtt_ms", "agst_ms", "trainer_ms", "events", "busiest")
# Deployment, workers, T_min in ms at 400 GB/s a node.
PUBLISHED = {"a": (16, 79.8), "b": (32, 152.7), "c": (128, 294.1), "d": (512, 1317.1), "e": (32, 163.8)}
DENSE = {"model_type": "qwen3", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "hidden_size": 128,
         "vocab_size": 1000, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
         "intermediate_size": 256, "tie_word_embeddings": False}
SMALL = ("--model", "Qwen3-0.6B", "--trainer", "megatron:tp2", "--rollout", "vllm:tp2", "--engines", "2")
SIDES = ("--trainer", "megatron:tp2", "--rollout", "vllm:tp2")


def run(*args):
    return subprocess.run([BIN, "simulate", *args], capture_output=True, text=True, check=False)


def figures(*args):
    done = run("--json", *args)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def timeless(line):
    return {k: v for k, v in line.items() if k not in ("plan_ms", "replan_ms", "rss_mib")}


def deployments_of_the_bench_have_their_bounds():
    for path in sorted(glob.glob(os.path.join(TOP, "tests", "bench", "deployments", "*.yaml"))):
        line = figures(path, "--plan-only")
        assert "ewtt_ms" not in line, line
        workers, t_min = PUBLISHED.pop(line["deployment"])
        assert line["workers"] == workers and abs(line["t_min_ms"] - t_min) < 0.06, line
        assert 0.999 <= line["load_over_bound"] <= 1.02 and line["peers_max"] <= 64, line
        assert line["plan_ms"] > 0 and 0 < line["rss_mib"] < 1024, line
        assert 0 < line["head_mib"] + line["part_max_mib"] < 0.5 and 0 < line["replan_ms"] < 10000, line
        assert set(FIELDS) <= set(line), line
    assert not PUBLISHED


def experts_cut_among_256_ranks_come_in_small_parts():
    """788,000 pieces of the checkpoint; without runs of equal ones a part has 16 MiB."""
    line = figures("--plan-only", "--model", "Kimi-K2-Instruct", "--trainer", "fsdp2:256,stacked", "--rollout",
                   "sglang:tp32,dp8,ep32,dense_tp1", "--engines", "8")
    assert line["part_max_mib"] < 2 and line["head_mib"] < 1, line


def a_transfer_comes_near_the_bound():
    """Each rail is at work all the time, trainers first, who leave early; chunks are large enough for loops of 5 us
    an event."""
    for name, ewtt, agst in (("a", 1.10, 0.95), ("b", 1.08, 0.76)):
        path = os.path.join(TOP, "tests", "bench", "deployments", name + ".yaml")
        line = figures("--set", "loopUs=5", path)
        assert line["ewtt_over_tmin"] <= ewtt and line["agst_over_tmin"] <= agst, line
        assert line["agst_over_tmin_loop"] <= agst < line["agst_stay_over_tmin"], line
        assert line["ewtt_over_tmin_loop"] <= ewtt and line["load_over_bound"] <= 1.003, line
        assert line["refused"] == 0 and line["busiest_share"] > 0.95, line


def a_scaled_fourth_deployment_comes_near_it_too(folder):
    """As d, with half the layers and a quarter of the experts on 32 and 32 GPUs: MLA, attention over 4 of 8 workers,
    dense MLPs whole, four engines."""
    config = os.path.join(folder, "scaled.json")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"model_type": "kimi_k2", "torch_dtype": "bfloat16", "num_hidden_layers": 31, "hidden_size": 7168,
                   "vocab_size": 163840, "num_attention_heads": 64, "num_key_value_heads": 64,
                   "intermediate_size": 18432, "n_routed_experts": 96, "moe_intermediate_size": 2048,
                   "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
                   "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, f)
    line = figures("--model", config, "--trainer", "megatron:tp4,pp4,cp2,ep8,last7", "--rollout",
                   "sglang:tp8,dp2,ep8,dense_tp1", "--engines", "4")
    assert (line["workers"], line["nodes"]) == (64, 8) and line["load_over_bound"] <= 1.003, line
    assert line["ewtt_over_tmin"] <= 1.06 and line["ewtt_over_tmin_loop"] <= 1.065, line
    assert line["agst_over_tmin"] <= 0.70 and line["refused"] == 0 and line["busiest_share"] > 0.95, line


def the_flow_of_the_paper_takes_as_long_as_the_paper_says():
    """Three parameters for nine figures: each within a twelfth."""
    for name, (ewtt, agst) in PAPER.items():
        line = figures("--mode", "paper", os.path.join(TOP, "tests", "bench", "deployments", name + ".yaml"))
        off = [line["ewtt_over_tmin"] / ewtt - 1] + ([line["agst_over_tmin"] / agst - 1] if agst else [])
        print(name, line["rounds"], "rounds;", *(f"{100 * x:+.1f} %" for x in off))
        assert max(map(abs, off)) < 1 / 12, (name, off)
        assert line["rounds"] == 6 or name in "cd", line  # of b the paper says six
        assert line["busiest_share"] < 1 and line["control_ms"] > 0, line
    both = figures(*SMALL)
    alone = figures(*SMALL, "--mode", "paper")
    for what in ("ewtt", "agst"):
        assert both[what + "_over_tmin_paper"] == alone[what + "_over_tmin"] > 0.5, (both, alone)
    assert "\nrounds " in run(*SMALL, "--mode", "paper").stdout


def a_file_and_options_say_the_same(folder):
    path = os.path.join(folder, "b.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("model: Qwen3-30B-A3B\ntrainer: megatron:tp4,ep8\nrollout: sglang:tp8,ep8\n"
                "engines: 2\ngpusPerNode: 4\nrailGbit: 200\n")
    args = ("--model", "Qwen/Qwen3-30B-A3B", "--trainer", "megatron:tp4,ep8", "--rollout",
            "sglang:tp8,ep8", "--engines", "2", "--gpus-per-node", "4", "--rail-gbit", "200")
    assert timeless(figures(path)) == timeless(figures(*args))
    # Options go before the file.  Half the rate takes twice as long; of one engine nothing is exchanged.
    for rate, longer in (("100", 2), ("0.125", 1600)):
        assert abs(figures(path, "--plan-only", "--rail-gbit", rate)["t_min_ms"] / figures(*args)["t_min_ms"] / longer - 1) < 0.001, rate
    assert figures(path, "--engines", "1")["workers"] == 16
    text = run(path).stdout
    for field in FIELDS[1:] + PREDICTED:
        assert f"\n{field} " in text, (field, text)


def pods_that_share_memory_take_from_the_network_together():
    """Engines of four GPUs, two on a node of eight: each node gets the model once, and the rest through memory."""
    args = ("--model", "Qwen3-32B", "--trainer", "fsdp2:32", "--rollout", "vllm:tp4", "--engines", "8", "--rail-gbit", "50")
    one = figures("--plan-only", *args[:5], "vllm:tp8", "--engines", "4", *args[8:])  # a pod a node
    own, shared = figures(*args), figures(*args, "--pod-memory", "shared")
    print({k: (own[k], shared[k]) for k in ("t_min_ms", "worker_bound_ms", "near_gb", "ewtt_ms")}, one["t_min_ms"])
    assert own["near_gb"] == 0 and abs(shared["near_gb"] / (4 * one["model_bytes"] / 1e9) - 1) < 0.01, shared
    for bound in ("t_min_ms", "worker_bound_ms"):
        assert abs(shared[bound] / one[bound] - 1) < 0.01 and abs(own[bound] / one[bound] - 2) < 0.02, (bound, own, shared)
    assert shared["load_over_bound"] <= 1.02 and shared["ewtt_ms"] < 0.6 * own["ewtt_ms"], (own, shared)
    assert shared["refused"] == 0 and shared["pods"] == own["pods"] == 12, (own, shared)
    # Engines of eight in two pods each take as long as in one; memory that is slow makes it longer.
    cut = figures(*args[:5], "vllm:tp8", *args[6:], "--pods", "2", "--pod-memory", "shared", "--plan-only")
    assert cut["pods"] == 2 * 4 + 2 * 8 and abs(cut["t_min_ms"] / one["t_min_ms"] - 1) < 0.01, cut
    slow = figures(*args, "--pod-memory", "shared", "--set", "nearGBs=1")
    assert slow["ewtt_ms"] > 1.5 * shared["ewtt_ms"], (slow["ewtt_ms"], shared["ewtt_ms"])


def a_transfer_is_predicted():
    """More than the bound, and staged engines stand still for their copies only; files name the same settings."""
    plain = figures(*SMALL)
    assert plain["ewtt_over_tmin"] > 1 and plain["ewtt_over_tmin_loop"] >= plain["ewtt_over_tmin"], plain
    assert plain["agst_early_over_tmin"] <= plain["agst_over_tmin"] <= plain["agst_stay_over_tmin"], plain
    assert plain["agst_stay_over_tmin"] <= plain["ewtt_over_tmin"], plain
    assert plain["busiest"] in ("rail out", "rail in", "lane", "loop") and 0 < plain["busiest_share"] <= 1, plain
    staged = figures(*SMALL, "--staging", "rollout")
    assert staged["agst_ms"] < plain["agst_ms"] and staged["ewtt_ms"] > plain["ewtt_ms"], (plain, staged)
    slow = figures(*SMALL, "--set", "loopUs=1000,latencyUs=10")
    assert slow["ewtt_ms"] >= slow["loop_events_max"] and slow["busiest"] == "loop", slow
    listed = subprocess.run([BIN, "simulate", "--set", "list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) >= 15 and "loopUs" in listed, listed


def refusals_name_cause_and_remedy(folder):
    config, bad = os.path.join(folder, "config.json"), os.path.join(folder, "bad.yaml")
    model = ("--model", config)
    cases = (
        ((), None, None, "--model is missing (see --help)"),
        (("--model", "Qwen9", *SIDES), None, None,
         "no model 'Qwen9': built in are Moonlight-16B-A3B, Qwen3-30B-A3B, Qwen3-235B-A22B, Kimi-K2-Instruct, "
         "Qwen3-32B, Qwen3-0.6B; others by the path of their config.json"),
        (("--model", "Qwen3-32B", "--trainer", "megatron:tp3", "--rollout", "vllm:tp2"), None, None,
         "megatron: tp 3 does not divide 64 heads; 2 and 4 do"),
        (("--model", "Qwen3-32B", *SIDES, "--engines", "0"), None, None, "--engines 0: expected 1 to 16384"),
        (("--model", "Qwen3-32B", *SIDES, "--rail-gbit", "0"), None, None,
         "--rail-gbit 0: expected 0.001 to 100000"),
        (("--model", "Qwen3-32B", *SIDES, "--pods", "0"), None, None, "--pods 0: expected 1 to 16384"),
        ((*SMALL, "--pods", "99"), None, None,
         "pods 99: expected 1 to 2, since a node has 2 workers of the trainer and 2 of an engine at most"),
        (("--model", "Qwen3-32B", "--trainer", "megatron:tp2", "--rollout", "vllm:tp8", "--pods", "5"), None, None,
         "pods 5: the 8 workers of an engine on a node would be in 4 pods: give 4, or a number that divides 8"),
        (("--model", "Qwen3-32B", *SIDES, "--pod-memory", "some"), None, None,
         "--pod-memory some: expected own or shared"),
        (("--model", "Qwen3-32B", *SIDES, "--rail-gbit", "nan"), None, None,
         "--rail-gbit nan: expected 0.001 to 100000"),
        (("--model", folder + "/none.json", *SIDES), None, None, "No such file"),
        (("--model", "Qwen3-32B", *SIDES, "--staging", "all"), None, None,
         "--staging all: expected none, trainer, rollout or both"),
        ((*SMALL, "--mode", "today"), None, None, "--mode today: expected weightbridge or paper"),
        ((*SMALL, "--mode", "paper", "--staging", "both"), None, None, "--mode paper has no --staging"),
        ((*SMALL, "--mode", "paper", "--html", "-"), None, None, "--mode paper has no --html"),
        ((*SMALL, "--set", "loopus=3"), None, None, "there is no parameter loopus (wbctl simulate --set list)"),
        ((*model, *SIDES), {"model_type": "llama"}, None,
         "model_type is llama: qwen3, qwen3_moe, deepseek_v3, kimi_k2 are supported"),
        ((*model, *SIDES), {"hidden_size": None}, None, "hidden_size: expected a number from 0 on"),
        ((*model, *SIDES), {"vocab_size": 0}, None, "vocab_size is 0: expected 1 to"),
        ((*model, *SIDES), {"attention_bias": True}, None,
         "attention_bias: biases of the attention are not supported"),
        ((*model, *SIDES), {"quantization_config": {"fmt": "e4m3"}}, None, "without quantization_config"),
        ((*model, *SIDES), {"torch_dtype": "int8"}, None, "bfloat16, float16 and float32 are supported"),
        ((*model, *SIDES), {"model_type": "qwen3_moe", "num_experts": 8}, None, "moe_intermediate_size is missing"),
        ((bad,), None, "model: Qwen3-32B\nengine: 2\n", "bad.yaml:2: unknown field engine: there are name, model"),
        ((bad,), None, "- model\n", "expected one deployment, a map"),
        ((bad,), None, "model: [a]\n", "bad.yaml:1: model: expected one value"),
    )
    for args, changes, text, says in cases:
        with open(config, "w", encoding="utf-8") as f:
            json.dump(DENSE | (changes or {}), f)
        with open(bad, "w", encoding="utf-8") as f:
            f.write(text or "")
        done = run(*args)
        assert done.returncode == 1 and not done.stdout, (args, done)
        assert says in done.stderr and done.stderr.count("\n") == 1, (args, changes, done.stderr)


def a_checkpoint_folder_is_a_model(folder):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(DENSE, f)
    line = figures("--model", folder, *SIDES)
    assert (line["model"], line["workers"]) == (os.path.basename(folder), 4), line


def main():
    with tempfile.TemporaryDirectory() as folder:
        deployments_of_the_bench_have_their_bounds()
        experts_cut_among_256_ranks_come_in_small_parts()
        a_transfer_is_predicted()
        pods_that_share_memory_take_from_the_network_together()
        a_transfer_comes_near_the_bound()
        a_scaled_fourth_deployment_comes_near_it_too(folder)
        the_flow_of_the_paper_takes_as_long_as_the_paper_says()
        a_file_and_options_say_the_same(folder)
        refusals_name_cause_and_remedy(folder)
        a_checkpoint_folder_is_a_model(folder)
    print("ok")


main()
