# SPDX-License-Identifier: Apache-2.0
"""What torch's gloo needs for the same bytes: one JSON object a line for each mode.

gloo.py MIB REPS	Two trainer ranks with row shards, two rollout ranks with column shards.
raw	every byte once between a trainer and a rollout, no reshaping
p2p	pack, send and receive, assemble into a transposed fused gate_up
bcast	gather each tensor on one trainer, broadcast it, each rollout takes its slice
"""
import json
import os
import socket
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError as e:
    sys.exit(f"torch is not installed ({e}): pip install torch, or set WB_TORCH_PYTHON")

HIDDEN, WIDE = 2048, 8192


class Rank:
    def __init__(self, rank, layers):
        self.rank, self.layers, self.side = rank, layers, rank % 2
        self.trainers, self.all = dist.new_group([0, 1]), dist.new_group([0, 2, 3])
        half = WIDE // 2
        if rank < 2:
            # Row shards: half of the rows of every [WIDE, HIDDEN] matrix.
            self.mine = [torch.randint(-9, 9, (half, HIDDEN), dtype=torch.int16)
                         for _ in range(layers)]
        else:
            # Column shards, transposed: [HIDDEN / 2, WIDE].
            self.mine = [torch.zeros(HIDDEN // 2, WIDE, dtype=torch.int16) for _ in range(layers)]
        self.flat = torch.zeros(layers * half * HIDDEN, dtype=torch.int16)

    def raw(self):
        n = self.flat.numel() // 2
        peers = (2, 3) if self.rank < 2 else (0, 1)
        ops = [(dist.isend if self.rank < 2 else dist.irecv)(
            self.flat[i * n:(i + 1) * n].view(torch.uint8), p) for i, p in enumerate(peers)]
        for o in ops:
            o.wait()

    def p2p(self):
        half, cols = WIDE // 2, HIDDEN // 2
        n = half * cols
        parts = self.flat.view(2, self.layers, n)
        if self.rank < 2:
            for to in range(2):
                for i, m in enumerate(self.mine):
                    parts[to, i].view(half, cols).copy_(m[:, to * cols:(to + 1) * cols])
        self.raw()
        if self.rank >= 2:
            for frm in range(2):
                for i, m in enumerate(self.mine):
                    m[:, frm * half:(frm + 1) * half].copy_(parts[frm, i].view(half, cols).t())

    def bcast(self):
        cols = HIDDEN // 2
        for m in self.mine:
            full = torch.empty(WIDE, HIDDEN, dtype=torch.int16)
            if self.rank < 2:
                out = [torch.empty_like(m).view(torch.uint8) for _ in range(2)]
                dist.all_gather(out, m.view(torch.uint8), group=self.trainers)
                if self.rank == 0:
                    torch.cat([o.view(torch.int16) for o in out], out=full)
            if self.rank != 1:
                dist.broadcast(full.view(torch.uint8), 0, group=self.all)
            if self.rank >= 2:
                m.copy_(full[:, self.side * cols:(self.side + 1) * cols].t())


def worker(rank, mib, reps, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
    layers = max(1, mib * (1 << 20) // (WIDE * HIDDEN * 2))
    r = Rank(rank, layers)
    for mode in ("raw", "p2p", "bcast"):
        times = []
        for _ in range(reps + 1):
            dist.barrier()
            start = time.monotonic()
            getattr(r, mode)()
            dist.barrier()
            times.append(time.monotonic() - start)
        if rank == 0:
            print(json.dumps({"bench": f"gloo {mode}", "mib": layers * WIDE * HIDDEN * 2 >> 20,
                              "seconds": round(statistics.median(times[1:]), 4),
                              "min": round(min(times[1:]), 4)}), flush=True)
    dist.barrier()
    os._exit(0)


def main():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    mp.start_processes(worker, (int(sys.argv[1]), int(sys.argv[2]), port), nprocs=4,
                       start_method="spawn")


if __name__ == "__main__":
    main()
