# SPDX-License-Identifier: Apache-2.0
"""One worker of the demo: a trainer rank or an inference rank with NumPy parameters.

worker.py SPEC.json	Reads commands from stdin and writes events to stdout, one JSON object a line.
SPEC: {"role", "engine", "rank", "socket", "object", "checkpoint", "spec", "python"}.
Commands	{"do": "set", "version": N}	trainers: every element changes, in place
		{"do": "send", "version": N}	trainers: send_weights(N)
		{"do": "image"}			where the parameters lie, for verify.py
		{"do": "exit"}
Events		ready, planned, set, sent, update, image, error.
Rollouts poll all the time between commands, as an engine does between steps.
"""
import json
import os
import selectors
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def say(event, **fields):
    print(json.dumps({"event": event, "t": time.monotonic(), **fields}), flush=True)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        o = json.load(f)
    sys.path.insert(0, o["python"])
    import weightbridge
    from engines import arena, generic

    ckpt = generic.open_checkpoint(o["checkpoint"], o["spec"])
    is_generic = o["spec"]["framework"] == "generic"
    engine, memory = arena.for_spec(o["spec"], kind=o.get("memory", "memfd"))
    t0 = time.monotonic()
    trainer = o["role"] == "trainer"
    if trainer or not o.get("restarted"):
        engine.load_weights(ckpt.items())
    say("ready", seconds=time.monotonic() - t0, bytes=engine.nbytes(), pid=os.getpid())
    args = dict(object=o["object"], params=engine.params,
                manifest=generic.manifest(o["spec"]) if is_generic else o["checkpoint"], rank=o["rank"],
                socket=o["socket"], framework="numpy",
                expand_bytes=1 << 20, cache_dir=o.get("cache"))
    shared = weightbridge.share(memory.buffer, memory.fd) if memory.fd >= 0 else None
    if trainer:
        adapter = weightbridge.SenderAdapter(engine.load_weights, **args)
    else:
        adapter = weightbridge.ReceiverAdapter(
            engine.load_weights, engine=o["engine"],
            before_update_hook=lambda version: say("before", version=version),
            after_update_hook=lambda version: say("after", version=version), **args)
    t0 = time.monotonic()
    adapter.connect(timeout=o.get("timeout", 600),
                    progress=lambda text: say("progress", text=text))
    say("planned", seconds=time.monotonic() - t0, digest=adapter.source_map.digest,
        shared=shared is not None)
    pick = selectors.DefaultSelector()
    os.set_blocking(0, False)
    pick.register(0, selectors.EVENT_READ)
    if not trainer:
        pick.register(adapter.fileno(), selectors.EVENT_READ)
    buffered = b""
    polls = 0
    while True:
        if not trainer:
            update = adapter.poll_requests()
            polls += 1
            if update:
                say("update", version=update.version, transfer=update.transfer,
                    digest=update.digest, polls=polls)
        if not pick.select(timeout=None if trainer else 0.005):
            continue
        data = os.read(0, 65536) if any(k.fd == 0 for k, _ in pick.select(0)) else None
        if data == b"":
            return
        buffered += data or b""
        while b"\n" in buffered:
            line, buffered = buffered.split(b"\n", 1)
            command = json.loads(line)
            if command["do"] == "exit":
                adapter.close()
                return
            if command["do"] == "image":
                say("image", image=memory.describe(engine.params))
            elif command["do"] == "set":
                engine.set_version(command["version"])
                say("set", version=command["version"])
            elif command["do"] == "send":
                t0 = time.monotonic()
                transfer = adapter.send_weights(command["version"])
                released = time.monotonic()
                transfer.wait(timeout=120)
                say("sent", version=command["version"], transfer=transfer.transfer,
                    start=t0, released=released, final=time.monotonic(),
                    engines=dict(transfer.engines), state=str(transfer.state))


if __name__ == "__main__":
    try:
        main()
    except Exception as e:  # the driver prints it
        say("error", error=f"{type(e).__name__}: {e}")
        raise
