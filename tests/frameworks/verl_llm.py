# SPDX-License-Identifier: Apache-2.0
"""vLLM's whole LLM as verl has it: verl_llm.py JSON, as llm.py, with verl's worker extension as weightbridge.adapters.verl_vllm
changes it.  What verl's server adapter does over Ray for an update is done here by the same means without it: the call in
all workers, and beside it verl's own sender for each worker, with what the checkpoint engine gives it."""
import asyncio
import json
import os
import sys
import threading
import traceback

from worker import leave

ENV = {"VERL_REPLICA_RANK": "0"}


def senders(engine, version, n, job):
    """A thread for each worker, as each has a CheckpointEngineWorker beside it."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    def send(rank):
        handle = f"ipc:///tmp/rl-colocate-zmq-{job}-replica-0-rank-{rank}.sock"
        stream = engine.receive_weights(global_steps=version)
        asyncio.run(BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True).async_send_weights(stream))

    threads = [threading.Thread(target=send, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    return threads


def main(said):
    job = f"wb{os.getpid()}"
    os.environ.update(ENV, VERL_RAY_JOB_ID=job)
    import llm
    import verl_cpu  # noqa: F401  (first)
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.utils.import_utils import import_external_libs

    import_external_libs("weightbridge.adapters.verl")
    engine = CheckpointEngineRegistry.new("weightbridge", bucket_size=1 << 20, manifest=said["model"], inside_vllm=True)
    versions = iter(range(1, said["versions"] + 1))

    def update(model, _timeout):
        beside = senders(engine, next(versions), said["n"], job)
        model.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True})
        for t in beside:
            t.join()
        model.reset_prefix_cache()
        got = set(model.collective_rpc("weightbridge_version"))
        assert len(got) == 1, got
        return got.pop()

    llm.main(said, "verl_no_amx.Rollout", connect=lambda *_args, **_more: None, update=update,
             additional_config={"weightbridge": {"socket": said["socket"], "timeout": said["wait"]}})


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        leave(1)
    leave(0)
