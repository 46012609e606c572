#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR [NAME...]   On a GPU: the kernels, what its driver answers beside answers.txt, the unit tests of
# memory, lanes, clients, the agent's imports and extraction on that driver, then the kernels under compute-sanitizer (memcheck: accesses; racecheck:
# shared memory) where it is installed.  Of these only NAME, if any.
# OUTDIR holds tests/ and tools/; libraries that the machine lacks may lie in lib/ (carry.sh makes such a folder).
# Nothing is built: it also runs where there is no compiler.  Each has a limit.  What a claim needs that a device has not is said in OUTDIR/log and counted.
# Without a device it says in one line why it skips.  The last line is "N passed, N failed, N skipped".
set -u
out=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
shift
only=$*
kernels=$out/tests/test_kernels_gpu
export WB_GPU=device CK_VERBOSITY=${CK_VERBOSITY:-normal} CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-60}
export LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Sockets of tests lie there.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
mkdir -p "$out/log"
pass=0 fail=0 skip=0
said() { # FILE   What a log says in a line.
	local n
	n=$(grep -c '^skip ' "$1")
	grep -m1 -E '^seed .* on ' "$1"
	grep -E '^[0-9]+%: Checks|^[0-9]+ answers|ERROR SUMMARY|RACECHECK SUMMARY' "$1" | tail -1
	grep -E ' parts of the points$|^\? ' "$1"
	[ "$n" -eq 0 ] || echo "$n that need what a device has not"
}
one() { # NAME LIMIT COMMAND...
	local name=$1 limit=$2 log=$out/log/$1.log rc s=$SECONDS
	shift 2
	[ -z "$only" ] || [[ " $only " == *" $name "* ]] || return 0
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	s="$((SECONDS - s)) s"
	case $rc in
	0) pass=$((pass + 1)); echo "ok   $name ($s): $(said "$log" | paste -sd ';' | sed 's/;/; /g')" ;;
	77) skip=$((skip + 1)); echo "SKIP $name: $(tail -1 "$log")" ;;
	124 | 137) fail=$((fail + 1)); echo "FAIL $name: still running after $limit s"; tail -40 "$log" ;;
	*) fail=$((fail + 1)); echo "FAIL $name (exit $rc, $s)"; tail -60 "$log" ;;
	esac
	return $rc
}
# The kernels' points are cut into parts, each with some of every claim: what costs a hundred times as much under a
# sanitizer is run part by part until its time is over.
parts=20
part_by_part() { # TOOL
	local part left rc
	for ((part = 0; part < parts && SECONDS < 35; part++)); do
		left=$((55 - SECONDS))
		CK_FORK=no WB_SAMPLE=$parts WB_SAMPLE_AT=$part timeout -k 5 $left \
			compute-sanitizer --tool "$1" --error-exitcode 3 "$kernels"
		rc=$?
		[ $rc -ne 124 ] || [ $part -eq 0 ] || break
		[ $rc -eq 0 ] || return $rc
	done
	echo "$part of $parts parts of the points"
}
sanitizer() { # TOOL
	one "gpu-$1" 70 bash -c 'SECONDS=0; part_by_part "$1"' bash "$1"
}
export kernels parts
export -f part_by_part
if ! why=$("$out/tools/answers" none 2>&1); then # of no situation: only whether there is a GPU
	echo "SKIP gpu: $why"
	skip=1
else
	# A context of CUDA does not outlive a fork: those of kernels and extraction have one context, the others begin in
	# each claim's process.
	CK_FORK=no one gpu 120 "$kernels"
	one answers 60 "$here/answers.sh" "$out" driver
	for t in cuda_driver mem_gpu lane_gpu lane_area_gpu client_gpu daemon_imports; do
		one $t 120 "$out/tests/test_$t"
	done
	for t in extract extract_bad extract_gpu; do
		CK_FORK=no one $t 120 "$out/tests/test_$t"
	done
	if command -v compute-sanitizer >/dev/null; then
		sanitizer memcheck
		sanitizer racecheck
	elif [ -z "$only" ]; then
		skip=$((skip + 2))
		echo "SKIP gpu-memcheck, gpu-racecheck: compute-sanitizer is not installed"
	fi
fi
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] || exit 1
[ -z "${STRICT:-}" ] || [ $skip -eq 0 ]
