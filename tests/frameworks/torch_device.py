# SPDX-License-Identifier: Apache-2.0
"""One process of test_torch_device.py: torch_device.py JSON.

role memory: what memory of torch's can travel as.  role trainer, rollout: a worker.  role both: a trainer's and an
engine's worker in one process, which give their memory back in turns.

A layout says what each parameter of a worker is made of: {name: (shape, [(tensor, its part, where it goes)])}.  The
parameters are a module on `device`; the source map is extracted on the host, from a loader of the same layout."""
import gc
import json
import os
import sys
import threading
import time
import traceback

import torch
import weightbridge

WAIT = 100.0  # s
PADDING, PAD = 24, 0.5  # rows; what a loader writes into them
SLACK = 64 << 20
LATE_S = 0.3  # so long a GPU computes new values, at least


# ---- what the checkpoint holds --------------------------------------------------------------------------------------

def values(version, tensor, shape, device):
    """What a tensor of the checkpoint holds, FP32: exact on all devices, and rounded when it becomes BF16."""
    n = 1
    for k in shape:
        n *= k
    x = torch.arange(n, dtype=torch.int32, device=device)
    x.mul_(-1640531535).add_(version * 7919 + tensor * 104729).bitwise_and_(0xffffff).sub_(0x800000)
    return x.to(torch.float32).mul_(2.0 ** -20).reshape(shape)


