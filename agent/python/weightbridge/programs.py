# SPDX-License-Identifier: Apache-2.0
"""The programs that a wheel from charts/release/wheel.sh brings: each is a command of that name."""
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def find(name):
    """Path of a program that came with this package, or None."""
    path = os.path.join(FOLDER, name)
    return path if os.access(path, os.X_OK) else None


def _become(name):
    path = find(name)
    if path is None:
        sys.exit(f"{name} did not come with this package: run `make` in the source tree, or take a released wheel")
    os.execv(path, [name, *sys.argv[1:]])


def agent():
    _become("weightbridge-agent")


def operator():
    _become("weightbridge-operator")


def wbctl():
    _become("wbctl")
