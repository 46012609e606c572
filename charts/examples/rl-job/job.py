# SPDX-License-Identifier: Apache-2.0
"""The workers of a pod of the example job: reference trainers (FSDP2) and rollouts (vLLM) with NumPy parameters.

Environment: ROLE trainer or rollout; WORKERS processes in this pod; TRAINERS of the job; POD_NAME, which ends in
the pod's number; SHAPE, LAYERS and WIDTH of a checkpoint that every pod makes for itself, or MODEL, the folder of
yours; STEP seconds between versions; WEIGHTBRIDGE_SOCKET and _ENGINE where they are not the pod's.  Trainers send
versions 1, 2, 3, ... for ever, each again when its transfer failed; while the object is suspended they wait, and say
so.  Rollouts compare what they got with an oracle that shares no code with the project, and say "update N ok".
"""
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, d) for d in os.environ.get("JOB_PATH", "tests:tests/demo:python").split(":")]

import make_checkpoint  # noqa: E402
import weightbridge  # noqa: E402
from engines import arena, deploy, oracle, safetensors_io  # noqa: E402

ROLE = os.environ["ROLE"]
WORKERS, TRAINERS = int(os.environ["WORKERS"]), int(os.environ["TRAINERS"])
POD = int(os.environ["POD_NAME"].rsplit("-", 1)[1])
STEP = float(os.environ.get("STEP", "2"))


def send(adapter, version):
    """Until an engine has it.  A trainer that ends over a failed transfer takes the others with it."""
    while True:
        try:
            return adapter.send_weights(version).wait(timeout=600)  # waits while spec.suspend is true
        except weightbridge.TransferFailed as e:
            print(f"version {version} is sent again: {e}", flush=True)
            time.sleep(STEP)


def train(adapter, engine):
    version = 0
    while True:
        version += 1
        engine.set_version(version)
        transfer = send(adapter, version)
        print(f"sent {version} {transfer.state}", flush=True)
        time.sleep(STEP)


def generate(adapter, engine, checkpoint, spec):
    while True:
        time.sleep(0.01)  # one step of inference
        update = adapter.poll_requests()
        if not update:
            continue
        wrong = [m.what for m in oracle.verify_params(engine.params, checkpoint, spec, update.version)]
        print(f"update {update.version} {wrong[0] if wrong else 'ok'}", flush=True)


def work(i, folder, config):
    is_trainer = ROLE == "trainer"
    rank = POD * WORKERS + i if is_trainer else i
    spec = (deploy.fsdp2(config, TRAINERS) if is_trainer else deploy.engine("vllm", config, WORKERS, tied="alias"))[rank]
    checkpoint = safetensors_io.Checkpoint(folder)
    engine, memory = arena.for_spec(spec)
    engine.load_weights(checkpoint.items())
    args = {"params": engine.params, "manifest": folder, "rank": rank, "framework": "numpy", "cache_dir": "/tmp"}
    shared = weightbridge.share(memory.buffer, memory.fd)  # the agent reads and writes it directly
    if is_trainer:
        adapter = weightbridge.SenderAdapter(engine.load_weights, **args)
    else:
        adapter = weightbridge.ReceiverAdapter(engine.load_weights, **args)
    adapter.connect(timeout=3600, progress=lambda text: print(text, flush=True))
    print(f"{ROLE} worker {rank} is planned, memory shared: {shared is not None}", flush=True)
    if is_trainer:
        train(adapter, engine)
    else:
        generate(adapter, engine, checkpoint, spec)


def main():
    os.environ.setdefault("WB_CACHE", "/tmp/checkpoint")
    folder, config = make_checkpoint.find(os.environ.get("SHAPE", "Qwen3-0.6B"), int(os.environ.get("LAYERS", "2")),
                                          int(os.environ.get("WIDTH", "4")), finite=True)
    children = []
    for i in range(WORKERS):
        pid = os.fork()
        if not pid:
            work(i, folder, config)
            os._exit(0)
        children.append(pid)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(p, signal.SIGTERM) for p in children])
    # One worker is nothing without the others: the pod ends with the first, and is started again.
    _, status = os.wait()
    for p in children:
        try:
            os.kill(p, signal.SIGTERM)
        except ProcessLookupError:
            pass
    sys.exit(0 if status in (0, signal.SIGTERM) else 1)


if __name__ == "__main__":
    main()
