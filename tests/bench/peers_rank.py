# SPDX-License-Identifier: Apache-2.0
"""One process of a peer of `make bench-peers`, told by its standard input: peers_rank.py JSON.

said: kind, rank, senders, engines, per_engine (ranks of an engine), segment (bytes), port.
Sender s has a shard, per_engine segments long; rank r of an engine has a buffer of `senders` segments and wants segment r
of every shard.  So each byte of the model goes to every engine once.  What is not a rank of its own (Ray has a driver)
is one process.

Out, a line of JSON each; in, a line each:
    {"meta": ...} or {"absent": reason}      list of all ranks' metas
    {"ready": true}
                                             fill K | go | check K, or the end
    {"done": true}, and for check {"right": bool}
"""
import json
import os
import sys
import time

CHUNK = 16 << 20


class Rank:
    """Memory, and nothing that moves it."""

    def __init__(self, said):
        import numpy as np

        self.said, self.rank, self.senders, self.seg = said, said["rank"], said["senders"], said["segment"]
        self.per_engine = said["per_engine"]
        self.is_sender = self.rank < self.senders
        self.here = 0 if self.is_sender else (self.rank - self.senders) % self.per_engine  # rank in its engine
        self.memory = np.zeros(self.seg * (self.per_engine if self.is_sender else self.senders), np.uint8)
        self.receivers = [(self.senders + i, i % self.per_engine) for i in range(said["engines"] * self.per_engine)]

    def part(self, i):
        return self.memory[i * self.seg:(i + 1) * self.seg]

    def pattern(self, sender, r, k):
        import numpy as np

        return np.resize(np.arange(251, dtype=np.uint8), self.seg) + np.uint8((31 * sender + 7 * r + 17 * k) % 256)

    def meta(self):
        return None

    def meet(self, metas):
        pass

    def fill(self, k):
        for r in range(self.per_engine) if self.is_sender else ():
            self.part(r)[:] = self.pattern(self.rank, r, k)

    def check(self, k):
        return self.is_sender or all((self.part(s) == self.pattern(s, self.here, k)).all() for s in range(self.senders))


class Gloo(Rank):
    """torch.distributed: each segment to who wants it."""

    def meet(self, metas):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self.dist, n = dist, self.senders + len(self.receivers)
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{self.said['port']}", rank=self.rank, world_size=n)
        self.tensor = torch.from_numpy(self.memory).view(-1, self.seg)
        dist.barrier()

    def go(self):
        if self.is_sender:
            ops = [self.dist.isend(self.tensor[r], to) for to, r in self.receivers]
        else:
            ops = [self.dist.irecv(self.tensor[s], s) for s in range(self.senders)]
        for o in ops:
            o.wait()


class GlooBroadcast(Gloo):
    """Each shard to every rank of every engine, which keeps what it wants: what broadcasts cost."""

    def meet(self, metas):
        import torch

        super().meet(metas)
        everybody = [to for to, _ in self.receivers]
        self.groups = [self.dist.new_group([s, *everybody]) for s in range(self.senders)]
        self.room = torch.empty(self.per_engine, self.seg, dtype=torch.uint8)

    def go(self):
        for s, group in enumerate(self.groups):
            if self.is_sender and s == self.rank:
                self.dist.broadcast(self.tensor, s, group=group)
            elif not self.is_sender:
                alone = self.tensor[s:s + 1] if self.per_engine == 1 else self.room
                self.dist.broadcast(alone, s, group=group)
                if self.per_engine > 1:
                    self.tensor[s].copy_(self.room[self.here])


class Mooncake(Rank):
    """Its transfer engine over TCP: writes into registered memory of the receivers."""

    def meta(self):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        self.address = self.memory.ctypes.data
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
            raise OSError("TransferEngine.initialize fails")
        if self.engine.register_memory(self.address, self.memory.nbytes):
            raise OSError("TransferEngine.register_memory fails")
        return [f"127.0.0.1:{self.engine.get_rpc_port()}", self.address]

    def meet(self, metas):
        self.metas = metas

    def go(self):
        at = [(o, min(CHUNK, self.seg - o)) for o in range(0, self.seg, CHUNK)]
        for to, r in self.receivers if self.is_sender else ():
            name, address = self.metas[to]
            source, target = self.address + r * self.seg, address + self.rank * self.seg
            if self.engine.batch_transfer_sync_write(name, [source + o for o, _ in at], [target + o for o, _ in at],
                                                     [n for _, n in at]):
                raise OSError("batch_transfer_sync_write fails")


class Nixl(Rank):
    """Its UCX backend: writes into registered memory of the receivers.  UCX_TLS says by what."""

    def meta(self):
        import base64

        import nixl_cu12 as nixl

        self.agent = nixl.nixl_agent(f"rank{self.rank}", nixl.nixl_agent_config(backends=["UCX"]))
        self.address = self.memory.ctypes.data
        self.agent.register_memory([(self.address, self.memory.nbytes, 0, "")], "DRAM")
        return [base64.b64encode(self.agent.get_agent_metadata()).decode(), self.address]

    def meet(self, metas):
        import base64

        self.handles = []
        for to, r in self.receivers if self.is_sender else ():
            peer = self.agent.add_remote_agent(base64.b64decode(metas[to][0]))
            both = [self.agent.get_xfer_descs([(a + o, min(CHUNK, self.seg - o), 0) for o in range(0, self.seg, CHUNK)], "DRAM")
                    for a in (self.address + r * self.seg, metas[to][1] + self.rank * self.seg)]
            self.handles.append(self.agent.initialize_xfer("WRITE", *both, peer, b"done"))

    def go(self):
        left = [(h, self.agent.transfer(h)) for h in self.handles]
        while left:
            if any(state == "ERR" for _, state in left):
                raise OSError("a transfer ended with ERR")
            left = [(h, self.agent.check_xfer_state(h)) for h, state in left if state != "DONE"]


