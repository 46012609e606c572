#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate.sh HELM [--check]  Write what is made of the library chart, as there is one template of the sidecar:
# the copies of it in the charts that depend on it (of a link helm warns at each command), and
# agent/ctl/sidecar_text.c, what `wbctl inject` puts into pods, from its defaults. --check: fail where they differ.
set -euo pipefail
helm=${1:?HELM}
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library=$top/charts/weightbridge
mkdir -p "$work/chart/templates" "$work/chart/charts"
cp -r "$library" "$work/chart/charts/weightbridge"
for chart in weightbridge-operator examples/rl-job; do
	copy=$top/charts/$chart/charts/weightbridge
	if [ "${2:-}" = --check ]; then
		diff -r --exclude=README.md "$library" "$copy"
	else
		rm -rf "$copy"
		mkdir -p "$copy"
		cp -r "$library"/{Chart.yaml,values.yaml,values.schema.json,templates} "$copy"
	fi
done
cat >"$work/chart/Chart.yaml" <<'END'
apiVersion: v2
name: generate
version: 0.1.0
dependencies: [{name: weightbridge, version: 0.1.0, repository: ""}]
END
sed -n '/^injection:/,/^[^ ]/s/^  memory: {\(.*\)}/memory: {\1}/p' "$top/charts/weightbridge-operator/values.yaml" >"$work/chart/values.yaml"
# Text in @signs@ is filled in for each pod.
cat >"$work/chart/templates/text.yaml" <<'END'
{{- $w := dict "root" . "name" "@name@" "namespace" "@namespace@" "role" "both" "memory" "@memory@" "listen" "@listen@" "http" "@http@" "profile" "Hardened" "image" "@image@" "operator" "@operator@" }}
{{- $sidecar := include "weightbridge.sidecar" $w | fromYamlArray | first }}
json: {{ dict "image" (include "weightbridge.image" .) "operator" .Values.weightbridge.operator "profile" (ternary "IPCLock" "Hardened" .Values.weightbridge.rdma.ipcLock) "memory" .Values.memory "sidecar" (omit $sidecar "ports") "ports" $sidecar.ports "volumes" (include "weightbridge.volumes" $w | fromYamlArray) "volumeMounts" (include "weightbridge.volumeMounts" $w | fromYamlArray) "annotations" (include "weightbridge.annotations" $w | fromYaml) | toJson }}
END
"$helm" template generate "$work/chart" 2>"$work/log" | sed -n "s/^json: //p" >"$work/json" || true
[ -s "$work/json" ] || { cat "$work/log"; exit 1; }
{
	echo '/* SPDX-License-Identifier: Apache-2.0 */'
	echo '/* Written by charts/generate.sh from the library chart; a test compares. */'
	echo '#include "ctl/inject.h"'
	echo
	echo '/* clang-format off */'
	echo 'const char wb__ctl_sidecar_text[] ='
	fold -w 88 "$work/json" | sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/	"&"/; $s/$/;/'
} >"$work/c"
if [ "${2:-}" = --check ]; then
	diff "$top/agent/ctl/sidecar_text.c" "$work/c"
else
	cp "$work/c" "$top/agent/ctl/sidecar_text.c"
fi
