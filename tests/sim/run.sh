#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR   SEEDS=10000 seeds in JOBS processes, of one MODE or all (-1), with hooks of up to
# HOOK_MS (0: as each seed has it), with WIDE=1 of the wider deployments (README.md).  The first is FIRST; without that another one every time, from
# the clock, which is printed.  Up to ALLOW=0 failing seeds are named and counted as skipped: how many are
# known to fail of so many.  The last line is "N passed, N failed, N skipped".
set -u
out=$1 seeds=${SEEDS:-10000} first=${FIRST:-$(($(date +%s) * 1000))} mode=${MODE:--1}
hook=${HOOK_MS:-0} wide=${WIDE:-0} jobs=${JOBS:-$(nproc)}
[ "$jobs" -le "$seeds" ] || jobs=$seeds
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
t0=$SECONDS
echo "$seeds seeds from $first on: FIRST=$first SEEDS=$seeds MODE=$mode HOOK_MS=$hook WIDE=$wide make check-sim"
for ((j = 0; j < jobs; j++)); do
	a=$((first + seeds * j / jobs)) b=$((first + seeds * (j + 1) / jobs))
	"$out/tests/test_transfer_chaos" $a $((b - a)) "$mode" "$hook" "$wide" >"$dir/$j" 2>&1 || echo "exit $?" >>"$dir/$j" &
done
wait
grep -hv -e ' passed, ' -e '^exit 1$' -e '^wide: ' "$dir"/*
# "wide: NAME: in N worlds, M of what it counts", of all jobs together.
grep -h '^wide: ' "$dir"/* | awk -F ': ' '{
	split($3, w, "[ ,]+")
	if (!($2 in worlds)) order[n++] = $2
	worlds[$2] += w[2]; fired[$2] += w[4]
	unit[$2] = $3; sub(/^in [0-9]+ worlds, [0-9]+ /, "", unit[$2])
}
END { for (i = 0; i < n; i++) printf "wide: %s: in %d worlds, %d %s\n", order[i], worlds[order[i]], fired[order[i]], unit[order[i]] }'
grep -ho '^FAIL seed [0-9]*' "$dir"/* | while read -r _ _ seed; do
	echo "replay: $out/tests/test_transfer_chaos seed $seed $mode $hook $wide"
done
pass=0 fail=0
for ((j = 0; j < jobs; j++)); do
	if [[ $(grep ' passed, ' "$dir/$j") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		pass=$((pass + BASH_REMATCH[1])) fail=$((fail + BASH_REMATCH[2]))
	else
		fail=$((fail + 1)) # it died
	fi
done
awk -v n="$seeds" -v t=$((SECONDS - t0)) 'BEGIN { printf "%d seeds in %.1f min\n", n, t / 60 }'
skip=0
if [ $fail -gt 0 ] && [ $fail -le "${ALLOW:-0}" ]; then
	echo "$fail of $seeds seeds failed: not more than ALLOW=$ALLOW, so none of them fails this run"
	skip=$fail fail=0
fi
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ]
