# SPDX-License-Identifier: Apache-2.0
"""What a trainer that drives vLLM tells it after a transfer that failed, with vLLM's own classes, and an engine and a
transfer that are played: one call after the other, as CASES says."""
import threading

from weightbridge.adapters import vllm_trainer
from weightbridge.errors import OutcomeUnknown, TransferAborted, WeightBridgeError

TIMEOUT = 20.0
UNKNOWN = OutcomeUnknown("the agent is gone", -1)
ABORTED = TransferAborted("different versions", -1)


class Engine:
    """A client, and what vLLM's worker keeps behind it: one update at a time, from start to finish."""

    def __init__(self):
        self.is_active, self.have, self.changed = False, 0, threading.Condition()

    def init_weight_transfer_engine(self, info):
        pass

    def start_weight_update(self):
        assert not self.is_active, "start_weight_update called while a weight update is already active"
        self.is_active, self.have = True, 0

    def update_weights(self, info):
        with self.changed:
            assert self.changed.wait_for(lambda: self.have and self.have >= (info["version"] or 0), TIMEOUT), "no transfer came"

    def finish_weight_update(self, weight_version=None):
        assert self.is_active, "finish_weight_update called while none is active"
        self.is_active = False

    def gets(self, version):
        with self.changed:
            self.have = version
            self.changed.notify_all()


class Sender:
    """A SenderAdapter; `plays`: of each transfer what it raises, or None, and whether the engine has it."""

    def __init__(self, engine, plays):
        self.engine, self.plays, self.watch = engine, list(plays), None

    def connect(self, timeout):
        pass

    def send_weights(self, version, timeout=None):
        self.version, (self.error, arrives) = version, self.plays.pop(0)
        if arrives:
            self.engine.gets(version)
        return self

    def wait(self, timeout):
        if self.error:
            raise self.error
        return self


# name, then of each call: the version, what the transfer raises, whether it arrives, what the call says
CASES = [
    ("an end that is not known", [(1, UNKNOWN, True, OutcomeUnknown), (2, None, True, 2), (3, None, True, 3)]),
    ("nothing was sent", [(1, None, True, 1), (2, ABORTED, False, TransferAborted), (2, None, True, 2)]),
    ("nothing was sent of a version too high", [(1, None, True, 1), (5, ABORTED, False, TransferAborted), (2, None, True, 2)]),
    # of a trainer that was killed in the middle of an update, and started again
    ("an update that was left open", [(5, None, True, 5), (6, None, True, 6)]),
    ("so at first", [(5, ABORTED, False, TransferAborted), (2, None, True, WeightBridgeError), (5, None, True, 5)]),
]

for name, calls in CASES:
    engine = Engine()
    engine.is_active = "left open" in name
    sender = Sender(engine, [c[1:3] for c in calls if c[3] is not WeightBridgeError])
    trainer = vllm_trainer.Trainer.trainer_init(vllm_trainer.TrainerInit(rank=0, sender=sender, timeout=TIMEOUT), client=engine)
    for version, _, _, want in calls:
        try:
            got = trainer.send_weights(version)
        except WeightBridgeError as e:
            got = type(e)
        assert got == want, (name, version, got)
    assert not engine.is_active
    print(f"{name}: as expected", flush=True)