class Awex(Rank):
    """Its Mooncake transport over TCP: senders publish a snapshot, receivers read it and say so at a server of metadata."""

    def meta(self):
        os.environ.update(AWEX_DEVICE_TYPE="cpu", AWEX_MOONCAKE_PROTOCOL="tcp", AWEX_MOONCAKE_HOST="127.0.0.1")
        from awex.meta.meta_server import start_meta_server

        return list(start_meta_server("127.0.0.1", 0)) if self.rank == 0 else None

    def meet(self, metas):
        import types

        import torch
        from awex.meta.meta_server import MetaServerClient
        from awex.transfer.mooncake_comm import MooncakeTransport
        from awex.transfer.transfer_plan import CommunicationOperation, TransferPlan

        def op(s, r):
            return [CommunicationOperation(
                send_rank=0, send_shard_meta=types.SimpleNamespace(name="w"), send_offset=(r * self.seg,), recv_rank=0,
                recv_shard_meta=types.SimpleNamespace(name="w"), recv_offset=(s * self.seg,), overlap_shape=(self.seg,),
                train_slices=(slice(r * self.seg, (r + 1) * self.seg),), inf_slices=(slice(s * self.seg, (s + 1) * self.seg),))]

        self.transport = MooncakeTransport(MetaServerClient(*metas[0]), self.rank, 120.0)
        self.tensor, self.step = torch.from_numpy(self.memory), 0
        self.plan = TransferPlan(operations={to: op(self.rank, r) for to, r in self.receivers} if self.is_sender else
                                 {s: op(s, self.here) for s in range(self.senders)})

    def go(self):
        self.step += 1
        (self.transport.send if self.is_sender else self.transport.receive)({"w": self.tensor}, self.plan, self.step)


class CheckpointEngine(Rank):
    def meta(self):
        from checkpoint_engine.device_utils import DeviceManager

        DeviceManager()  # raises where there is neither CUDA nor an NPU


class Ray(Rank):
    """Its object store: a sender puts each segment once, who wants it gets it and copies it into place."""

    def meta(self):
        import shutil
        import tempfile

        import ray

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.ray, said = ray, self.said
        self.folder = tempfile.mkdtemp(prefix="wb-ray-", dir="/tmp")  # its sockets want a short path
        self.remove = lambda: shutil.rmtree(self.folder, ignore_errors=True)
        n = self.senders + len(self.receivers)
        ray.init(num_cpus=n, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=self.folder, logging_level="ERROR",
                 object_store_memory=3 * self.senders * self.per_engine * self.seg + (256 << 20))

        class Actor(Rank):
            def put(self):
                return [ray.put(self.part(r)) for r in range(self.per_engine)]

            def take(self, refs):
                for s, ref in enumerate(refs):
                    self.part(s)[:] = ray.get(ref)

        self.actors = [ray.remote(Actor).options(num_cpus=1).remote({**said, "rank": r}) for r in range(n)]
        self.memory = None

    def fill(self, k):
        self.ray.get([a.fill.remote(k) for a in self.actors])

    def go(self):
        refs = self.ray.get([a.put.remote() for a in self.actors[:self.senders]])
        self.ray.get([self.actors[to].take.remote([mine[r] for mine in refs]) for to, r in self.receivers])

    def check(self, k):
        return all(self.ray.get([a.check.remote(k) for a in self.actors]))

    def close(self):
        self.ray.shutdown()
        self.remove()


KINDS = {"gloo p2p": Gloo, "gloo broadcast": GlooBroadcast, "ray": Ray, "mooncake tcp": Mooncake, "nixl": Nixl,
         "nixl tcp": Nixl, "checkpoint-engine": CheckpointEngine, "awex tcp": Awex}


def main(said, say):
    rank = None
    try:
        rank = KINDS[said["kind"]](said)
        say(meta=rank.meta())
        rank.meet(json.loads(sys.stdin.readline() or "null"))
        say(ready=True)
        for line in sys.stdin:
            word, _, k = line.strip().partition(" ")
            if word == "check":
                say(right=bool(rank.check(int(k))))
            elif word == "fill":
                rank.fill(int(k))
                say(done=True)
            else:
                start = time.monotonic()
                rank.go()
                say(done=time.monotonic() - start)
    except Exception as e:  # pylint: disable=broad-except
        say(absent=(f"{type(e).__name__}: {e}".splitlines() or ["?"])[0][:300])
    finally:
        if hasattr(rank, "close"):
            rank.close()


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")  # libraries print what they like to the standard output
    os.dup2(2, 1)
    main(json.loads(sys.argv[1]), lambda **fields: print(json.dumps(fields), file=out, flush=True))
    os._exit(0)
