#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh DIR FUZZER...   Runs each fuzzer for FUZZ_S seconds (20), as many at a time as there
# are processors, from its corpus and from what earlier runs found under DIR/grow; inputs that crash are
# left in DIR/crash, and small ones printed.  A finding does not stop the others.  RERUN=1 runs what was found once more:
# what then does not fail (memory that ran out, a machine that stood still) is named as "FLAKY fuzz_x" and counted as
# passed; continuous integration counts those (tests/ci/README.md).
set -u
dir=$1
shift
mkdir -p "$dir/crash"
logs=$(mktemp -d)
touch "$logs/began"
trap 'rm -rf "$logs"' EXIT
one() { # FUZZER
	local f=$1 n=${1##*/}
	local corpus=("$dir/grow/$n")
	mkdir -p "${corpus[0]}"
	[ -d "tests/fuzz/corpus/$n" ] && corpus+=("tests/fuzz/corpus/$n")
	if "$f" -max_total_time="${FUZZ_S:-20}" -print_final_stats=0 -verbosity=0 \
		-artifact_prefix="$dir/crash/$n-" "${corpus[@]}" >"$logs/$n" 2>&1; then
		echo "ok   fuzz $n"
		return
	fi
	cat "$logs/$n"
	if [ -n "${RERUN:-}" ] && passes_again "$f" "$dir/crash/$n-"*; then
		echo "FLAKY $n: failed, and what it failed with passed alone: see $dir/crash/$n-*"
		return
	fi
	find "$dir/crash" -name "$n-*" -newer "$logs/began" -size -5k -exec sh -c 'echo "base64 of $1:"; base64 "$1"' - {} \;
	echo "FAIL fuzz $n: see $dir/crash/$n-*; replay: $f FILE"
	touch "$logs/$n.failed"
}
# With the inputs that were found now; without one there is nothing that could pass.
passes_again() { # FUZZER FILE...
	local f=$1 k some=
	shift
	for k; do
		[ "$k" -nt "$logs/began" ] || continue
		some=1
		"$f" -verbosity=0 "$k" >/dev/null 2>&1 || return 1
	done
	[ -n "$some" ]
}
for f; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
	one "$f" &
done
wait
fail=$(find "$logs" -name '*.failed' | wc -l)
echo "$(($# - fail)) passed, $fail failed, 0 skipped"
[ "$fail" -eq 0 ]
