# SPDX-License-Identifier: Apache-2.0
"""vLLM's whole LLM as a rollout: llm.py JSON.  After each update it generates; at the end LLMs are started from the
checkpoints that the trainer exported, and have to say the same tokens with the same probabilities."""
import json
import os
import sys
import traceback

from worker import leave

PROMPTS = [[1, 5, 9, 13], [1, 700, 3, 44, 5, 6, 7, 8, 900], [1, 11]]


def start(folder, n, extension="no_amx.Plain", **more):
    from vllm import LLM

    return LLM(model=folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=64,
               tensor_parallel_size=n, kv_cache_memory_bytes=64 << 20, gpu_memory_utilization=0.2,
               disable_log_stats=True, worker_extension_cls=extension, **more)


def generated(llm):
    """[(tokens, log probabilities of each)] of the prompts."""
    from vllm import SamplingParams, TokensPrompt

    how = SamplingParams(temperature=0.0, max_tokens=12, logprobs=2, detokenize=False, ignore_eos=True)
    out = llm.generate([TokensPrompt(prompt_token_ids=p) for p in PROMPTS], how, use_tqdm=False)
    return [(list(o.outputs[0].token_ids), [sorted((t, v.logprob) for t, v in step.items()) for step in o.outputs[0].logprobs])
            for o in out]


def stop(llm):
    llm.llm_engine.engine_core.shutdown()


def environment():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # two workers on a machine of one NUMA node


def as_exported(said, was):
    """was: what was generated first, and after each version; LLMs that are started from the exports say the same."""
    assert len({json.dumps(w) for w in was}) == len(was), "an update changed nothing"
    for version in range(1, said["versions"] + 1):
        other = start(os.path.join(said["exports"], f"v{version}"), said["n"])
        want = generated(other)
        stop(other)
        assert [t for t, _ in want] == [t for t, _ in was[version]], (want, was[version])
        assert want == was[version], "equal tokens, but other probabilities"
        print(f"equal {version}: {sum(len(t) for t, _ in want)} tokens, 0 as before", flush=True)


def main(said, extension="no_amx.Rollout", connect=None, update=None, **more):
    """connect, update: by other means than weightbridge.adapters.vllm's.  more: arguments of LLM."""
    environment()
    from vllm.config import WeightTransferConfig

    from weightbridge.adapters import vllm as wb

    llm = start(said["model"], said["n"], extension, weight_transfer_config=WeightTransferConfig(backend=wb.NAME), **more)
    was = [generated(llm)]
    (connect or wb.connect)(llm, engine=said["engine"], socket=said["socket"], timeout=said["wait"])
    print("connected", flush=True)
    for version in range(1, said["versions"] + 1):
        assert (update or wb.update)(llm, said["wait"]) == version
        was.append(generated(llm))
        print(f"updated {version}", flush=True)
    stop(llm)
    as_exported(said, was)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        leave(1)
    leave(0)
