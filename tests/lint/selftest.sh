#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# selftest.sh   Plant one violation of each rule of ours in a small tree; each must be caught, and
# the tree without them must pass.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bad=0
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
fresh() {
	rm -rf "$tree"
	mkdir -p "$tree"/agent/{base,net,proto,xport/tcp,xport/shm} "$tree"/{planner,kernels,operator-shim/reconcile}
	for d in agent/base agent/net agent/proto agent/xport agent/xport/tcp agent/xport/shm planner kernels operator-shim/reconcile; do
		echo "# $d" >"$tree/$d/README.md"
		printf "%s\nextern int a;\n" "$spdx" >"$tree/$d/a.c"
	done
	echo '#include "base/err.h"' >>"$tree/planner/a.c"
	echo '#include "planner/plan.h"' >>"$tree/operator-shim/reconcile/a.c"
	echo '#include "xport/tcp/x.h"' >>"$tree/agent/xport/a.c"
}
caught() { # SCRIPT WHAT
	if "$here/$1" "$tree" >/dev/null 2>&1; then echo "$1 did not catch: $2"; bad=1; fi
}
plant() { # SCRIPT FILE LINE
	fresh
	echo "$3" >>"$tree/$2"
	caught "$1" "$2: $3"
}
fresh
for s in layering.sh text.sh; do
	out=$("$here/$s" "$tree" 2>&1) || { echo "$s refuses a clean tree: $out"; bad=1; }
done
plant layering.sh agent/base/a.c '#include "net/loop.h"'
plant layering.sh planner/a.c '#include "net/loop.h"'
plant layering.sh planner/a.c '#include <time.h>'
plant layering.sh kernels/a.c '#include "base/err.h"'
plant layering.sh agent/net/a.c '  #  include "proto/frame.h"'
plant layering.sh agent/proto/a.c '#include <sys/socket.h>'
plant layering.sh agent/net/a.c 'struct wb_msg_peer m;'
plant layering.sh agent/xport/tcp/a.c '#include "xport/shm/x.h"'
plant layering.sh agent/net/a.c '#include <infiniband/verbs.h>'
plant layering.sh operator-shim/reconcile/a.c '#include "net/chan.h"'
plant layering.sh operator-shim/reconcile/a.c '#include <uv.h>'
plant text.sh agent/base/a.c '/* see /home/somebody/notes */'
fresh && sed -i 1d "$tree/agent/base/a.c" && caught text.sh 'no SPDX line'
fresh && rm "$tree/agent/net/README.md" && caught text.sh 'no README'
fresh && { yes 'int x;' | head -900; } >>"$tree/agent/net/a.c" && caught text.sh 'a file of 900 lines'
python3 -B "$here/measure_selftest.py" || bad=1
fresh && printf '%s\nint f(void); /* says it */\nint g(void);\n' "$spdx" >"$tree/agent/base/a.h"
out=$(python3 -B "$here/measure.py" --contracts "$tree") && { echo "measure.py did not catch a function without a contract"; bad=1; }
[ "${out%%()*}" = "agent/base/a.h:3: g" ] || { echo "measure.py: $out"; bad=1; }
exit $bad
