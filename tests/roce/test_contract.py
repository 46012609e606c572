# SPDX-License-Identifier: Apache-2.0
"""The contract of every transport, kept by verbs on devices (contract.py says what is left out, and why)."""
from contract import keeps
from wire import run

run([keeps("test_xport", 20 << 20), keeps("test_xport_ends", 100 << 20), keeps("test_xport_rails", 800_000)])
