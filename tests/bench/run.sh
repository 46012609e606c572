#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR   All benchmarks: one JSON object a line on stdout.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
for b in "$out"/bench/*; do
	case $b in *.d) continue ;; esac
	[ -x "$b" ] && "$b"
done
python=$(tests/common/venv.sh) || { echo '{"name": "e2e", "figure": null, "skipped": "no Python with NumPy"}'; exit 0; }
"$python" tests/bench/poll.py --out "$out"
"$python" tests/bench/extract.py --out "$out"
"$python" tests/bench/control.py --out "$out"
"$python" tests/bench/attacks.py --out "$out"
"$python" tests/bench/rails.py --out "$out"
"$python" tests/bench/predicted.py --out "$out"
exec "$python" tests/bench/e2e.py --out "$out"
