#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh   clang with the compiler's warnings (WARN, of the Makefile), and clang-tidy, over the product's C files, two at
# a time: what gcc takes and clang refuses would be found by the fuzzers' build only.  What passed is remembered in the
# user's cache folder by the hash of the preprocessed file, the rules and the tool, so that a second run, in a fresh
# clone too, looks only at what changed; what nobody needed for 30 days is forgotten.
set -u
cd "$(dirname "$0")/../.." || exit 1
export CPPFLAGS=${CPPFLAGS:--I. -Iagent -Iagent/include -D_GNU_SOURCE} DEP_CFLAGS=${DEP_CFLAGS:-}
export WARN=${WARN:--Wall -Wextra}
export seen=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge/lint rules
mkdir -p "$seen"
find "$seen" -type f -mtime +30 -delete
rules=$({ clang-tidy --version; cat .clang-tidy; echo "$WARN"; } | sha256sum)
git ls-files 'agent/*.c' 'operator-shim/*.c' 'planner/*.c' 'kernels/*.c' | xargs -r -P2 -n4 bash -c '
	bad=0
	for f; do
		[ -f "$f" ] || continue
		# shellcheck disable=SC2086
		sum=$({ echo "$rules"; clang -E -P $CPPFLAGS $DEP_CFLAGS -std=c11 "$f" 2>&1; } | sha256sum | cut -c1-32)
		[ -e "$seen/$sum" ] && { touch "$seen/$sum"; continue; }
		# shellcheck disable=SC2086
		out=$(clang -fsyntax-only -Werror $WARN -Wno-macro-redefined $CPPFLAGS $DEP_CFLAGS -std=c11 "$f" 2>&1) || { echo "$out"; bad=1; continue; }
		# shellcheck disable=SC2086
		if out=$(clang-tidy --quiet "$f" -- $CPPFLAGS $DEP_CFLAGS -std=c11 2>/dev/null); then : >"$seen/$sum"; else echo "$out"; bad=1; fi
	done
	exit $bad' x
