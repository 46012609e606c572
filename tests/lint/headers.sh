#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh   Every function of a header has a contract (source.py says what counts as one).  Every
# header compiles alone as C11; the public ones also as C++, and with nothing of ours on the include path.  CC, CPPFLAGS and DEP_CFLAGS come from make.
set -u
cd "$(dirname "$0")/../.." || exit 1
python3 -B tests/lint/measure.py --contracts || exit 1
cc=${CC:-gcc}
export cc CPPFLAGS=${CPPFLAGS:--I. -Iagent -Iagent/include -D_GNU_SOURCE} DEP_CFLAGS=${DEP_CFLAGS:-}
git ls-files 'agent/*.h' 'planner/*.h' 'kernels/*.h' 'operator-shim/*.h' | grep -vE '_body\.h$' | xargs -r -P2 -n8 bash -c '
	bad=0
	for h; do
		# shellcheck disable=SC2086
		echo "#include \"$h\"" | $cc -std=c11 -Wall -Wextra -Werror $CPPFLAGS $DEP_CFLAGS -x c -fsyntax-only - || { echo "$h does not compile alone"; bad=1; }
	done
	exit $bad' x || exit 1
for h in agent/include/weightbridge/*.h; do
	for lang in c c++; do
		echo "#include \"weightbridge/${h##*/}\"" | $cc -Wall -Wextra -Werror -Iagent/include -x $lang -fsyntax-only - || {
			echo "$h: public header does not compile as $lang"
			exit 1
		}
	done
done
