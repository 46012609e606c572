#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libraries.sh OUTDIR   The Debian packages whose shared libraries the programs and the library of a build load, those of
# libc apart: a line each, "PACKAGE VERSION SOURCE FILE...".
set -euo pipefail
found=$(ldd "$1"/bin/weightbridge-agent "$1"/bin/weightbridge-operator "$1"/bin/wbctl "$1"/lib/libweightbridge.so.0)
if grep 'not found' <<<"$found" >&2; then exit 1; fi
declare -A files
while read -r file; do
	real=$(readlink -f "$file")
	package=$(dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}" 2>/dev/null || dpkg -S "$real" 2>/dev/null) ||
		{ echo "libraries.sh: no package has $file" >&2; exit 1; }
	package=${package%%: *} # NAME:ARCH
	[ "${package%:*}" = libc6 ] || files[$package]="${files[$package]:-} $real"
done < <(sed -n 's/.* => \(\/[^ ]*\).*/\1/p' <<<"$found" | sort -u)
for package in "${!files[@]}"; do
	dpkg-query -W -f '${Package} ${Version} ${source:Package}' "$package"
	echo "${files[$package]}"
done | sort
