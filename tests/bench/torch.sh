#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch.sh  Print the path of a Python that has torch, for comparisons with gloo; nothing else uses
# it.  WB_TORCH_PYTHON names one; else a virtual environment is made once in the cache folder
# (0.2 GB from torch's CPU index, or 0.5 GB from PyPI).  WB_TORCH=off: never download.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
want='import torch.distributed as d; assert d.is_gloo_available()'
cache=${WB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge}
dir=$cache/torch-1
for p in ${WB_TORCH_PYTHON:-} "$dir/bin/python" python3; do
	if "$p" -c "$want" 2>/dev/null; then
		command -v "$p"
		exit 0
	fi
done
if [ "${WB_TORCH:-}" = off ]; then
	echo "torch is not installed and WB_TORCH=off forbids to get it" >&2
	exit 1
fi
mkdir -p "$cache"
exec 9>"$dir.lock"
flock 9
if ! "$dir/bin/python" -c "$want" 2>/dev/null; then
	echo "getting torch for the comparison with gloo (once; WB_TORCH=off to do without)" >&2
	rm -rf "$dir"
	python3 -m venv "$dir" >&2
	pip() { "$dir/bin/python" -m pip install -q --disable-pip-version-check "$@" >&2; }
	light="typing_extensions filelock networkx jinja2 fsspec sympy numpy"
	if ! pip --timeout 10 --retries 0 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null; then
		# The wheel of PyPI is built for CUDA; its libraries are stood in for.
		pip $light
		pip --no-deps torch
		"$dir/bin/python" "$here/torch_stubs.py" \
			"$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	fi
	"$dir/bin/python" -c "$want" >&2
fi
echo "$dir/bin/python"
