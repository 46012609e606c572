#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR [NAME...]   Run the tests: C binaries in OUTDIR/tests, Python files tests/py/test_*.py,
# scripts tests/e2e/test_*, or instead those that match TESTS.  Exit 0 pass, 77 skip (last line = reason), else fail.
# JOBS=N runs N of them at a time (six more than there are processors: most wait most of the time), those first that
# took longest here.  STRICT=1 turns a skip into a failure.  RERUN=1 runs what failed once more, alone: what passes
# then is named as "FLAKY name" and counted as passed; continuous integration counts those (tests/ci/README.md).
# The last line is "N passed, N failed, N skipped".
set -u
out=$(cd "$1" && pwd)
only=${*:2}
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
exec 3>&1
export WB_BUILD=$out WB_TOP=$top PYTHONDONTWRITEBYTECODE=1
export CK_VERBOSITY=${CK_VERBOSITY:-normal} CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-180}
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
export CK_TAP_LOG_FILE_NAME
# Sanitizers cost a factor of ten: claims made at many points are made at every eighth, those of some tables at every
# fourth row (tests/common/fx_check.h), others in each run, and limits are later.  They look for leaks, and forget what they know, once a process: all cases of a program share one.
case $out in */asan | */tsan)
	export CK_FORK=no CK_TIMEOUT_MULTIPLIER=5 WB_SAMPLE=${WB_SAMPLE:-8} T_LIMIT=${T_LIMIT:-900}
	export WB_SAMPLE_AT=${WB_SAMPLE_AT:-$((RANDOM % WB_SAMPLE))}
	echo "of claims made at many points every ${WB_SAMPLE}th, from WB_SAMPLE_AT=$WB_SAMPLE_AT on" ;;
esac
mkdir -p "$out/log" "$out/tmp"
export TMPDIR=$out/tmp
python=${PYTHON:-} # one that is known to have NumPy; else it is looked for
# Python itself is not instrumented: the sanitizer of the library it loads has to come first.
preload=
case $out in */asan) preload=libasan.so ;; */tsan) preload=libtsan.so ;; esac
# shellcheck disable=SC2086 # the compiler may be two words
[ -z "$preload" ] || preload=$(${CC:-gcc} -print-file-name="$preload")
python_one() { one "$1" env ${preload:+LD_PRELOAD="$preload"} ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}" "$python" "$2"; }
need_python() { [ -n "$python" ] || python=$(tests/common/venv.sh 2>"$out/log/venv.log") || python=; [ -n "$python" ]; }
tally=$(mktemp "$out/tmp/tally-XXXXXX")
trap 'rm -f "$tally"' EXIT
# Seconds that a test may take: more where the machine has more to do than these tests.
limit() {
	awk -v s="${T_LIMIT:-300}" -v n="$(nproc)" '{ more = $1 / (4 * n); printf "%d\n", s * (more > 1 ? more : 1) }' /proc/loadavg
}
# The end of a log, moved in: what looks like a result there is none of ours.
last() { tail -"$1" "$2" | sed 's/^/    /'; }
one() { # NAME COMMAND...   The result is printed in one piece: several may end at once.
	local name=$1 rc t0 t1 file=$t most
	shift
	most=$(limit)
	CK_TAP_LOG_FILE_NAME=$out/log/$name.tap
	t0=$(date +%s%N)
	{
		TIMEFORMAT='%U %S' # of processors
		time timeout -k 5 "$most" "$@" >"$out/log/$name.log" 2>&1 </dev/null 3>&-
		rc=$?
	} 2>"$out/log/$name.cpu"
	t1=$(date +%s%N)
	echo $(((t1 - t0) / 1000000)) >"$out/log/$name.ms"
	echo "took $(((t1 - t0) / 1000000)) $(tail -1 "$out/log/$name.cpu")" >>"$tally"
	case $rc in
	0) echo "pass $file"; printf >&3 'ok   %-28s %6d ms\n' "$name" $(((t1 - t0) / 1000000)) ;;
	77) echo "skip $file"; echo >&3 "SKIP $name: $(tail -1 "$out/log/$name.log")" ;;
	124) echo "fail $file"; printf >&3 '%s\n' "FAIL $name: still running after $most s
$(last 40 "$out/log/$name.log")" ;;
	*) echo "fail $file"; printf >&3 '%s\n' "FAIL $name (exit $rc)
$(last 60 "$out/log/$name.log")" ;;
	esac >>"$tally"
}
case $out in */asan | */tsan) more=1 ;; *) more=6 ;; esac # those wait less
jobs=${JOBS:-$(($(nproc) + more))}
# Those that take longest, for who runs them here the first time: one that began last would be waited for alone.
long="test_serve_away test_transfer_joint test_attacks test_releases test_charts test_chart_values test_deploy_maps
test_event_floods test_away test_torn test_transfer_chaos test_gpu test_membership test_tenants test_transfer_prompt
test_kill test_demo test_simulate test_bench test_bench_agents test_transfer_crowd test_attacks_held test_ci"
list() { # TESTS or all, with what each took here last, longest first; who never ran goes before them, the long ones first
	local t n ms
	for t in ${TESTS:-tests/e2e/test_* tests/py/test_*.py "$out"/tests/test_*}; do
		n=${t##*/} n=${n%.*}
		case $t in *.d) continue ;; esac
		[ -f "$t" ] && { [ -z "$only" ] || [[ " $only " == *" $n "* ]]; } || continue
		ms=999999
		[[ " ${long//$'\n'/ } " != *" $n "* ]] || ms=9999999
		echo "$(cat "$out/log/$n.ms" 2>/dev/null || echo $ms) $t"
	done | sort -s -n -r | cut -d' ' -f2
}
start() { # FILE
	local t=$1 n
	n=${t##*/} n=${n%.*}
	case $t in
	*.py)
		if need_python; then python_one "$n" "$t" & else
			echo "skip $t" >>"$tally"
			echo "SKIP $n: no Python with NumPy ($(tail -1 "$out/log/venv.log"))"
		fi ;;
	*) one "$n" "$t" & ;;
	esac
}
again() { # What failed, once more, one at a time
	local file name
	grep '^fail ' "$tally" >"$tally.first"
	while read -r _ file; do
		name=${file##*/} name=${name%.*}
		echo "--- $name failed: once more, alone"
		cp "$out/log/$name.log" "$out/log/$name.first.log"
		grep -vxF "fail $file" "$tally" >"$tally.rest"
		mv "$tally.rest" "$tally"
		start "$file"
		wait
		! grep -qxF "pass $file" "$tally" || echo "FLAKY $name: failed beside others, passed alone ($out/log/$name.first.log)"
	done <"$tally.first"
	rm -f "$tally.first"
}
while read -r t; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
	start "$t"
done < <(list)
wait
[ -z "${RERUN:-}" ] || again
count() { grep -c "^$1 " "$tally"; }
pass=$(count pass) fail=$(count fail) skip=$(count skip)
awk -v jobs="$jobs" -v s=$SECONDS '$1 == "took" { n++; wall += $2 / 1000; cpu += $3 + $4 }
END { if (n > 1) printf "%d tests, %d at a time: %.0f s, of tests %.0f s, of processors %.0f s\n", n, jobs, s, wall, cpu }' "$tally"
echo "$pass passed, $fail failed, $skip skipped"
[ "$fail" -eq 0 ] || exit 1
[ $((pass + fail + skip)) -gt 0 ] || exit 1
[ -z "${STRICT:-}" ] || [ "$skip" -eq 0 ] || { echo "STRICT: a skip is a failure"; exit 1; }
