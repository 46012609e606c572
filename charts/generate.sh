#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate.sh HELM [--check]  Write agent/ctl/sidecar_text.c, what `wbctl inject` puts into pods, from the
# library chart and its defaults: there is one template of the sidecar. --check: fail where it differs.
set -euo pipefail
helm=${1:?HELM}
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/chart/templates" "$work/chart/charts"
ln -s "$top/charts/weightbridge" "$work/chart/charts/weightbridge"
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
json: {{ dict "image" (include "weightbridge.image" .) "operator" .Values.weightbridge.operator "profile" .Values.weightbridge.profile "memory" .Values.memory "sidecar" (omit $sidecar "ports") "ports" $sidecar.ports "volumes" (include "weightbridge.volumes" $w | fromYamlArray) "volumeMounts" (include "weightbridge.volumeMounts" $w | fromYamlArray) "annotations" (include "weightbridge.annotations" $w | fromYaml) | toJson }}
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
