#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh DIR FUZZER...   Runs each fuzzer for FUZZ_S seconds (20), as many at a time as there
# are processors, from its corpus and from what earlier runs found under DIR/grow; inputs that crash are
# left in DIR/crash.  A finding does not stop the others.
set -u
dir=$1
shift
mkdir -p "$dir/crash"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
one() { # FUZZER
	local f=$1 n=${1##*/}
	local corpus=("$dir/grow/$n")
	mkdir -p "${corpus[0]}"
	[ -d "tests/fuzz/corpus/$n" ] && corpus+=("tests/fuzz/corpus/$n")
	if "$f" -max_total_time="${FUZZ_S:-20}" -print_final_stats=0 -verbosity=0 \
		-artifact_prefix="$dir/crash/$n-" "${corpus[@]}" >"$logs/$n" 2>&1; then
		echo "ok   fuzz $n"
	else
		cat "$logs/$n"
		echo "FAIL fuzz $n: see $dir/crash/$n-*; replay: $f FILE"
		touch "$logs/$n.failed"
	fi
}
for f; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
	one "$f" &
done
wait
fail=$(find "$logs" -name '*.failed' | wc -l)
echo "$(($# - fail)) passed, $fail failed, 0 skipped"
[ "$fail" -eq 0 ]
