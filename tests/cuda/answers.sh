#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# answers.sh OUTDIR stand-in|driver   Does it answer as answers.txt says?  Exit 0, 1 with the lines that differ
# (- expected, + answered), 77 no driver.  All that it answered is in OUTDIR/log/answers-WHICH.txt.
# Of answers.txt, "#stand-in SITUATION: QUESTION: ANSWER" is what the stand-in says where it cannot be as a driver, and
# "#open SITUATION: QUESTION: ANSWER" what it says where no driver was asked: what a driver answers there is printed
# behind a ?, and expected from the next one once the line is written without #open.
set -u
out=$1 which=$2 here=$(dirname "$0")
said=$out/log/answers-$which.txt want=$out/log/answers-want-$which.txt closed=$out/log/answers-closed-$which.txt
mkdir -p "$out/log"
[ "$which" = driver ] || export LD_LIBRARY_PATH=$out/fakecuda
timeout -k 5 50 "$out/tools/answers" >"$said"
rc=$?
if [ $rc -eq 77 ]; then
	cat "$said"
	exit 77
fi
key='function key(line) { split(line, part, ": "); return part[1] ": " part[2] }'
awk -v which="$which" "$key"'
	which == "stand-in" && FNR == NR && /^#stand-in / { sub(/^#stand-in /, ""); other[key($0)] = $0 }
	FNR == NR { next }
	which == "stand-in" { sub(/^#open /, "") }
	/^#/ { next }
	{ k = key($0); print k in other ? other[k] : $0 }' "$here/answers.txt" "$here/answers.txt" >"$want"
echo "$(wc -l <"$said") answers, $(wc -l <"$want") expected"
awk -v which="$which" -v closed="$closed" "$key"'
	BEGIN { printf "" >closed }
	FNR == NR { if (which == "driver" && sub(/^#open /, "")) open[key($0)]; next }
	key($0) in open { print "? " $0; next }
	{ print >closed }' "$here/answers.txt" "$said"
diff -U0 "$want" "$closed" | grep -v '^\(---\|+++\|@@\)' >"$out/log/answers-diff-$which.txt"
cat "$out/log/answers-diff-$which.txt"
[ $rc -eq 0 ] && [ ! -s "$out/log/answers-diff-$which.txt" ]
