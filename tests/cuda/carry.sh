#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# carry.sh OUTDIR FOLDER   What tests on a device need of a build (build/release), in FOLDER, for a machine that has
# nothing but libc, Python and a driver: the daemons with their libraries, as a wheel has them, libweightbridge, and the
# tools.  There: WB_BUILD=FOLDER WB_GPU=device python3 tests/e2e/test_gpu.py, tests/e2e/test_cuda_matrix.py,
# tests/frameworks/test_torch_device.py.  Exit 77 when what makes wheels cannot be had.
set -euo pipefail
[ $# = 2 ] && [ -d "$1/bin" ] || { echo "usage: ${0##*/} OUTDIR FOLDER" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
out=$(cd "$1" && pwd)
mkdir -p "$2/lib" "$2/tools"
folder=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$("$top/charts/release/wheel.sh" "$out" "$work") || exit $?
rm -rf "${folder:?}/wheel" "${folder:?}/bin"
python3 -m zipfile -e "$wheel" "$folder/wheel"
chmod +x "$folder"/wheel/weightbridge/bin/*
mkdir "$folder/bin"
for program in weightbridge-agent weightbridge-operator wbctl; do # no links: not all ways to carry a folder keep them
	printf '#!/bin/sh\nexec "${0%%/*}/../wheel/weightbridge/bin/%s" "$@"\n' "$program" >"$folder/bin/$program"
	chmod +x "$folder/bin/$program"
done
for f in lib/libweightbridge.so.0 tools/toy_worker tools/cuda_matrix; do
	install -m 755 "$out/$f" "$folder/$f"
	strip --strip-unneeded "$folder/$f"
done
du -sh "$folder"
