# SPDX-License-Identifier: Apache-2.0
"""Soft-RoCE keeps the rules that the verbs transport relies on: rc_semantics says so of it, as of the fake library."""
import os
import subprocess
import sys

from wire import Crossing

with Crossing() as c:
    r = subprocess.run([os.path.join(os.environ["WB_BUILD"], "tools", "rc_semantics"), "rxe_a0", "rxe_b0"], timeout=240,
                       text=True, stdout=subprocess.PIPE)
print(r.stdout)
assert c["vb0"] > 1 << 20, f"what was read did not cross the wire: {c.bytes}"
assert "no memory windows" not in r.stdout, "soft-RoCE had windows of type 2B"
sys.exit(r.returncode)