class Dense:
    """Attention with grouped queries and a gated MLP."""

    def __init__(self, layers=2, hidden=256, inner=512, vocabulary=2048):
        self.layers, self.hidden, self.inner = layers, hidden, inner
        self.tensors = [("embed", (vocabulary, hidden))]
        for i in range(layers):
            self.tensors += [(f"{i}.{n}", s) for n, s in self.of_layer()]
        self.tensors.append(("norm", (hidden,)))
        self.shape = dict(self.tensors)
        self.index = {n: i for i, (n, _) in enumerate(self.tensors)}

    def of_layer(self):
        h, f = self.hidden, self.inner
        return [("q", (h, h)), ("k", (h // 4, h)), ("v", (h // 4, h)), ("o", (h, h)), ("norm", (h,)), *self.of_mlp(h, f)]

    @staticmethod
    def of_mlp(h, f):
        return [("gate", (f, h)), ("up", (f, h)), ("down", (h, f))]

    # A part of a tensor: slices.  rows, columns: the r-th of n equal ones.

    def rows(self, tensor, r, n):
        k = self.shape[tensor][0] // n
        return (slice(r * k, r * k + k),)

    def columns(self, tensor, r, n):
        k = self.shape[tensor][1] // n
        return (slice(None), slice(r * k, r * k + k))

    def whole(self, tensor, _r=0, _n=1):
        return tuple(slice(None) for _ in self.shape[tensor])

    def stacked(self, cut, tensors, r, n):
        """A parameter of parts that lie one below the other."""
        pieces, at = [], 0
        for t in tensors:
            part = cut(t, r, n)
            k = len(range(*part[0].indices(self.shape[t][0])))
            pieces.append((t, part, (slice(at, at + k),)))
            at += k
        width = len(range(*cut(tensors[0], r, n)[1].indices(self.shape[tensors[0]][1]))) \
            if len(cut(tensors[0], r, n)) > 1 else self.shape[tensors[0]][1]
        return (at, width), pieces

    def one(self, cut, tensor, r, n):
        """A parameter that is a part of one tensor."""
        part = cut(tensor, r, n)
        shape = tuple(len(range(*p.indices(k))) for p, k in zip(part, self.shape[tensor]))
        shape += self.shape[tensor][len(part):]
        return shape, [(tensor, part, tuple(slice(None) for _ in shape))]

    def trained(self, r, n):
        """As Megatron cuts it: what comes first by rows, what comes after it by columns."""
        out = {"embed": self.one(self.rows, "embed", r, n), "norm": self.one(self.whole, "norm", r, n)}
        self.fill_layers(out, r, n, self.rows, self.columns, self.trained_mlp)
        return out

    def fill_layers(self, out, r, n, first, second, mlp):
        for i in range(self.layers):
            out[f"{i}_qkv"] = self.stacked(first, [f"{i}.q", f"{i}.k", f"{i}.v"], r, n)
            out[f"{i}_o"] = self.one(second, f"{i}.o", r, n)
            out[f"{i}_norm"] = self.one(self.whole, f"{i}.norm", r, n)
            mlp(out, i, r, n)

    def trained_mlp(self, out, i, r, n):
        out[f"{i}_fc1"] = self.stacked(self.rows, [f"{i}.gate", f"{i}.up"], r, n)
        out[f"{i}_fc2"] = self.one(self.columns, f"{i}.down", r, n)

    def served(self, r, n):
        """Other cuts than the trainer's wherever there is a choice, and rows that only fill up the vocabulary."""
        (rows, width), pieces = self.one(self.columns, "embed", r, n)
        out = {"embed": ((rows + PADDING, width), [(t, part, (slice(0, rows),)) for t, part, _ in pieces]),
               "norm": self.one(self.whole, "norm", r, n)}
        self.fill_layers(out, r, n, self.columns, self.rows, self.served_mlp)
        return out

    def served_mlp(self, out, i, r, n):
        out[f"{i}_up_gate"] = self.stacked(self.rows, [f"{i}.up", f"{i}.gate"], r, n)
        out[f"{i}_down"] = self.one(self.rows, f"{i}.down", r, n)


class Experts(Dense):
    """With experts in place of the MLP: each by itself on the trainer's ranks, which share them; stacked in the engine,
    whose ranks have a part of each."""

    N = 8

    def of_mlp(self, h, f):
        return [(f"{e}.{n}", s) for e in range(self.N) for n, s in Dense.of_mlp(h, f // 4)]

    def trained_mlp(self, out, i, r, n):
        for e in range(r * self.N // n, (r + 1) * self.N // n):
            out[f"{i}_{e}_fc1"] = self.stacked(self.whole, [f"{i}.{e}.gate", f"{i}.{e}.up"], 0, 1)
            out[f"{i}_{e}_fc2"] = self.one(self.whole, f"{i}.{e}.down", 0, 1)

    def served_mlp(self, out, i, r, n):
        for name, one in (("w13", lambda e: self.stacked(self.rows, [f"{i}.{e}.gate", f"{i}.{e}.up"], r, n)),
                          ("w2", lambda e: self.one(self.columns, f"{i}.{e}.down", r, n))):
            pieces = []
            for e in range(self.N):
                shape, of_one = one(e)
                pieces += [(t, part, (e, *where)) for t, part, where in of_one]
            out[f"{i}_{name}"] = ((self.N, *shape), pieces)


class Big(Dense):
    """So many GiB of BF16, in tensors as an 8B model has them; less than one in smaller ones."""

    def __init__(self, gib):
        h = 4096 if gib >= 1 else 1024
        f = h * 43 // 16
        super().__init__(layers=max(1, round(gib * 2 ** 30 / 2 / (2.5 * h * h + 3 * h * f))), hidden=h, inner=f)


MODELS = {"dense": Dense, "experts": Experts}


# ---- a worker -------------------------------------------------------------------------------------------------------

class Worker:
    """Parameters of one rank, as a module, and what it does with them."""

    def __init__(self, model, layout, dtype, device):
        self.model, self.layout, self.dtype, self.device = model, layout, dtype, device
        self.module = self.make(device)
        self.map = None

    def make(self, device):
        module = torch.nn.Module()
        for name, (shape, _) in self.layout.items():
            module.register_parameter(name, torch.nn.Parameter(torch.zeros(shape, dtype=self.dtype, device=device)))
        return module

    @property
    def bytes(self):
        return sum(p.numel() * p.element_size() for p in self.module.parameters())

    def extract(self):
        """The source map, from a module on the host that is laid out alike."""
        host = dict(self.make("cpu").named_parameters())
        where = {}
        for name, (_, pieces) in self.layout.items():
            for tensor, part, at in pieces:
                where.setdefault(tensor, []).append((host[name].data, at, part))

        def load_weights(weights):
            if len(host["embed"]) > len(self.rows_of("embed")):
                host["embed"].data[len(self.rows_of("embed")):] = PAD
            for name, tensor in weights:
                for param, at, part in where.get(name, ()):
                    param[at].copy_(tensor[part])

        self.map = weightbridge.extract(load_weights, [(n, s, "BF16") for n, s in self.model.tensors], host,
                                        progress=False, expand_bytes=1 << 20)

    def rows_of(self, name):
        """The rows of a parameter that are of the checkpoint."""
        shape, pieces = self.layout[name]
        return range(max(range(*at[0].indices(shape[0])).stop for _, _, at in pieces))

    def expected(self, version):
        """Yields (parameter, what it holds in that version), one after the other: memory for one."""
        own = dict(self.module.named_parameters())
        made = (None, None)
        for name, (_, pieces) in self.layout.items():
            want = torch.full_like(own[name].data, PAD)
            for tensor, part, at in pieces:
                if made[0] != tensor:
                    made = tensor, values(version, self.model.index[tensor], self.model.shape[tensor], self.device)
                # The checkpoint is BF16: what trainers hold more exactly is rounded on its way.
                want[at].copy_(made[1][part])
            yield name, own[name].data, want

    def fill(self, version):
        with torch.no_grad():
            for _, param, want in self.expected(version):
                param.copy_(want)

    def fill_late(self, version):
        """The same by the GPU, which begins with it only after a while: on return nothing is there."""
        ready = [(param, want) for _, param, want in self.expected(version)]
        torch.cuda._sleep(int(LATE_S * 2.2e9))
        with torch.no_grad():
            for param, want in ready:
                param.copy_(want, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return done

    def wrong(self, version):
        """Names of parameters that do not hold it; compared where they lie."""
        return [name for name, param, want in self.expected(version) if not torch.equal(param, want)]

    def scribble(self):
        with torch.no_grad():
            for p in self.module.parameters():
                p.fill_(-1.0)


def worker_of(said, role):
    model = Big(said["gib"]) if said.get("gib") else MODELS[said["model"]]()
    layout = (model.trained if role == "trainer" else model.served)(said["rank"], said["n"])
    dtype = getattr(torch, said["dtype"] if role == "trainer" else "bfloat16")
    w = Worker(model, layout, dtype, said["device"])
    t0 = time.monotonic()
    w.extract()
    print(f"{role} {said['rank']}: {w.bytes} bytes in {len(layout)} parameters on {said['device']}, "
          f"map in {time.monotonic() - t0:.1f} s", flush=True)
    return w


def put_values(w, version, how):
    """Gives the parameters a version as a trainer would, and says whether they have it yet."""
    if how == "now" or w.device == "cpu":
        w.fill(version)
        return "at once"
    if how == "late":
        done = w.fill_late(version)
    else:  # a stream that the default stream does not wait for by itself
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            done = w.fill_late(version)
        torch.cuda.default_stream().wait_stream(side)
    return "late" if not done.query() else "NOT LATE"


def train(said):
    w = worker_of(said, "trainer")
    sender = weightbridge.SenderAdapter(source_map=w.map, params=w.module, socket=said["socket"], rank=said["rank"])
    sender.connect(WAIT, progress=False)
    for version, how in enumerate(said["versions"], 1):
        when = put_values(w, version, how)
        assert when != "NOT LATE", "the GPU was done before send_weights was called: nothing was shown"
        t0 = time.monotonic()
        transfer = sender.send_weights(version)
        free = time.monotonic() - t0
        w.scribble()
        transfer.wait(WAIT)
        print(f"sent {version}, values {when} ({how}): {transfer.seconds:.3f} s, trainer free {free:.3f} s after its "
              "call", flush=True)
    sender.close()


def serve(said):
    w = worker_of(said, "rollout")
    receiver = weightbridge.ReceiverAdapter(source_map=w.map, params=w.module, socket=said["socket"], rank=said["rank"],
                                            engine=said["engine"])
    receiver.connect(WAIT, progress=False)
    for version in range(1, len(said["versions"]) + 1):
        take(w, receiver, version)
    receiver.close()


def take(w, receiver, version):
    update = receiver.update(WAIT)
    assert update and update.version == version, (update, receiver.last_abort)
    wrong = w.wrong(version)
    assert not wrong, f"version {version}: {len(wrong)} of {len(w.layout)} parameters differ: {wrong[:4]}"
    print(f"equal {version}: {len(w.layout)} parameters, {w.bytes} bytes", flush=True)


# ---- two in one process ---------------------------------------------------------------------------------------------

class Room:
    """Free memory of the GPU; what torch keeps for itself is given back first."""

    def __init__(self, device):
        self.device = device
        self.last = self.now()

    def now(self):
        if self.device == "cpu":
            return 0
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    def freed(self):
        """Bytes more than at the last look."""
        before, self.last = self.last, self.now()
        return self.last - before


def both(said):
    trainer = worker_of({**said, "n": 1, "rank": 0}, "trainer")
    engine = worker_of({**said, "n": 1, "rank": 0}, "rollout")
    sender = weightbridge.SenderAdapter(source_map=trainer.map, params=lambda: dict(trainer.module.named_parameters()),
                                        socket=said["socket"])
    receiver = weightbridge.ReceiverAdapter(source_map=engine.map, params=lambda: dict(engine.module.named_parameters()),
                                            socket=said["socket2"], engine="e0")
    connect = threading.Thread(target=sender.connect, args=(WAIT, False))
    connect.start()
    receiver.connect(WAIT, False)
    connect.join()
    plans = sender.plan, receiver.plan
    version = 0
    for turn, (adapter, w) in enumerate(((receiver, engine), (sender, trainer), (receiver, engine))):
        version = move(trainer, engine, sender, receiver, version + 1)
        sleep_and_wake(adapter, w, turn)
    move(trainer, engine, sender, receiver, version + 1)
    assert plans == (sender.plan, receiver.plan), "another plan"
    sender.close()
    receiver.close()


def move(trainer, engine, sender, receiver, version):
    trainer.fill(version)
    failed = []

    def send():
        try:
            sender.send_weights(version).wait(WAIT)
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=send)
    thread.start()
    take(engine, receiver, version)
    thread.join()
    if failed:
        raise failed[0]
    return version


def sleep_and_wake(adapter, w, turn):
    """The memory goes for good, other memory comes."""
    room, size = Room(w.device), w.bytes
    t0 = time.monotonic()
    adapter.release_memory(WAIT)
    released = time.monotonic() - t0
    w.module = None
    freed = room.freed()
    # The caching allocator takes it in pieces, of which others may have a part.
    assert w.device == "cpu" or freed > size - SLACK, f"{freed} bytes came free of {size}"
    w.module = w.make(w.device)
    t0 = time.monotonic()
    adapter.acquire_memory(timeout=WAIT)
    print(f"turn {turn}: {type(adapter).__name__} released {size} bytes in {released:.3f} s, {freed} came free, "
          f"acquired in {time.monotonic() - t0:.3f} s", flush=True)


# ---- what memory can travel as --------------------------------------------------------------------------------------

def memory(said):
    """One allocator, one size."""
    pool = getattr(torch.cuda, "MemPool", None) if said["pool"] else None
    line = {"allocator": said["allocator"], "bytes": said["bytes"]}
    if said["pool"] and pool is None:
        print(json.dumps({**line, "kind": None, "why": "this torch has no torch.cuda.MemPool"}), flush=True)
        return
    if pool:
        pool = pool()  # to be held as long as its memory
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(said["bytes"], dtype=torch.uint8, device="cuda")
    else:
        tensor = torch.zeros(said["bytes"], dtype=torch.uint8, device="cuda")
    line["backend"] = torch.cuda.get_allocator_backend()
    try:
        is_ = weightbridge.memory.device_memory(tensor)
        line.update(kind=is_.kind, why=is_.why)
    except weightbridge.WeightBridgeError as e:
        line.update(kind=None, why=f"error: {e}")
    print(json.dumps(line), flush=True)


ROLES = {"trainer": train, "rollout": serve, "both": both, "memory": memory}


def main(said):
    torch.manual_seed(0)
    try:
        ROLES[said["role"]](said)
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
