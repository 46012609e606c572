#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh OUTDIR FOLDER   All that a release is made of, in FOLDER, from a build and the tree's HEAD: source archive,
# wheel, Debian packages, charts, changelog, an SBOM, and SHA256SUMS over them.  Nothing is published.
# Without helm (tests/cluster/build.sh helm builds it) or auditwheel (PyPI) it says what is missing and ends with 77.
set -euo pipefail
[ $# = 2 ] && [ -d "$1/bin" ] || { echo "usage: ${0##*/} OUTDIR FOLDER   (OUTDIR: a build, as build/release)" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
out=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$top"
version=$(sed -n 's/^#define WB_VERSION "\(.*\)"/\1/p' agent/include/weightbridge/version.h)

# The first heading of the changelog is this release.
grep -m1 '^## ' .github/CHANGELOG.md | grep -qE "^## ${version//./\\.}( |$)" ||
	{ echo "release.sh: .github/CHANGELOG.md does not begin with $version" >&2; exit 1; }
helm=$(PYTHONPATH=tests/common python3 -B -c 'import helm; print(helm.find() or "")')
[ -n "$helm" ] || { echo "release.sh: helm is not here: tests/cluster/build.sh helm builds it" >&2; exit 77; }
[ -z "$(git status --porcelain)" ] ||
	echo "release.sh: the tree is changed: the archive is of HEAD, the programs are of what was built" >&2

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
git archive --prefix="weightbridge-$version/" -o "$made/weightbridge-$version.tar.gz" HEAD
charts/release/wheel.sh "$out" "$made" >/dev/null
charts/release/deb.sh "$out" "$made" >/dev/null
for chart in charts/weightbridge charts/weightbridge-operator; do
	"$helm" package "$chart" --version "$version" --app-version "$version" -d "$made" >/dev/null
done
cp .github/CHANGELOG.md "$made/"
libraries=$(charts/release/libraries.sh "$out")
created=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
CREATED=$created python3 -B charts/release/sbom.py "$made" "$version" <<<"$libraries" >"$made.json"
mv "$made.json" "$made/weightbridge-$version.spdx.json"
(cd "$made" && sha256sum -- * >SHA256SUMS)
# Only now does it take the place of one that was made before.
rm -f "$folder"/weightbridge* "$folder"/libweightbridge* "$folder/CHANGELOG.md" "$folder/SHA256SUMS"
chmod 644 "$made"/*
mv "$made"/* "$folder/"
ls -1 "$folder"
