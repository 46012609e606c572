# SPDX-License-Identifier: Apache-2.0
"""A job of verl: verl_job.py JSON.  verl's CheckpointEngineManager updates replicas from a trainer, over Ray, by the backend
that weightbridge.adapters.verl registers; the workers are those of verl_workers.py."""
import json
import os
import shutil
import sys
import tempfile
import traceback
import types

import verl_cpu  # noqa: F401  (first)
import ray
from verl.checkpoint_engine.base import CheckpointEngineManager
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.workers.config import CheckpointEngineConfig, RolloutConfig

import verl_workers
from worker import leave

STEPS = ("abort_all_requests", "release_kv_cache", "resume_kv_cache", "resume_generation")


def group(cls, n, prefix, said, socket, /, **args):
    """A worker group.  Its process group meets in a file: the port that verl would choose for it is free when it looks, and
    may not be any more when the workers have started."""
    pool = RayResourcePool(process_on_nodes=[n], use_gpu=False, max_colocate_count=1, name_prefix=prefix)
    env = {"WEIGHTBRIDGE_SOCKET": said[socket], "DIST_INIT_METHOD": f"file://{said['store']}-{prefix}"}
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(cls), **args),
                          name_prefix=prefix, use_gpu=False, device_name="cpu", worker_env=env)


class Replica:
    """What the manager asks of a replica."""

    def __init__(self, workers):
        self.workers, self.asked = workers, []
        for name in STEPS:
            setattr(self, name, types.MethodType(Replica.step(name), self))

    @staticmethod
    def step(name):
        async def ask(self, **_more):
            self.asked.append(name)
        return ask


def job(said):
    config = CheckpointEngineConfig(backend="weightbridge", custom_backend_module="weightbridge.adapters.verl",
                                    engine_kwargs={"weightbridge": {"manifest": said["model"], "timeout": said["wait"]}})
    trainer = group(verl_workers.Trainer, said["n"], "trainer", said, "socket", said=said, config=config)
    rollouts = [group(verl_workers.Rollout, said["per_engine"], f"rollout_standalone_{e}", said, "rollout_socket",
                      rollout_config=RolloutConfig(name="vllm", checkpoint_engine=config)) for e in range(said["engines"])]
    replicas = [Replica(g.workers) for g in rollouts]
    manager = CheckpointEngineManager(config, trainer, replicas)
    places = None
    for version in range(1, said["versions"] + 1):
        folder = os.path.join(said["exports"], f"v{version}")
        trainer.step(folder)
        print("metrics", manager.update_weights(global_steps=version), flush=True)
        for i, g in enumerate(rollouts):
            for r, (n, size, same) in enumerate(g.compare(folder, version)):
                print(f"equal {version}: {n} tensors, {size} bytes, {same} as before, replica {i}, worker {r}", flush=True)
        now = [g.places() for g in rollouts]
        assert places in (None, now), "memory that is attached has moved"
        places = now
    assert all(r.asked == list(STEPS) * said["versions"] for r in replicas), replicas[0].asked
    print("shares", trainer.step(os.path.join(said["exports"], "last")), flush=True)


def main(said):
    folder = tempfile.mkdtemp(prefix="wb-ray-", dir="/tmp")  # Ray's sockets want a short path
    try:
        ray.init(num_cpus=16, include_dashboard=False, object_store_memory=80 << 20, _temp_dir=folder, log_to_driver=True)
        job(said)
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        return 1
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    leave(main(json.loads(sys.argv[1])))
