{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{/*
A value as a CEL literal. In strings @x@ becomes variables.x. Each element is dyn(), as CEL wants the
elements of a list or map to be of one type.
*/}}
{{- define "weightbridge-operator.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $k := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ toJson $k }}: dyn({{ include "weightbridge-operator.cel" (get $ $k) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[{{- range $i, $v := . }}{{ if $i }}, {{ end }}dyn({{ include "weightbridge-operator.cel" $v }}){{ end -}}]
{{- else if kindIs "string" . -}}
{{ regexReplaceAll "@([a-z]+)@" (toJson .) "\" + variables.${1} + \"" }}
{{- else if kindIs "float64" . -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}
