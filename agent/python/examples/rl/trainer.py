# SPDX-License-Identifier: Apache-2.0
"""One rank of the trainer: FSDP2 over gloo.  A step: take a batch, learn from it, send the weights."""
import json
import time

import options
import store as stores
import task
import torch
import torch.distributed as dist
import weights
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

CLIP = 0.2


def join(args, store):
    """The trainers' group, and the one that the engine is in, too (only a broadcast needs that)."""
    everybody = args.trainers + (args.weights == "broadcast")
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=args.rank, world_size=everybody)
    return dist.new_group(range(args.trainers)), dist.new_group([0, everybody - 1])


def build(args, group):
    model = task.model(args.hidden, args.layers)
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def loss_of(model, batch):
    """Policy gradient with the answers to one prompt as each other's baseline.  Tokens may come from older weights: the
    ratio of then and now corrects for that, as far as CLIP lets it."""
    prompt, answer, before = batch["prompt"], batch["answer"], batch["logprob"]
    reward = task.rewards(prompt, answer).view(-1, task.SAMPLES, task.ANSWER)
    good = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-3)).flatten(0, 1)
    said = model(input_ids=torch.cat([prompt, answer], 1)[:, :-1]).logits[:, prompt.shape[1] - 1:].float()
    now = said.log_softmax(-1).gather(2, answer[:, :, None]).squeeze(2)
    ratio = (now - before).exp()
    return -torch.minimum(ratio * good, ratio.clamp(1 - CLIP, 1 + CLIP) * good).mean()


def part(batch, rank, n):
    """This rank's prompts."""
    rows = task.PROMPTS // n * task.SAMPLES
    return {k: v[rank * rows:(rank + 1) * rows] if torch.is_tensor(v) else v for k, v in batch.items()}


class Log:
    def __init__(self, path):
        self._file, self._begun = path and open(path, "w"), time.monotonic()  # noqa: SIM115 (until the end)

    def say(self, **said):
        said["seconds"] = round(time.monotonic() - self._begun, 4)
        if self._file:
            self._file.write(json.dumps(said) + "\n")
            self._file.flush()
        engine = "-" if said["engine_stall"] is None else f"{said['engine_stall'] * 1e3:.1f}"
        print(f"version {said['version']:3}  staleness {said['staleness']}  reward {said['reward']:.3f}  stall: trainer "
              f"{said['trainer_stall'] * 1e3:.1f} ms, engine {engine} ms", flush=True)


def main():
    args = options.parse(__doc__)
    torch.set_num_threads(1)
    store = stores.connect(args.store, args.serve and args.rank == 0)
    group, with_engine = join(args, store)
    model = build(args, group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    if args.weights == "weightbridge":
        way = weights.Bridge(model, args.rank, wait=args.mode == "sync")
    else:
        way = weights.Broadcast(model, args.rank, store, with_engine)
    batches = stores.Batches(store, args.trainers, options.ahead(args))
    log = Log(args.log) if args.rank == 0 else None
    for version in range(1, args.steps + 1):
        batch = batches.take(version - 1)
        mine = part(batch, args.rank, args.trainers)
        optimizer.zero_grad()
        loss_of(model, mine).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # in place: the parameters stay where they are
        begun = time.monotonic()
        way.send(version)
        if log:
            log.say(version=version, staleness=version - 1 - batch["oldest"], trainer_stall=time.monotonic() - begun,
                    reward=task.rewards(batch["prompt"], batch["answer"]).mean().item(), engine_stall=batch["stall"])
    way.close()
    store.wait(["engine is done"], stores.WAIT)  # trainer 0 may be the store
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
