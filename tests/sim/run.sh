#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR   SEEDS=10000 seeds from FIRST=1 on, in JOBS processes, of one MODE or all (-1).
# The last line is "N passed, N failed, N skipped".
set -u
out=$1 seeds=${SEEDS:-10000} first=${FIRST:-1} mode=${MODE:--1} jobs=${JOBS:-$(nproc)}
[ "$jobs" -le "$seeds" ] || jobs=$seeds
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
t0=$SECONDS
for ((j = 0; j < jobs; j++)); do
	a=$((first + seeds * j / jobs)) b=$((first + seeds * (j + 1) / jobs))
	"$out/tests/test_chaos" $a $((b - a)) "$mode" >"$dir/$j" 2>&1 || echo "exit $?" >>"$dir/$j" &
done
wait
grep -hv -e ' passed, ' -e '^exit 1$' "$dir"/*
pass=0 fail=0
for ((j = 0; j < jobs; j++)); do
	if [[ $(grep ' passed, ' "$dir/$j") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		pass=$((pass + BASH_REMATCH[1])) fail=$((fail + BASH_REMATCH[2]))
	else
		fail=$((fail + 1)) # it died
	fi
done
awk -v n="$seeds" -v t=$((SECONDS - t0)) 'BEGIN { printf "%d seeds in %.1f min\n", n, t / 60 }'
echo "$pass passed, $fail failed, 0 skipped"
[ $fail -eq 0 ]
