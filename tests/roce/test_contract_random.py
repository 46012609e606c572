# SPDX-License-Identifier: Apache-2.0
"""The contract of every transport, kept by verbs on devices: any order of calls."""
from contract import keeps
from wire import run

run([keeps("test_xport_random", 400_000)])
