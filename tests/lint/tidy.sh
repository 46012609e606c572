#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh   clang-tidy over all C files, two at a time.  What passed is remembered under build/lint
# by the hash of the preprocessed file, so that a second run looks only at what changed.
set -u
cd "$(dirname "$0")/../.." || exit 1
export CPPFLAGS=${CPPFLAGS:--I. -Iagent -Iagent/include -D_GNU_SOURCE} DEP_CFLAGS=${DEP_CFLAGS:-}
mkdir -p build/lint
export rules
rules=$(sha256sum <.clang-tidy)
git ls-files 'agent/*.c' 'operator-shim/*.c' 'planner/*.c' 'kernels/*.c' | xargs -r -P2 -n4 bash -c '
	bad=0
	for f; do
		[ -f "$f" ] || continue
		# shellcheck disable=SC2086
		sum=$({ echo "$rules"; clang -E -P $CPPFLAGS $DEP_CFLAGS -std=c11 "$f" 2>&1; } | sha256sum | cut -c1-32)
		[ -e "build/lint/$sum" ] && continue
		# shellcheck disable=SC2086
		if out=$(clang-tidy --quiet "$f" -- $CPPFLAGS $DEP_CFLAGS -std=c11 2>/dev/null); then : >"build/lint/$sum"; else echo "$out"; bad=1; fi
	done
	exit $bad' x
