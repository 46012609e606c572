# SPDX-License-Identifier: Apache-2.0
"""Both sides of vLLM's own interface for weight transfer: vllm_api.py JSON.

role trainer: a rank under FSDP2, which vLLM's WeightTransferTrainerFactory makes the sender of.  `gives` says what of: its
module's adapter (sender), or vLLM's own ModuleSource (source), as a trainer has it that does not know of WeightBridge.
`first`: the version to begin with (1).  `dies`: the version in the middle of whose calls it is killed.
role engine: vLLM's whole LLM, which does what comes over a Unix socket, `calls`: the four calls of vLLM's client.

After each update every tensor that a worker of the engine has received is byte by byte what the trainer exported; with
`generates` it is seen at the end that the engine has generated what one generates that was started from the export."""
import json
import os
import signal
import socket
import sys
import traceback

from worker import leave


class Client:
    """A VLLMWeightSyncClient over a Unix socket."""

    def __init__(self, path):
        self.path = path

    def call(self, name, *args):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.path)
            s.sendall(json.dumps([name, *args]).encode() + b"\n")
            error = json.loads(s.makefile().readline())
        if error:
            raise RuntimeError(error)

    def init_weight_transfer_engine(self, init_info):
        self.call("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self):
        self.call("start_weight_update")

    def update_weights(self, update_info):
        self.call("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version=None):
        self.call("finish_weight_update", weight_version)


def make(said, worker, client):
    from vllm.distributed.weight_transfer import ModuleSource, WeightTransferTrainerFactory
    from weightbridge.adapters import vllm_trainer

    init = {"rank": said["rank"], "timeout": said["wait"], "engine": {"engine": "e0", "socket": said["engine_socket"]}}
    source = None
    if said["gives"] == "sender":
        init["sender"] = worker.sender()
    elif said["gives"] == "source":
        source = ModuleSource(worker.model)
        init.update(manifest=said["model"], senders=said["senders"], options=worker.common)
    return WeightTransferTrainerFactory.trainer_init(vllm_trainer.TrainerInit(**init), client=client, source=source)


def disagree(engine, said):
    """Ranks that send different versions send nothing, and the engine goes on waiting for what comes next."""
    from weightbridge.errors import WeightBridgeError

    try:
        engine.send_weights(2 + said["rank"])
    except WeightBridgeError as e:
        print(f"not sent: {type(e).__name__}: {e}", flush=True)
    else:
        raise AssertionError("different versions were sent")


def train(said):
    import frameworks

    worker = frameworks.FSDP2(said)
    engine = make(said, worker, Client(said["calls"]))
    print("connected", flush=True)
    for version in range(said.get("first", 1), said["versions"] + 1):
        if version == said.get("dies"):
            engine.client.start_weight_update()
            os.kill(os.getpid(), signal.SIGKILL)
        worker.step()
        worker.export(os.path.join(said["exports"], f"v{version}"))
        sent = engine.send_weights(*([version] if said.get("numbered") else []))
        assert sent == version or said["rank"] >= said.get("senders", said["n"]), sent
        print(f"sent {version}", flush=True)
        if version == 1 and said.get("numbered"):
            disagree(engine, said)
    engine.shutdown()


class Served:
    """What the engine does at each call; `was` is what it generated first and after each update."""

    def __init__(self, llm, said):
        import llm as whole

        self.llm, self.said, self.generate = llm, said, lambda: whole.generated(llm)
        self.was, self.last = [self.generate()], None

    def obey(self, name, *args):
        getattr(self.llm, name)(*args)
        if name == "finish_weight_update" and any(args):  # it is told no version where nothing has come
            self.llm.reset_prefix_cache()
            self.compare(len(self.was), *args)
            self.was.append(self.generate())

    def compare(self, version, said):
        import frameworks
        import no_amx

        assert said == str(version) and self.llm.get_weight_version() == said, (said, version)
        want = {n: no_amx.digest(t) for n, t in frameworks.read(os.path.join(self.said["exports"], f"v{version}"))}
        for got in self.llm.collective_rpc("received"):
            wrong = [n for n in want if got.get(n) != want[n]]
            assert not wrong and want.keys() == got.keys(), f"{len(wrong)} of {len(want)} tensors differ: {wrong[:4]}"
            same = [n for n in want if self.last and self.last[n] == got[n]]
        self.last = want
        print(f"received {version}: {len(want)} tensors in {self.said['n']} workers, {len(same)} as before", flush=True)


def serve(said):
    import llm as whole
    whole.environment()
    from vllm.config import WeightTransferConfig
    from weightbridge.adapters import vllm as wb

    llm = whole.start(said["model"], said["n"], "no_amx.Rollout", weight_transfer_config=WeightTransferConfig(backend=wb.NAME))
    served = Served(llm, said)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(said["calls"])
        s.listen()
        print("listening", flush=True)
        while len(served.was) <= said["versions"]:
            answer(s, served)
    whole.stop(llm)
    if said["generates"]:
        whole.as_exported(said, served.was)


def answer(listener, served):
    one, _ = listener.accept()
    with one:
        error = ""
        try:
            served.obey(*json.loads(one.makefile().readline()))
        except Exception as e:
            traceback.print_exc()
            error = f"{type(e).__name__}: {e}"
        one.sendall(json.dumps(error).encode() + b"\n")


if __name__ == "__main__":
    try:
        asked = json.loads(sys.argv[1])
        {"trainer": train, "engine": serve}[asked["role"]](asked)
    except BaseException as e:
        traceback.print_exc()
        print(f"error {type(e).__name__}: {e}", flush=True)
        leave(1)
    leave(0)
