# SPDX-License-Identifier: Apache-2.0
"""One worker of a test, in the Python of its framework: worker.py JSON.

role trainer: connects, and compares what its source map makes of a checkpoint of random values with what its loader does;
then for each version a step of AdamW, an export by the framework's own means, a transfer.
role rollout: for each version an update; then every parameter is compared with what the engine's own loader makes of
that export.  role peer: is there, for the process groups of a rank that was started again.  role maker: writes a model.
What it says to the test is a line each, "error ..." when something is wrong.

first: the version to begin with (1).  paced: versions that wait for lines on the standard input.  A trainer waits for one
each time that it tries to send such a version, "send 3" for 3 seconds at most: where that fails it says so, and tries again
at the next line; at "step" it trains on instead.  A rollout waits for one, and then says that no update has come and that
nothing has changed, before it waits for the update.
moves: a version before which the trainer's parameters get other memory.  begin: a file that is there when trainers may send.
maps: a folder where a trainer's source maps are kept."""
import json
import os
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def run(said):
    """Does what it is told to, and ends this process."""
    import frameworks
    import make_model

    try:
        if said["role"] == "maker":
            make_model.main(said["model"], said["folder"])
        else:
            worker = getattr(frameworks, said["kind"])(said)
            {"trainer": train, "rollout": serve, "peer": stay}[said["role"]](worker, said)
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        leave(1)
    leave(0)


def leave(status):
    """Frameworks leave threads and process groups behind that would wait for each other."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def train(worker, said):
    sender, pads = worker.sender(), worker.padding()
    for t in pads.values():
        t.fill_(9)  # no loader writes it, so it is seen wherever it goes
    before = worker.content()
    sender.connect()
    assert worker.content() == before, "connect() did not leave all as it was"
    exact(worker, sender.source_map, pads)
    print("connected" + (", its map was kept" if "map from the cache" in sender.source_map.report() else ""), flush=True)
    while "begin" in said and not os.path.exists(said["begin"]):
        time.sleep(0.01)  # until engines have seen that nothing comes
    for version in range(said.get("first", 1), said["versions"] + 1):
        before = worker.places()
        worker.step()
        worker.export(os.path.join(said["exports"], f"v{version}"))
        if said.get("moves") == version:
            before = moved(worker, sender, version)
        sent = send(sender, version, version in said.get("paced", ()))
        if not sent:
            worker.step()
            worker.export(os.path.join(said["exports"], "never"))
            raise AssertionError("it trained on without the others")
        assert worker.places() == before, "a parameter has moved"
        print(f"sent {version}, transfer {sent.transfer}", flush=True)
    sender.close()


def moved(worker, sender, version):
    """Parameters get other memory: what is there now is not sent before rebind() has attached it.  Returns where they are."""
    from weightbridge.errors import ParametersMoved

    before = worker.places()
    worker.move()
    now = worker.places()
    assert all(now[n] != before[n] for n in now), "a parameter has stayed where it was"
    try:
        sender.send_weights(version)
    except ParametersMoved as e:
        print(f"moved: {e}", flush=True)
    else:
        raise AssertionError("the memory of before was sent")
    sender.rebind()
    return now


def exact(worker, found, pads):
    """A source map makes of random values what the loader makes of them, over a sentinel; padding gets none of them."""
    import torch

    tensors = {n: t.detach() for n, t in worker.tensors().items()}
    kept = {n: t.clone() for n, t in tensors.items()}
    made = torch.Generator().manual_seed(11)  # alike on all ranks, whose loaders may give to each other
    kinds = {"BF16": torch.bfloat16, "F32": torch.float32}
    values = {n: torch.randn(shape, generator=made).to(kinds[dtype]) for n, shape, dtype in found.tensors}
    results = []
    for write in (lambda: worker.load(values.items()),
                  lambda: found.apply(values, into={n: tensors[n] for n in found.param_names})):
        for t in tensors.values():
            t.fill_(7)
        write()
        results.append(worker.content())
        for name, t in pads.items():
            assert set(t.unique().tolist()) <= {0, 7}, f"padding of {name} is a copy of something"
    wrong = [n for n in tensors if results[0][n] != results[1][n]]
    assert not wrong, f"the map is wrong for {wrong[:4]}"
    for name, t in tensors.items():
        t.copy_(kept[name])


def send(sender, version, paced):
    """The transfer; None when a line said to train on."""
    from weightbridge.errors import TransferFailed, WeightBridgeTimeout

    patience = None
    while True:
        if paced:
            print(f"ready {version}", flush=True)
            what, *seconds = sys.stdin.readline().split() or ["send"]
            if what == "step":
                return None
            patience = float(seconds[0]) if seconds else None
        try:
            return sender.send_weights(version, timeout=patience).wait(patience)
        except (TransferFailed, WeightBridgeTimeout) as e:
            if not paced:
                raise
            print(f"not sent {version}: {type(e).__name__}: {e}", flush=True)


def stay(_worker, _said):
    print("connected", flush=True)
    signal.pause()


def serve(worker, said):
    receiver = worker.receiver()
    receiver.connect()
    print("connected", flush=True)
    last = None
    for version in range(said.get("first", 1), said["versions"] + 1):
        before = worker.places()
        if version in said.get("paced", ()):
            sys.stdin.readline()
            assert receiver.update(1.0) is None and worker.content() == last, "something has come"
            print(f"nothing for {version}", flush=True)
        update = receiver.update()
        assert update and update.version == version, update
        assert worker.places() == before, "a parameter has moved"
        got = worker.content()
        want = worker.loaded(os.path.join(said["exports"], f"v{version}"))
        wrong = [n for n in want if want[n] != got[n]]
        assert not wrong and want.keys() == got.keys(), f"{len(wrong)} of {len(want)} parameters differ: {wrong[:4]}"
        same = [n for n in want if last and last[n] == got[n]]
        last = got
        print(f"equal {version}: {len(want)} parameters, {sum(map(len, want.values()))} bytes, {len(same)} as before", flush=True)
    receiver.close()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
