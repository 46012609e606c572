#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# venv.sh  Print the path of a Python that has NumPy; make one outside the tree when needed.
set -eu
want='import numpy, ml_dtypes'
for p in ${WB_PYTHON:-} python3; do
	if "$p" -c "$want" 2>/dev/null; then
		command -v "$p"
		exit 0
	fi
done
dir=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge/venv-1
if ! "$dir/bin/python" -c "$want" 2>/dev/null; then
	rm -rf "$dir.new"
	mkdir -p "$(dirname "$dir")"
	if ! python3 -m venv "$dir.new" >&2; then
		"$(dirname "$0")/deps.sh" python3 python3-venv >&2
		python3 -m venv "$dir.new" >&2
	fi
	"$dir.new/bin/python" -m pip install -q --disable-pip-version-check 'numpy<3' ml_dtypes >&2
	rm -rf "$dir"
	mv "$dir.new" "$dir"
fi
echo "$dir/bin/python"
