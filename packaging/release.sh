#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh OUTDIR FOLDER   All that a release is made of, in FOLDER, from a build and the tree's HEAD: source archive,
# wheel, Debian packages, charts, changelog, an SBOM, and SHA256SUMS over them.  Nothing is published.
# Without helm (tests/cluster/build.sh helm builds it) or auditwheel (PyPI) it says what is missing and ends with 77.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
out=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$top"
version=$(sed -n 's/^#define WB_VERSION "\(.*\)"/\1/p' agent/include/weightbridge/version.h)
rm -f "$folder"/*

# The first heading of the changelog is this release.
grep -m1 '^## ' CHANGELOG.md | grep -qF "## $version " || { echo "release.sh: CHANGELOG.md does not begin with $version" >&2; exit 1; }
helm=$(PYTHONPATH=tests/common python3 -B -c 'import helm; print(helm.find() or "")')
[ -n "$helm" ] || { echo "release.sh: helm is not here: tests/cluster/build.sh helm builds it" >&2; exit 77; }

git archive --prefix="weightbridge-$version/" -o "$folder/weightbridge-$version.tar.gz" HEAD
packaging/wheel.sh "$out" "$folder" >/dev/null
packaging/deb.sh "$out" "$folder" >/dev/null
for chart in charts/weightbridge charts/weightbridge-operator; do
	"$helm" package "$chart" --version "$version" --app-version "$version" -d "$folder" >/dev/null
done
cp CHANGELOG.md "$folder/"
libraries=$(packaging/libraries.sh "$out")
sbom=$(CREATED=$(git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ) TZ=UTC python3 -B packaging/sbom.py \
	"$folder" "$version" <<<"$libraries")
echo "$sbom" >"$folder/weightbridge-$version.spdx.json"
(cd "$folder" && sha256sum -- * >SHA256SUMS)
ls -1 "$folder"
