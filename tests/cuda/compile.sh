#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# compile.sh OUTDIR   Is the device code of kernels machine code for sm_80 and sm_90, and PTX for what comes after?  The
# compiler is found, or put into the user's cache folder; where that cannot be done one line says why it skips.
# The last line is "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/../.." || exit 1
mkdir -p "$1/log"
images=$(dirname "$1")/gpu test=$1/tests/test_kernels_gpu log=$1/log/cuda.log
pass=0 fail=0
if ! root=$(kernels/toolchain.sh install 2>"$log") || [ -z "$root" ]; then
	echo "SKIP cuda: no CUDA compiler, and none could be installed: $(tail -1 "$log")"
	echo "0 passed, 0 failed, 1 skipped"
	[ -z "${STRICT:-}" ]
	exit
fi
claim() { # WHAT COMMAND...
	local what=$1
	shift
	if "$@" >"$log" 2>&1; then pass=$((pass + 1)); echo "ok   $what: $(tail -1 "$log")"; else fail=$((fail + 1)); echo "FAIL $what"; tail -30 "$log"; fi
}
build() { make -s CUDA=yes CUDA_HOME="$root" VARIANT="$(basename "$out")" BUILD="$(dirname "$out")" "$test" && "$root/bin/nvcc" --version | grep release; }
has_images() { nm "$test" | grep -E 'wbk__image_(move|scan|ids)$' | wc -l | grep -x 3 && echo "three images"; }
# One program for machines with and without a driver.
no_driver() {
	local rc
	! ldconfig -p | grep -q 'libcuda\.so\.1' || { echo "this machine has a driver: not tried"; return; }
	WB_GPU=device "$test"
	rc=$?
	[ $rc -eq 77 ]
}
abi() { "${CC:-gcc}" -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -isystem "$root/include" -I. -Iagent tests/cuda/abi.c && grep -h 'define CUDA_VERSION' "$root/include/cuda.h"; }
out=$1
claim "the tests with device code in them" build
for file in kernels/*.cu; do
	name=$(basename "$file" .cu)
	# shellcheck disable=SC2046 # a word a kernel
	claim "$file" python3 -B tests/cuda/images.py "$images/$name.fatbin" "$images/$name.log" $(sed -n 's/^WBK_[A-Z]*(\([a-z0-9_]*\),.*/\1/p' "$file")
done
claim "they lie in the program" has_images
claim "the driver's interface is that of cuda.h" abi
claim "which starts without a driver" no_driver
echo "$pass passed, $fail failed, 0 skipped"
[ $fail -eq 0 ]
