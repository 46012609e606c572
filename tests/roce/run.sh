#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR [NAME...]   Run tests/roce/test_* (or those named) in one virtual machine with soft-RoCE devices, one
# after the other.  Their logs land in OUTDIR/roce/log.  Last line "N passed, N failed, N skipped"; where there can be
# no such machine all count as one skip, with its reason (STRICT=1: a failure).
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.." || exit 1
out=$(cd "$1" && pwd)
shift
reason=$("$here/vm.sh" --ready 2>&1) || {
	echo "SKIP check-roce: $(tail -1 <<<"$reason")"
	echo "0 passed, 0 failed, 1 skipped"
	[ -z "${STRICT:-}" ]
	exit
}
python=$(tests/common/venv.sh 2>/dev/null) # here: the guest has no way to the registries
# shellcheck disable=SC2016  # for the guest
OUT=$out/roce VM_LIMIT=${VM_LIMIT:-1200} "$here/vm.sh" env PYTHON="${python:-python3}" JOBS=1 T_LIMIT="${T_LIMIT:-300}" bash -c '
	TESTS=$(echo tests/roce/test_*) tests/run.sh "$@"
	code=$?
	rm -rf "$OUT/log"
	cp -r "$1/log" "$OUT/log"
	exit $code' run "$out" "$@"
code=$?
[ $code -lt 124 ] || { echo "FAIL check-roce: the machine ended with $code"; echo "0 passed, 1 failed, 0 skipped"; }
exit $code
