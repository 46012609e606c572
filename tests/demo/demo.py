# SPDX-License-Identifier: Apache-2.0
"""make demo: a trainer with one layout, two engines with another, versions 1 to 7, a kill.

Environment: MODEL=DIR (a checkpoint of one's own), LAYERS=N (a smaller one), WB_DEMO_KEEP=1.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import make_checkpoint  # noqa: E402
from engines import deploy, generic, models  # noqa: E402
from procs import Daemon, Deployment, Failed, TOP  # noqa: E402,F401

SPEC = """  trainer: {workers: 4, bufferSize: 128Mi}
  rollout: {workersPerEngine: 2, engines: 2, bufferSize: 128Mi}
  transferDeadlineSeconds: 60
  engineStepDeadlineSeconds: 60
  planDeadlineSeconds: 600
  heartbeatTimeoutSeconds: 5
"""
KILLED = 6


def say(text=""):
    print(text, flush=True)


def loopback_rate(mib=256):
    """Bytes a second that two plain TCP connections move together over loopback here."""
    data, buf = bytearray(1 << 20), [bytearray(1 << 20), bytearray(1 << 20)]
    server = socket.create_server(("127.0.0.1", 0))

    def send():
        with socket.create_connection(server.getsockname()) as s:
            for _ in range(mib):
                s.sendall(data)

    def receive(i, s):
        while s.recv_into(buf[i]):
            pass

    threads = [threading.Thread(target=send) for _ in range(2)]
    for t in threads:
        t.start()
    peers = [server.accept()[0] for _ in range(2)]
    start = time.monotonic()
    readers = [threading.Thread(target=receive, args=(i, s)) for i, s in enumerate(peers)]
    for t in readers:
        t.start()
    for t in threads + readers:
        t.join()
    for s in peers:
        s.close()
    server.close()
    return 2 * mib * (1 << 20) / (time.monotonic() - start)


class Demo(Deployment):
    def __init__(self, build, folder, checkpoint, config):
        self.trainer_specs, self.engine_specs = deploy.demo(config)
        super().__init__(build, folder, SPEC)
        self.checkpoint = checkpoint
        self.trainers, self.rollouts = [], {}
        self.is_generic = isinstance(config, generic.Model)
        # Of a checkpoint that may be small the first chunk must do, if there is one.
        self.fault = "kill=recv" if self.is_generic else "kill=recv:chunk=5"

    def start(self):
        self.start_operator()
        for pod in range(2):
            self.start_agent(f"trainer-{pod}")
        for e in range(2):
            # The fault is armed from the start and goes off in transfer 6 alone.
            fault = {"WB_FAULT": f"{self.fault}:version={KILLED}"} if e == 1 else {}
            self.start_agent(f"engine-{e}", fault)
        for r, spec in enumerate(self.trainer_specs):
            self.trainers.append(self.start_worker(
                f"trainer-{r // 2}", f"trainer-{r // 2}-w{r % 2}", "trainer", r, spec,
                self.checkpoint))
        for e in range(2):
            self.start_engine(e)

    def start_engine(self, e, **more):
        self.rollouts[e] = [self.start_worker(
            f"engine-{e}", f"engine-{e}-w{r}", "rollout", r, spec, self.checkpoint,
            engine=f"engine-{e}", **more) for r, spec in enumerate(self.engine_specs[e])]

    def verify(self, engine, version):
        """Compare both workers of an engine with the oracle, in processes of their own."""
        jobs = []
        for w in self.rollouts[engine]:
            w.send(do="image")
            image = w.wait("image")["image"]
            p = subprocess.Popen([sys.executable, os.path.join(HERE, "verify.py"), "--image", "-",
                                  "--checkpoint", self.checkpoint, "--version", str(version)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            p.stdin.write(json.dumps({"image": image, "spec": w.spec}))
            p.stdin.close()
            jobs.append((w, p))
        total = 0
        for w, p in jobs:
            text = p.stdout.read()
            if p.wait() != 0:
                raise Failed(f"{w.name} differs from the oracle at version {version}: {text}")
            total += json.loads(text)["bytes"]
        return total

    def transfer(self, version, engines):
        """One version; returns (EWTT s, mean trainer stall s, per engine outcome)."""
        self.send(self.trainers, version)
        sent = [w.wait("sent", version=version) for w in self.trainers]
        updates = [w.wait("update", version=version) for e in engines for w in self.rollouts[e]]
        start = min(s["start"] for s in sent)
        return {"ewtt": max(u["t"] for u in updates) - start,
                "stall": sum(s["released"] - s["start"] for s in sent) / len(sent),
                "transfer": sent[0]["transfer"], "engines": sent[0]["engines"],
                "digests": {u["digest"] for u in updates}}


def row(v, r, bytes_moved, bound, checked):
    say(f"{v:>7}  {r['transfer']:>8}  {r['ewtt'] * 1e3:>9.0f}  {r['stall'] * 1e3:>9.0f}  "
        f"{bytes_moved / r['ewtt'] / 1e9:>6.2f}  {r['ewtt'] / bound:>10.2f}  "
        f"{'same, ' + format(checked / 1e9, '.2f') + ' GB' if checked else '-':>14}")


def phases(d):
    ready = [w.wait("ready") for w in d.workers.values()]
    say(f"  loaded      {sum(e['bytes'] for e in ready) / 1e9:.2f} GB of parameters in 8 workers, "
        f"slowest {max(e['seconds'] for e in ready):.1f} s")
    planned = {n: w.wait("planned", 650) for n, w in d.workers.items()}
    slow = max(planned, key=lambda n: planned[n]["seconds"])
    say(f"  extracted and planned, slowest {slow} after {planned[slow]['seconds']:.1f} s")


def explain(d):
    p = subprocess.run([d.program("wbctl"), "plan", "explain", "--operator",
                        "127.0.0.1:" + d.operator_http], capture_output=True, text=True,
                       check=False)
    if p.returncode:
        raise Failed("wbctl plan explain: " + p.stderr)
    for line in p.stdout.splitlines():
        say("  | " + line)


def outcome(engines):
    return ", ".join(f"{name} {state}" for name, state in sorted(engines.items()))


def kill_and_return(d, bound, moved):
    say(f"\nVersion {KILLED}: engine-1 is killed with -9 in the receive stage "
        f"(WB_FAULT={d.fault}:version={KILLED} at its agent; its workers go with the pod)")
    d.send(d.trainers, KILLED)
    agent = d.agents["engine-1"]
    try:
        agent.p.wait(10 if d.is_generic else 60)
    except subprocess.TimeoutExpired:
        if not d.is_generic:
            raise Failed("the fault did not go off") from None
        say("  engine-1 got nothing from a trainer by itself: killed after the transfer")
        agent.kill()
    say(f"  agent engine-1 ended with signal {-agent.p.returncode}; killing its workers")
    if agent.p.returncode != -9:
        raise Failed(f"engine-1's agent ended with {agent.p.returncode}:\n{agent.tail()}")
    for w in d.rollouts[1]:
        w.kill()
    sent = [w.wait("sent", version=KILLED) for w in d.trainers]
    for w in d.rollouts[0]:
        w.wait("update", version=KILLED)
    say(f"  outcome: {outcome(sent[0]['engines'])}")
    if sent[0]["engines"].get("engine-0") != "Committed":
        raise Failed(f"engine-0 did not commit version {KILLED}")
    say(f"  engine-0 holds version {KILLED}: {d.verify(0, KILLED) / 1e9:.2f} GB the same")
    def trainer_bytes():
        return sum(v for n in ("trainer-0", "trainer-1") for k, v in d.metrics(n).items()
                   if k.startswith("wb_bytes_total") and 'dir="tx"' in k)
    before = trainer_bytes()
    t0 = time.monotonic()
    d.start_agent("engine-1")
    d.start_engine(1, restarted=True)
    for w in d.rollouts[1]:
        w.wait("update", 120, version=KILLED)
    after = trainer_bytes()
    say(f"  engine-1 restarted, attached again and was fed version {KILLED} from engine-0 in "
        f"{time.monotonic() - t0:.1f} s; trainers sent {after - before:.0f} bytes for it")
    if after != before:
        raise Failed("a trainer took part in the feed")
    say(f"  engine-1 holds version {KILLED}: {d.verify(1, KILLED) / 1e9:.2f} GB the same")


def layers():
    """LAYERS as a number; None: as many as the model has."""
    text = os.environ.get("LAYERS") or "0"
    most = models.load("Qwen3-0.6B").layers
    if not text.isdecimal() or int(text) > most or int(text) % 2:
        raise Failed(f"LAYERS={text}: an even number from 2 to {most} (two pipeline stages share them)")
    return int(text) or None


def prepare(build, folder):
    """What can be wrong in what the user gave is said here, before anything runs."""
    program = os.path.join(build, "bin", "weightbridge-operator")
    if not os.path.exists(program):
        raise Failed(f"{program} is not there: run `make` first")
    try:
        checkpoint, config = make_checkpoint.find(layers=layers(), say=lambda text: say("  " + text))
        return Demo(build, folder, checkpoint, config), checkpoint, config
    except (OSError, ValueError) as e:
        raise Failed(e) from e


def run(build, folder):
    t0 = time.monotonic()
    say("WeightBridge demo: 4 trainer workers in 2 pods -> 2 engines of 2 workers, TCP on loopback")
    d, checkpoint, config = prepare(build, folder)
    count, size = ((len(config.tensors), config.nbytes) if d.is_generic
                   else models.tensor_count(config))
    say(f"  checkpoint  {size / 1e9:.2f} GB, {count} tensors"
        + ("" if d.is_generic else f", {config.layers} layers; trainer TP2 PP2, engines TP2"))
    try:
        d.start()
        phases(d)
        explain(d)
        status = d.status()["status"]
        moved = status["plan"]["modelBytes"] * 2  # each engine's pod needs the model once
        rate = loopback_rate()
        bound = moved / rate
        say(f"\n  bound: {moved / 1e9:.2f} GB have to cross; two plain TCP connections here move "
            f"{rate / 1e9:.2f} GB/s, so {bound * 1e3:.0f} ms\n")
        say("version  transfer  EWTT (ms)  stall(ms)    GB/s  EWTT/bound       verified")
        for v in range(1, KILLED):
            r = d.transfer(v, (0, 1))
            row(v, r, moved, bound, d.verify(0, v) + d.verify(1, v))
        kill_and_return(d, bound, moved)
        r = d.transfer(KILLED + 1, (0, 1))
        say("\nversion  transfer  EWTT (ms)  stall(ms)    GB/s  EWTT/bound       verified")
        row(KILLED + 1, r, moved, bound, d.verify(0, KILLED + 1) + d.verify(1, KILLED + 1))
        say(f"  outcome: {outcome(r['engines'])}")
        status = d.status()["status"]
        say(f"  status: version {status.get('version')}, transfer {status.get('transfer')}, "
            f"{status.get('updatedEngines')} of {status.get('engineCount')} engines up to date")
    finally:
        d.kill() if sys.exc_info()[0] else d.stop()
    say(f"\n  {time.monotonic() - t0:.0f} s in all")


def leave(folder):
    """Logs stay when there are any."""
    if os.listdir(folder):
        say(f"  logs are in {folder}")
    else:
        os.rmdir(folder)


def main():
    build = os.path.abspath(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="wb-demo-")
    try:
        run(build, folder)
    except (Failed, models.ModelError) as e:
        say(f"demo: FAILED: {e}")
        leave(folder)
        sys.exit(1)
    except KeyboardInterrupt:
        say("demo: interrupted")
        leave(folder)
        sys.exit(130)
    if not os.environ.get("WB_DEMO_KEEP"):
        shutil.rmtree(folder)
    say("demo: OK")


if __name__ == "__main__":
    main()
