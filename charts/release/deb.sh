#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh OUTDIR FOLDER   Debian packages of a build in FOLDER: weightbridge (agent, operator, wbctl), libweightbridge0,
# libweightbridge-dev.  What they depend on is found by dpkg-shlibdeps (Debian's dpkg-dev).  Prints their paths.
set -euo pipefail
[ $# = 2 ] && [ -d "$1/bin" ] || { echo "usage: ${0##*/} OUTDIR FOLDER   (OUTDIR: a build, as build/release)" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
out=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$top/tests/common/deps.sh" dpkg-dev >&2
version=$(sed -n 's/^#define WB_VERSION "\(.*\)"/\1/p' "$top/agent/include/weightbridge/version.h")
arch=$(dpkg --print-architecture) lib=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)

make -s -C "$top" O="${out#"$top"/}" PREFIX=/usr LIBDIR="/$lib" DOCDIR=/usr/share/doc/libweightbridge-dev \
	DESTDIR="$work/all" install >&2

# take PACKAGE PATH...: these move from what was installed into a package.
take() {
	local path package=$1
	shift
	for path; do
		mkdir -p "$work/$package/$(dirname "$path")"
		mv "$work/all/$path" "$work/$package/$(dirname "$path")/"
	done
}
# pack PACKAGE SECTION SENTENCE [FIELD...]: with its licence, what it needs, and how large it is.
pack() {
	local package=$1 section=$2 sentence=$3 depends=''
	shift 3
	local tree=$work/$package
	install -D -m 644 "$top/LICENSE" "$tree/usr/share/doc/$package/copyright"
	find "$tree" -name '*.[138]' -exec gzip -9n {} +
	mapfile -t elf < <(find "$tree" -type f \( -path '*/bin/*' -o -name '*.so.*' \))
	if [ ${#elf[@]} -gt 0 ]; then
		strip --strip-unneeded "${elf[@]}"
		mkdir -p "$work/debian"
		printf 'Source: weightbridge\n\nPackage: %s\nArchitecture: any\n' "$package" >"$work/debian/control"
		depends=$(cd "$work" && dpkg-shlibdeps -O "${elf[@]/#/-e}" | sed -n 's/^shlibs:Depends=/Depends: /p')
	fi
	mkdir -p "$tree/DEBIAN"
	{
		printf 'Package: %s\nVersion: %s\nArchitecture: %s\nSection: %s\nPriority: optional\n' \
			"$package" "$version" "$arch" "$section"
		printf 'Maintainer: The WeightBridge authors <weightbridge@localhost>\nInstalled-Size: %s\n' \
			"$(du -sk --exclude=DEBIAN "$tree" | cut -f1)"
		[ -z "$depends" ] || echo "$depends"
		for field; do echo "$field"; done
		printf 'Description: %s\n' "$sentence"
	} >"$tree/DEBIAN/control"
	if [ "$section" = libs ]; then
		echo "activate-noawait ldconfig" >"$tree/DEBIAN/triggers"
		echo "libweightbridge 0 $package (>= $version)" >"$tree/DEBIAN/shlibs"
	fi
	dpkg-deb --root-owner-group -Zxz --build "$tree" "$folder" >&2
	echo "$folder/${package}_${version}_$arch.deb"
}

take weightbridge usr/bin usr/share/man/man8 usr/share/man/man1
take libweightbridge0 "$lib/libweightbridge.so.0"
take libweightbridge-dev usr/include "$lib" usr/share/man/man3
rm "$work/all/usr/share/doc/libweightbridge-dev/LICENSE" # it is the copyright of each package
take libweightbridge-dev usr/share/doc
left=$(find "$work/all" ! -type d)
[ -z "$left" ] || { echo "deb.sh: in no package: $left" >&2; exit 1; }
pack weightbridge net "weight transfer for reinforcement learning of LLMs: agent, operator, wbctl" "Suggests: libibverbs1"
pack libweightbridge0 libs "library that attaches a worker to its weightbridge agent"
pack libweightbridge-dev libdevel "headers of libweightbridge" "Depends: libweightbridge0 (= $version)"
