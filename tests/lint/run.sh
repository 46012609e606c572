#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [CHECK...]   All checks, or those named.  Prints one line a check; tools that are missing
# are named and their checks skipped (STRICT=1: failed).
set -u
cd "$(dirname "$0")/../.." || exit 1
here=tests/lint
fail=0 pass=0 skip=0
check() { # NAME TOOL COMMAND...
	local name=$1 tool=$2 t0 out
	shift 2
	[ -z "$only" ] || [[ " $only " == *" $name "* ]] || return
	if [ "$tool" != - ] && ! command -v "$tool" >/dev/null 2>&1; then
		echo "SKIP $name: $tool is not installed"
		skip=$((skip + 1))
		return
	fi
	t0=$(date +%s%N)
	if out=$("$@" 2>&1); then
		pass=$((pass + 1))
		printf 'ok   %-10s %6d ms\n' "$name" $((($(date +%s%N) - t0) / 1000000))
	else
		fail=$((fail + 1))
		echo "FAIL $name"
		echo "$out" | head -100
	fi
}
format() { git ls-files '*.c' '*.h' | while read -r f; do [ -f "$f" ] && echo "$f"; done | xargs -r -P2 -n16 clang-format --dry-run -Werror; }
cpp() {
	cppcheck --quiet -j2 --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability,performance \
		--suppressions-list=$here/cppcheck.supp -I. -Iagent -Iagent/include agent planner kernels operator-shim
}
pages() {
	local bad=0 f out
	while read -r f; do
		out=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$f" 2>&1 >/dev/null)
		[ -z "$out" ] || { echo "$f: $out"; bad=1; }
	done < <(git ls-files '*.1' '*.3' '*.8')
	return $bad
}
scripts() { git ls-files '*.sh' '.ci/run' | xargs -r shellcheck -S warning; }
python_files() { git ls-files '*.py' | xargs -r python3 -c 'import ast, sys
for f in sys.argv[1:]:
    ast.parse(open(f).read(), f)'; }
only="$*"
check selftest - $here/selftest.sh
check layering - $here/layering.sh
check text - $here/text.sh
check format clang-format format
check headers - $here/headers.sh
check pages man pages
check scripts shellcheck scripts
check python python3 python_files
check mutants python3 tests/mutants/run.py --check
check cppcheck cppcheck cpp
check tidy clang-tidy $here/tidy.sh
echo "lint: $pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] || exit 1
[ -z "${STRICT:-}" ] || [ $skip -eq 0 ]
