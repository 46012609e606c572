# SPDX-License-Identifier: Apache-2.0
"""The fake libibverbs keeps the rules that the verbs transport relies on: the program that says so
of devices (tests/roce) says it of the fake."""
import os
import subprocess

build = os.environ["WB_BUILD"]
env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "fake"))
for windows in ({}, {"FAKEVERBS_WINDOWS": "1"}):
    r = subprocess.run([os.path.join(build, "tools", "rc_semantics")], env={**env, **windows}, timeout=120, text=True,
                       stdout=subprocess.PIPE)
    print(r.stdout)
    assert r.returncode == 0
    assert ("no memory windows" in r.stdout) != bool(windows)
