#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR   The kernels on a GPU: the unit test's claims, then under compute-sanitizer where it is installed
# (memcheck: accesses; racecheck: shared memory).  Without a device it says in one line why it skips.
# The last line is "N passed, N failed, N skipped".
set -u
out=$1 test=$1/tests/test_kernels_gpu
# A context of CUDA does not outlive a fork.
export WB_GPU=device CK_FORK=no CK_VERBOSITY=${CK_VERBOSITY:-minimal}
mkdir -p "$out/log"
pass=0 fail=0 skip=0
one() { # NAME COMMAND...
	local name=$1 rc
	shift
	"$@" >"$out/log/$name.log" 2>&1
	rc=$?
	case $rc in
	0) pass=$((pass + 1)); echo "ok   $name: $(grep -m1 '^seed ' "$out/log/$name.log")" ;;
	77) skip=$((skip + 1)); echo "SKIP $name: $(tail -1 "$out/log/$name.log")" ;;
	*) fail=$((fail + 1)); echo "FAIL $name (exit $rc)"; tail -40 "$out/log/$name.log" ;;
	esac
	return $rc
}
if one gpu "$test"; then
	one answers "$(dirname "$0")/answers.sh" "$out" driver
	if command -v compute-sanitizer >/dev/null; then
		for tool in memcheck racecheck; do
			# One in ten of the points: each costs a hundred times as much there.
			WB_SAMPLE=10 one "gpu-$tool" compute-sanitizer --tool "$tool" --error-exitcode 3 "$test"
		done
	else
		skip=$((skip + 1))
		echo "SKIP gpu-memcheck, gpu-racecheck: compute-sanitizer is not installed"
	fi
fi
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] || exit 1
[ -z "${STRICT:-}" ] || [ $skip -eq 0 ]
