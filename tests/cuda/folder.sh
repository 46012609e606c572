#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# folder.sh OUTDIR TO   Copy to TO what run.sh needs of the build in OUTDIR (make CUDA=yes and the programs of check-gpu):
# programs without debug information, the libraries that they need beside the C library, the scripts.  Where it goes,
# TO/cuda/run.sh TO runs them.
set -eu
out=$1 to=$2 here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$to/tests" "$to/tools" "$to/lib" "$to/cuda"
cp "$out"/tests/test_{kernels_gpu,cuda_driver,mem_gpu,lane_gpu,client_gpu,extract,extract_bad,extract_gpu} "$to/tests"
cp "$out/tools/answers" "$to/tools"
cp "$here"/{run.sh,answers.sh,answers.txt} "$to/cuda"
strip -g "$to"/tests/* "$to/tools/answers"
ldd "$to"/tests/* "$to/tools/answers" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
	grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -r cp -L -t "$to/lib"
du -sh "$to"
