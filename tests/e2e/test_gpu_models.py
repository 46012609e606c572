# SPDX-License-Identifier: Apache-2.0
"""Models with experts on a GPU: reference trainers and engines in several layouts, every worker's parameters on the driver
without devices (gpu.py), each byte compared there with what a load of the checkpoint gives.

Experts are parameters of their own at the trainer, spread by expert parallelism, and stacked ones at the engine, cut by
tensor or expert parallelism.
"""
import json

import gpu

import numpy as np
import weightbridge
from cluster import Cluster, run
from engines import deploy, make, models, oracle, versions

WAIT = 60.0
QWEN = models.load("Qwen3-30B-A3B", layers=2, hidden=64, heads=8, kv_heads=2, head_dim=8, moe_intermediate=24, vocab=512,
                   experts=8)
DEEPSEEK = models.load("Moonlight-16B-A3B", layers=2, hidden=64, intermediate=48, moe_intermediate=24, kv_lora_rank=32,
                       qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, vocab=512, experts=8)


class Worker:
    """A worker whose parameters lie on the GPU; their twins on the host say what a load makes of them."""

    def __init__(self, spec, ckpt):
        self.spec, self.twin = spec, make(spec)
        manifest = models.tensors(models.config(spec["model"]))
        self.map = weightbridge.extract(self.twin.load_weights, manifest, self.twin.params, progress=False)
        self.twin.load_weights(ckpt.items())
        names = {"BF16": "bfloat16", "F32": "float32"}
        arena = gpu.Arena(self.twin.nbytes() + 512 * len(self.twin.params))
        self.params = {n: gpu.Tensor(a.shape, names[dtype], arena) for n, (a, dtype) in self.twin.params.items()}

    def write(self, version):
        self.twin.set_version(version)
        for name, (array, _) in self.twin.params.items():
            self.params[name].write(array.view(self.params[name].words))

    def check(self, ckpt):
        for name, want in oracle.build(self.spec, ckpt).items():
            have = self.params[name].read()
            assert have.tobytes() == np.ascontiguousarray(want).tobytes(), (self.spec["framework"], name)


def moves(config, trainers, rollouts, lane="worker", pods=("train", "serve"), **operator):
    """Two versions from one layout to another, by agents in pods of these names; one pod of both is a colocated job."""
    ckpt = versions.random_checkpoint(config, 23)
    gpu.context()
    with Cluster() as c:
        c.operator(trainers=len(trainers), per_engine=len(rollouts), **operator)
        for pod in sorted(set(pods)):
            c.agent(pod, "--gpu-lane", lane)
        t, r = [Worker(s, ckpt) for s in trainers], [Worker(s, ckpt) for s in rollouts]
        senders = [weightbridge.SenderAdapter(None, params=w.params, source_map=w.map, socket=c.agents[pods[0]].socket)
                   for w in t]
        receivers = [weightbridge.ReceiverAdapter(None, params=w.params, source_map=w.map, engine="e0",
                                                  socket=c.agents[pods[1]].socket) for w in r]
        gpu.together(*(lambda a=a: a.connect(WAIT, False) for a in senders + receivers))
        for pod in set(pods):
            workers = json.loads(c.get(c.agents[pod], "/status")[1])["workers"]
            assert {w["lane"] for w in workers} == {lane}, workers
        for version in (2, 3):
            def send(worker, adapter):
                worker.write(version)
                adapter.send_weights(version).wait(WAIT)

            def take(adapter):
                update = adapter.update(WAIT)
                assert update and update.version == version, (update, adapter.last_abort)

            gpu.together(*(lambda w=w, a=a: send(w, a) for w, a in zip(t, senders)),
                         *(lambda a=a: take(a) for a in receivers))
            for w in r:
                w.check(versions.at_version(ckpt, version))
        for a in senders + receivers:
            a.close()


def experts_to_stacked_ones_cut_by_tensor_parallelism():
    moves(QWEN, deploy.megatron(QWEN, 2, ep=2), deploy.engine("vllm", QWEN, 2))


def experts_to_stacked_ones_spread_by_expert_parallelism():
    moves(DEEPSEEK, deploy.megatron(DEEPSEEK, 2, ep=2), deploy.engine("sglang", DEEPSEEK, 2, ep=2), lane="agent")


def transposed_experts_with_gate_and_up_in_turns():
    moves(QWEN, deploy.megatron(QWEN, 2, tp=2, ep=2),
          deploy.engine("vllm", QWEN, 2, ep=2, gate_up="transposed", interleave=True))


def shards_of_experts_by_rows():
    moves(QWEN, deploy.fsdp2(QWEN, 3), deploy.engine("vllm", QWEN, 2))


def colocated():
    moves(QWEN, deploy.megatron(QWEN, 2, ep=2), deploy.engine("vllm", QWEN, 2), pods=("both", "both"))


def staged_on_both_sides():
    moves(DEEPSEEK, deploy.megatron(DEEPSEEK, 2, ep=2), deploy.engine("sglang", DEEPSEEK, 2),
          staging={"trainer": "HostMemory", "rollout": "HostMemory"})


if __name__ == "__main__":
    run(experts_to_stacked_ones_cut_by_tensor_parallelism, experts_to_stacked_ones_spread_by_expert_parallelism,
        transposed_experts_with_gate_and_up_in_turns, shards_of_experts_by_rows, colocated, staged_on_both_sides)
