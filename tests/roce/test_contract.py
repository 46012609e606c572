# SPDX-License-Identifier: Apache-2.0
"""The contract of every transport, kept by verbs on devices: the cases of tests/unit, with two rails, over the wire."""
import os
import subprocess
import sys

from wire import Crossing

bad = 0
env = dict(os.environ, FX_DEVICES="rxe_a0,rxe_a1 rxe_b0,rxe_b1", CK_DEFAULT_TIMEOUT="180", CK_VERBOSITY="normal")
for name, least in (("test_xport", 20 << 20), ("test_xport_ends", 100 << 20)):
    with Crossing() as c:
        r = subprocess.run([os.path.join(os.environ["WB_BUILD"], "tests", name)], env=env)
    bad += r.returncode != 0
    print(name, "sent", c.bytes, flush=True)
    assert c["va0"] > least and c["va1"] > 0, f"what {name} moved did not cross both wires"
sys.exit(bad)
