#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# toolchain.sh find|install   Print the folder of a CUDA toolkit (with bin/nvcc).
#
# find looks at $CUDA_HOME, nvcc of $PATH, /usr/local/cuda and the user's cache folder for CUDA 12 or later, prints
# nothing when there is none (or no g++, which nvcc calls), and never uses the network.  install puts the compiler's wheels from PyPI (105 MB, 280 MB unpacked; no GPU, no
# driver, no root) into the cache folder when nothing was found.  One minor version: its machine code and PTX load with
# every driver from 580 on.
set -eu
nvcc_version=13.0.88 runtime_version=13.0.96 cccl_version=13.0.85
kept=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge/cuda-$nvcc_version

find_one() {
	command -v g++ >/dev/null || return 0
	on_path=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /none/none/none)")")")
	for d in "${CUDA_HOME:-}" "$on_path" /usr/local/cuda "$kept"; do
		[ -x "${d:-/none}/bin/nvcc" ] || continue
		"$d/bin/nvcc" --version 2>/dev/null | grep -qE 'release (1[2-9]|[2-9][0-9])\.' || continue
		echo "$d"
		return
	done
}

install_wheels() {
	new=$kept.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new/w" "$new/x"
	python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$new/w" \
		"nvidia-cuda-nvcc==$nvcc_version" "nvidia-cuda-crt==$nvcc_version" "nvidia-nvvm==$nvcc_version" \
		"nvidia-cuda-runtime==$runtime_version" "nvidia-cuda-cccl==$cccl_version" >&2
	for w in "$new"/w/*.whl; do python3 -m zipfile -e "$w" "$new/x"; done
	# Unpacking forgets modes, and nvcc looks for lib64.
	chmod -R a+rX "$new/x"
	chmod a+x "$new"/x/nvidia/cu13/bin/* "$new"/x/nvidia/cu13/nvvm/bin/*
	ln -sfn lib "$new/x/nvidia/cu13/lib64"
	mv "$new/x/nvidia/cu13" "$kept" 2>/dev/null || [ -x "$kept/bin/nvcc" ] # somebody else was faster
}

case ${1:-} in
find) find_one ;;
install)
	[ -n "$(find_one)" ] || install_wheels
	find_one
	;;
*)
	echo "usage: toolchain.sh find|install" >&2
	exit 2
	;;
esac
