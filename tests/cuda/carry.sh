#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# carry.sh OUTDIR FOLDER   What tests on a device need of a build (build/release: make CUDA=yes all, the programs of
# check-gpu, build/release/tools/toy_worker and cuda_matrix), in FOLDER, for a machine that has nothing but libc, Python
# and a driver: programs without debug information, the libraries that they need, the daemons as a wheel has them.
# There: FOLDER/cuda/run.sh FOLDER; and beside a tree, with WB_BUILD=FOLDER WB_GPU=device,
# python3 tests/e2e/test_gpu.py, tests/e2e/test_cuda_matrix.py, tests/frameworks/test_torch_device.py.
# Exit 77 when what makes wheels cannot be had.
set -euo pipefail
[ $# = 2 ] && [ -d "$1/bin" ] || { echo "usage: ${0##*/} OUTDIR FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$(cd "$1" && pwd)
mkdir -p "$2"/{lib,tools,tests,cuda}
folder=$(cd "$2" && pwd)
cp "$out"/tests/test_{kernels_gpu,cuda_driver,mem_gpu,lane_gpu,lane_area_gpu,client_gpu,daemon_imports,extract,extract_bad,extract_gpu} "$folder/tests"
cp "$out"/tools/{answers,toy_worker,cuda_matrix} "$folder/tools"
cp "$here"/{run.sh,answers.sh,answers.txt} "$folder/cuda"
ldd "$folder"/t*/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
	grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -r cp -L -t "$folder/lib"
install -m 755 "$out/lib/libweightbridge.so.0" "$folder/lib"
strip --strip-unneeded "$folder"/t*/* "$folder/lib/libweightbridge.so.0"
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
du -sh "$folder"
