# SPDX-License-Identifier: Apache-2.0
"""What torch's gloo needs for the same bytes: one rank of four, told by its standard input.

gloo.py RANK PORT MIB	Ranks 0 and 1 are trainers with row shards, 2 and 3 rollouts with column shards.
Lines in: a mode.  Lines out: the seconds from a barrier to the next one.
raw	every byte once between a trainer and a rollout, no reshaping
p2p	pack, send and receive, assemble; what is gate_up is transposed
bcast	gather each tensor on one trainer, broadcast it, each rollout takes its slice

3/8 of the bytes are gate_up, as in the model that our own transfers of the same name move.
"""
import datetime
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

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
            # Column shards: [WIDE, HIDDEN / 2], or transposed.
            self.mine = [torch.zeros(HIDDEN // 2, WIDE, dtype=torch.int16).t()
                         if i < layers * 3 // 8 else
                         torch.zeros(WIDE, HIDDEN // 2, dtype=torch.int16) for i in range(layers)]
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
                    m[frm * half:(frm + 1) * half].copy_(parts[frm, i].view(half, cols))

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
                m.copy_(full[:, self.side * cols:(self.side + 1) * cols])


def main():
    rank, port, mib = (int(x) for x in sys.argv[1:4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=4,
                            timeout=datetime.timedelta(seconds=120))
    r = Rank(rank, max(1, mib * (1 << 20) // (WIDE * HIDDEN * 2)))
    print("ready", flush=True)
    for line in sys.stdin:
        dist.barrier()
        start = time.monotonic()
        getattr(r, line.strip())()
        dist.barrier()
        print(time.monotonic() - start, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
