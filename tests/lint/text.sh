#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# text.sh [ROOT]   Rules about text: licence line, length, machine paths, a README in each module.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
bad=0
say() { echo "$1"; bad=1; }
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then all=$(git ls-files); else all=$(find . -type f | sed 's|^\./||'); fi
files=$(while read -r f; do [ -f "$f" ] && echo "$f"; done <<<"$all" | grep -vE '^(LICENSE$|tests/golden/|tests/fuzz/corpus/)')
code=$(grep -E '\.(c|h|cu|py|sh)$' <<<"$files")
lawful=$(grep -E '\.(c|h|cu|py|sh|yaml|yml|map|1|3|8)$|(^|/)Makefile$|^\.clang-tidy$|^\.ci/run$|^tests/e2e/test_' <<<"$files")
while read -r f; do
	[ -z "$f" ] || say "$f: no line SPDX-License-Identifier: Apache-2.0 at its top"
done < <(xargs -r awk 'FNR == 1 { if (name != "" && !ok) print name; name = FILENAME; ok = 0 }
	FNR <= 5 && /SPDX-License-Identifier: Apache-2.0/ { ok = 1 }
	END { if (name != "" && !ok) print name }' <<<"$lawful")
while read -r n f; do
	case $f in tests/*) max=1000 ;; *) max=800 ;; esac
	[ "$f" = total ] || [ -z "$f" ] || [ "$n" -le $max ] || say "$f: $n lines, more than $max: split it"
done < <(xargs -r wc -l <<<"$code")
hits=$(grep -vE '^tests/lint/(text|selftest)\.sh$' <<<"$files" | xargs -r grep -nIE '(^|[^[:alnum:]_.])(/work/|/home/[a-z]|/Users/)')
[ -z "$hits" ] || say "paths of one machine:
$hits"
while read -r d; do
	[ -z "$d" ] || [ -f "$d/README.md" ] || say "$d: a module needs a README.md of one paragraph"
done < <(grep -E '^(agent|planner|kernels|operator-shim).*\.c$' <<<"$files" | sed 's|/[^/]*$||' | sort -u)
exit $bad
