#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR [NAME]   Run the tests: C binaries in OUTDIR/tests, Python files tests/py/test_*.py,
# scripts tests/e2e/test_*, or instead those that match TESTS.  Exit 0 pass, 77 skip (last line = reason), else fail.
# JOBS=N runs N of the C binaries at a time (1).  STRICT=1 turns a skip into a failure.
# The last line is "N passed, N failed, N skipped".
set -u
out=$(cd "$1" && pwd)
only=${2:-}
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
exec 3>&1
export WB_BUILD=$out WB_TOP=$top PYTHONDONTWRITEBYTECODE=1
export CK_VERBOSITY=${CK_VERBOSITY:-minimal} CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-60}
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
export CK_TAP_LOG_FILE_NAME
case $out in */tsan) export CK_FORK=no CK_TIMEOUT_MULTIPLIER=5 ;; */asan) export CK_TIMEOUT_MULTIPLIER=3 ;; esac
mkdir -p "$out/log" "$out/tmp"
export TMPDIR=$out/tmp
python=
# Python itself is not instrumented: the sanitizer of the library it loads has to come first.
preload=
case $out in */asan) preload=libasan.so ;; */tsan) preload=libtsan.so ;; esac
[ -z "$preload" ] || preload=$("${CC:-gcc}" -print-file-name="$preload")
python_one() { one "$1" env ${preload:+LD_PRELOAD="$preload"} ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}" "$python" "$2"; }
need_python() { [ -n "$python" ] || python=$(tests/common/venv.sh 2>"$out/log/venv.log") || python=; [ -n "$python" ]; }
tally=$(mktemp "$out/tmp/tally-XXXXXX")
trap 'rm -f "$tally"' EXIT
one() { # NAME COMMAND...   The result is printed in one piece: several may end at once.
	local name=$1 rc t0 t1
	shift
	CK_TAP_LOG_FILE_NAME=$out/log/$name.tap
	t0=$(date +%s%N)
	timeout -k 5 "${T_LIMIT:-300}" "$@" >"$out/log/$name.log" 2>&1 </dev/null 3>&-
	rc=$?
	t1=$(date +%s%N)
	case $rc in
	0) echo pass; printf >&3 'ok   %-28s %6d ms\n' "$name" $(((t1 - t0) / 1000000)) ;;
	77) echo skip; echo >&3 "SKIP $name: $(tail -1 "$out/log/$name.log")" ;;
	124) echo fail; printf >&3 '%s\n' "FAIL $name: still running after ${T_LIMIT:-300} s
$(tail -40 "$out/log/$name.log")" ;;
	*) echo fail; printf >&3 '%s\n' "FAIL $name (exit $rc)
$(tail -60 "$out/log/$name.log")" ;;
	esac >>"$tally"
}
for t in ${TESTS:-"$out"/tests/test_* tests/py/test_*.py tests/e2e/test_*}; do
	[ -f "$t" ] || continue
	case $t in *.d) continue ;; esac
	n=${t##*/}
	n=${n%.*}
	[ -z "$only" ] || [ "$only" = "$n" ] || continue
	case $t in
	*.py) # alone: real programs, with deadlines
		wait
		if need_python; then python_one "$n" "$t"; else
			echo skip >>"$tally"
			echo "SKIP $n: no Python with NumPy ($(tail -1 "$out/log/venv.log"))"
		fi ;;
	*)
		while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
		one "$n" "$t" & ;;
	esac
done
wait
pass=$(grep -c pass "$tally") fail=$(grep -c fail "$tally") skip=$(grep -c skip "$tally")
echo "$pass passed, $fail failed, $skip skipped"
[ "$fail" -eq 0 ] || exit 1
[ $((pass + fail + skip)) -gt 0 ] || exit 1
[ -z "${STRICT:-}" ] || [ "$skip" -eq 0 ] || { echo "STRICT: a skip is a failure"; exit 1; }
