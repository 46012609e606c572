# SPDX-License-Identifier: Apache-2.0
"""The rollout engine: generates batches with what weights it has, and takes new ones between two tokens."""
import time

import options
import store as stores
import task
import torch
import torch.distributed as dist
import weights


def generate(model, prompt, way):
    """Answers to the prompts, the logarithm of each token's probability, and the oldest version that wrote one."""
    answer, logprob, past, x, oldest = [], [], None, prompt, way.version
    for _ in range(task.ANSWER):
        with torch.inference_mode():
            out = model(input_ids=x, past_key_values=past, use_cache=True)
            past, chances = out.past_key_values, out.logits[:, -1].float().log_softmax(-1)
            x = torch.multinomial(chances.exp(), 1)
        answer.append(x)
        logprob.append(chances.gather(1, x))
        way.poll()  # what is half written goes on with new weights
    return torch.cat(answer, 1).clone(), torch.cat(logprob, 1).clone(), oldest


def connect(args, store, model):
    if args.weights == "weightbridge":
        return weights.BridgeEngine(model)
    store.set("version", "0")
    n = args.trainers
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=n, world_size=n + 1)
    dist.new_group(range(n))
    return weights.BroadcastEngine(model, store, dist.new_group([0, n]))


def main():
    args = options.parse(__doc__)
    torch.set_num_threads(1)
    store = stores.connect(args.store)
    model = task.model(args.hidden, args.layers).to(torch.bfloat16)
    torch.manual_seed(1)  # of what is sampled
    way = connect(args, store, model)
    batches = stores.Batches(store, args.trainers, options.ahead(args))
    number = 0
    while way.version < args.steps:
        if number == args.steps or not batches.is_room(number):
            time.sleep(0.001)
            way.poll()
            continue
        prompt = task.prompts(number)
        answer, logprob, oldest = generate(model, prompt, way)
        stalls, way.stalls = way.stalls, []
        batches.put(number, {"prompt": prompt, "answer": answer, "logprob": logprob, "oldest": oldest,
                             "stall": sum(stalls) / len(stalls) if stalls else None})
        number += 1
        if args.mode == "sync":
            way.wait()
    way.close()
    store.set("engine is done", "")
    print(f"{number} batches, the last version is {way.version}", flush=True)


if __name__ == "__main__":
    main()
