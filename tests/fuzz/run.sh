#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh DIR FUZZER...   Runs each fuzzer for FUZZ_S seconds (20), from its corpus and
# from what earlier runs found under DIR/grow; inputs that crash are left in DIR/crash.  A finding
# does not stop the others.
set -u
dir=$1 pass=0 fail=0
shift
mkdir -p "$dir/crash"
for f; do
	n=${f##*/}
	corpus=("$dir/grow/$n")
	mkdir -p "${corpus[0]}"
	[ -d "tests/fuzz/corpus/$n" ] && corpus+=("tests/fuzz/corpus/$n")
	echo "fuzz $n"
	if "$f" -max_total_time="${FUZZ_S:-20}" -print_final_stats=0 -verbosity=0 \
		-artifact_prefix="$dir/crash/$n-" "${corpus[@]}"; then
		pass=$((pass + 1))
	else
		fail=$((fail + 1))
		echo "fuzz $n: FOUND, see $dir/crash/$n-*; replay: $f FILE"
	fi
done
echo "$pass passed, $fail failed, 0 skipped"
[ $fail -eq 0 ]
