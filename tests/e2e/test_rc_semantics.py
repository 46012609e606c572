# SPDX-License-Identifier: Apache-2.0
"""The fake libibverbs keeps the rules that the verbs transport relies on: the program that says so
of devices (tests/roce) says it of the fake."""
import os
import subprocess
import sys

build = os.environ["WB_BUILD"]
env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "fake"))
sys.exit(subprocess.run([os.path.join(build, "tools", "rc_semantics")], env=env, timeout=120).returncode)
