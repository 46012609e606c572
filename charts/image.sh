#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh agent|operator FILE.tar [NAME:TAG]  Make the image of charts/images/Dockerfile without an
# engine, from the programs in BUILD (build/release): an OCI archive that `ctr images import`,
# `docker load`, `podman load` and `skopeo copy oci-archive:` read.  Prints name and digest.  The same
# programs give the same bytes.  The default name is localhost/weightbridge/agent:VERSION.
set -euo pipefail
case ${1:-} in agent | operator) ;; *) echo "usage: image.sh agent|operator FILE.tar [NAME:TAG]" >&2; exit 2 ;; esac
part=$1 file=${2:?FILE.tar}
top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build/release}
version=$(sed -n 's/^.define WB_VERSION "\(.*\)"/\1/p' "$top/agent/include/weightbridge/version.h")
name=${3:-localhost/weightbridge/$part:$version}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pack() { # ROOT FILE PATH...
	tar -C "$1" --format=pax --xattrs --xattrs-include=security.capability --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime --sort=name \
		--mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$2" "${@:3}"
}
sum() { sha256sum "$1" | cut -d' ' -f1; }
blob() { # FILE   Move it where it belongs and print its digest.
	local d
	d=$(sum "$1")
	mv "$1" "$work/image/blobs/sha256/$d"
	echo "$d"
}
size() { stat -c %s "$work/image/blobs/sha256/$1"; }

mkdir -p "$work/image/blobs/sha256"
"$top/charts/images/rootfs.sh" "$part" "$build" "$work/root"
pack "$work/root" "$work/layer" .
layer=$(blob "$work/layer")
arch=$(dpkg --print-architecture 2>/dev/null || uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

cat >"$work/config" <<END
{"architecture":"$arch","os":"linux","config":{"User":"65532:65532","Entrypoint":["/usr/bin/weightbridge-$part"],"Env":["PATH=/usr/bin"],"WorkingDir":"/","Labels":{"org.opencontainers.image.title":"weightbridge-$part","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"1970-01-01T00:00:00Z","created_by":"charts/image.sh"}]}
END
config=$(blob "$work/config")
oci=application/vnd.oci.image
cat >"$work/manifest" <<END
{"schemaVersion":2,"mediaType":"$oci.manifest.v1+json","config":{"mediaType":"$oci.config.v1+json","digest":"sha256:$config","size":$(size "$config")},"layers":[{"mediaType":"$oci.layer.v1.tar","digest":"sha256:$layer","size":$(size "$layer")}]}
END
manifest=$(blob "$work/manifest")
cat >"$work/image/index.json" <<END
{"schemaVersion":2,"mediaType":"$oci.index.v1+json","manifests":[{"mediaType":"$oci.manifest.v1+json","digest":"sha256:$manifest","size":$(size "$manifest"),"annotations":{"io.containerd.image.name":"$name","org.opencontainers.image.ref.name":"${name##*:}"},"platform":{"architecture":"$arch","os":"linux"}}]}
END
printf '{"imageLayoutVersion":"1.0.0"}\n' >"$work/image/oci-layout"
# For docker load before version 25.
printf '[{"Config":"blobs/sha256/%s","RepoTags":["%s"],"Layers":["blobs/sha256/%s"]}]\n' "$config" "$name" "$layer" \
	>"$work/image/manifest.json"
pack "$work/image" "$work/tar" oci-layout index.json manifest.json blobs
mv "$work/tar" "$file"
echo "$name sha256:$manifest"
