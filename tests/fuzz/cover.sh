#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/cover.sh DIR GROWN FUZZER...   What the corpora (those in the tree and those grown by
# earlier runs under GROWN) reach of the parsers of tests/fuzz/parsers: lines, and the functions
# that no target reached.  DIR is a build with VARIANT=fuzzcov.  Fails below 90 % of a parser.
set -u
dir=$1 grown=$2
shift 2
rm -rf "$dir/prof" && mkdir -p "$dir/prof"
objects=()
for f; do
	n=${f##*/}
	objects+=(-object "$f")
	corpus=()
	for d in "tests/fuzz/corpus/$n" "$grown/$n"; do [ -d "$d" ] && corpus+=("$d"); done
	LLVM_PROFILE_FILE="$dir/prof/$n.raw" "$f" -runs=0 -verbosity=0 "${corpus[@]}" >/dev/null 2>&1 || echo "$n failed"
done
llvm-profdata merge -o "$dir/prof/all" "$dir"/prof/*.raw || exit 1
llvm-cov export -format=lcov -instr-profile="$dir/prof/all" "${objects[@]}" >"$dir/prof/lcov" 2>/dev/null || exit 1
awk -v top="$PWD/" '
FNR == NR { if ($0 !~ /^#/ && NF) { for (i = 2; i <= NF; i++) out[$1, $i] = 1; want[$1] = ++n; file[n] = $1 } next }
/^SF:/ { f = substr($0, 4); sub(top, "", f); on = f in want; split("", start); split("", name); k = 0; next }
!on { next }
/^FN:/ { split(substr($0, 4), a, ","); fn = a[2]; sub(/.*:/, "", fn); start[fn] = a[1]; next }
/^FNDA:/ { split(substr($0, 6), a, ","); fn = a[2]; sub(/.*:/, "", fn); hit[f, fn] += a[1]; next }
/^DA:/ { split(substr($0, 4), a, ","); line[++k] = a[1]; count[k] = a[2]; next }
/^end_of_record/ {
	for (i = 1; i <= k; i++) {
		best = 0
		for (fn in start) if (start[fn] <= line[i] && start[fn] > best) { best = start[fn]; who = fn }
		if ((f, who) in out) continue
		all[f]++; if (count[i] > 0) got[f]++; else miss[f] = miss[f] " " line[i]
	}
	for (fn in start) if (!hit[f, fn] && !((f, fn) in out)) never[f] = never[f] " " fn
}
END {
	for (i = 1; i <= n; i++) {
		f = file[i]; p = all[f] ? 100 * got[f] / all[f] : 0
		printf "%5.1f%% of %4d lines  %s%s\n", p, all[f], f, never[f] ? "   never:" never[f] : ""
		if (ENVIRON["LINES_TOO"]) print "         lines:" miss[f]
		if (p < 90) bad = 1
	}
	exit bad
}' tests/fuzz/parsers "$dir/prof/lcov"
