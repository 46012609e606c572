#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR   make demo: weights move from a trainer to two engines on this machine.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
python=$(tests/common/venv.sh) || { echo "demo: needs Python 3 with NumPy"; exit 1; }
exec "$python" tests/demo/demo.py "$out"
