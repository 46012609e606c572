# SPDX-License-Identifier: Apache-2.0
"""Parameters of torch's on one GPU that trainers and engines share, by the Python package and the daemons.

With WB_GPU=device: in this very Python, whose torch needs CUDA; else on tensors of the host, in the environment that
env.py makes, which shows that the test is right and says nothing of GPUs.  WB_GIB: size of the largest case, a side.

test_torch_device.py [NAME...]: claims, or groups of them (allocators, transfers, rooms, sizes); each call has LIMIT
seconds on a GPU."""
import contextlib
import json
import os
import subprocess
import sys

from fx import HERE, Cluster, base_env, limited, python, run

DEVICE = os.environ.get("WB_GPU") == "device"
GIB = float(os.environ.get("WB_GIB", "2" if DEVICE else "0.05"))
WAIT = 110.0
CONFIG = "PYTORCH_CUDA_ALLOC_CONF"
# How a trainer makes its values: beforehand; on the current stream, which is not done when they are sent; on another
# stream, for which the default stream was told to wait.
VERSIONS = ("now", "late", "side")
ALLOCATORS = (("default", "", False), ("expandable_segments", "expandable_segments:True", False),
              ("MemPool", "", True), ("cudaMallocAsync", "backend:cudaMallocAsync", False))
SIZES = (4 << 10, 1 << 20, 64 << 20, 1536 << 20)
LIMIT = 115  # s on a GPU, of all that is asked for


def interpreter():
    return sys.executable if DEVICE else python("torch")


def start(c, name, config="", **said):
    said = {"device": "cuda" if DEVICE else "cpu", **said}
    argv = [interpreter(), os.path.join(HERE, "torch_device.py"), json.dumps(said)]
    env = base_env()
    if DEVICE:  # where torch's bytecode is beside it
        del env["PYTHONPYCACHEPREFIX"]
    return c._start(name, argv, env={**env, **({CONFIG: config} if config else {})}, family=True)


def told(w):
    """Waits for its end, and for all that it said."""
    status = w.wait(WAIT)
    while (line := w.lines.get(timeout=WAIT)) is not None:
        w.seen.append(line)
    w.lines.put(None)
    assert status == 0, (w.name, status, w.seen[-12:])
    return w.seen


def ended(workers):
    """Waits for all, and says what they said."""
    for w in workers:
        told(w)
        for line in w.seen:
            print(f"  {w.name}: {line}", flush=True)


def versions_arrive(model, dtype, trainers, per_engine, transport="tcp", config="", **more):
    """A trainer's ranks and an engine's, each on its own share of the GPU; what arrives is compared on the GPU."""
    with Cluster() as c:
        c.operator(trainers=trainers, per_engine=per_engine)
        for pod in ("train", "serve"):
            c.agent(pod, "--transport", transport)
        common = {"model": model, "dtype": dtype, "versions": VERSIONS, **more}
        t = [start(c, f"trainer{r}", config, role="trainer", rank=r, n=trainers, socket=c.agents["train"].socket, **common)
             for r in range(trainers)]
        e = [start(c, f"rollout{r}", config, role="rollout", rank=r, n=per_engine, engine="e0",
                   socket=c.agents["serve"].socket, **common) for r in range(per_engine)]
        seconds = [float(t[0].expect(rf"sent {v}, .*: ([0-9.]+) s, ", WAIT)[1])
                   for v in range(1, len(common["versions"]) + 1)]
        ended((*t, *e))
        assert all([x for x in w.seen if f"equal {len(seconds)}:" in x] for w in e)
        return seconds, sum(int(x.split()[4]) for w in e for x in w.seen if x.startswith("equal 1:"))


def dense_bf16_to_one_rank():
    versions_arrive("dense", "bfloat16", 2, 1)


def dense_fp32_to_two_ranks_with_other_cuts():
    versions_arrive("dense", "float32", 2, 2)


def experts_bf16_to_two_ranks_that_stack_them():
    versions_arrive("experts", "bfloat16", 2, 2)


def experts_fp32_to_one_rank_over_shared_memory():
    versions_arrive("experts", "float32", 2, 1, transport="shm")


def dense_from_expandable_segments():
    versions_arrive("dense", "bfloat16", 2, 2, config="expandable_segments:True")


def dense_from_the_drivers_own_pools():
    versions_arrive("dense", "float32", 2, 1, config="backend:cudaMallocAsync")


def memory_goes_and_comes(pods):
    """Trainer and engine in one process."""
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        for pod in pods:
            c.agent(pod, "--transport", "shm")
        w = start(c, "both", role="both", model="", gib=min(GIB, 0.5), dtype="bfloat16", socket=c.agents[pods[0]].socket,
                  socket2=c.agents[pods[-1]].socket)
        ended([w])


def memory_goes_and_comes_in_one_pod():
    memory_goes_and_comes(("pod",))


def memory_goes_and_comes_over_shared_memory():
    memory_goes_and_comes(("train", "serve"))


def gigabytes(transport):
    seconds, size = versions_arrive("", "bfloat16", 1, 1, transport=transport, gib=GIB, versions=("now", "late", "now"))
    print(json.dumps({"transport": transport, "bytes": size, "seconds": seconds,
                      "GB/s": [round(size / s / 1e9, 2) for s in seconds]}), flush=True)


def gigabytes_over_tcp():
    gigabytes("tcp")


def gigabytes_over_shared_memory():
    gigabytes("shm")


def what_memory_can_travel_as():
    """Only told: what it has to be is not known beforehand, but that the driver answers for each."""
    with Cluster() as c:
        all_ = [start(c, f"{name}-{size}", config, role="memory", allocator=name, pool=pool, bytes=size)
                for name, config, pool in ALLOCATORS for size in SIZES]
        for w in all_:
            print(*[line for line in told(w) if line.startswith("{")], flush=True)


TRANSFERS = (dense_bf16_to_one_rank, dense_fp32_to_two_ranks_with_other_cuts, experts_bf16_to_two_ranks_that_stack_them,
             experts_fp32_to_one_rank_over_shared_memory)
ON_A_GPU = (dense_from_expandable_segments, dense_from_the_drivers_own_pools)
# (claims, so many at once).  Those that look at free memory or at the time run by themselves.
GROUPS = {"allocators": ((what_memory_can_travel_as,), 1), "transfers": (TRANSFERS + ON_A_GPU, 3),
          "rooms": ((memory_goes_and_comes_in_one_pod, memory_goes_and_comes_over_shared_memory), 1),
          "sizes": ((gigabytes_over_tcp, gigabytes_over_shared_memory), 1)}
NEEDS_GPU = (what_memory_can_travel_as, *ON_A_GPU)


def why_not():
    """What keeps this Python's torch from a GPU, "" when nothing does."""
    code = "import torch; torch.cuda.init(); torch.zeros(1, device='cuda'); print(torch.__version__)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    last = (done.stdout.strip().splitlines() or ["nothing was said"])[-1]
    if not done.returncode:
        print(f"torch {last}, Python {sys.version.split()[0]}", flush=True)
    return last if done.returncode else ""


def main(names):
    if DEVICE and (why := why_not()):
        print(f"WB_GPU=device, and torch has no GPU here: {why}")
        return 77
    with limited(LIMIT) if DEVICE else contextlib.nullcontext():
        for group, (claims, together) in GROUPS.items():
            run(*[t for t in claims if (not names or t.__name__ in names or group in names)
                  and (DEVICE or t not in NEEDS_GPU)], together=together if DEVICE else 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
