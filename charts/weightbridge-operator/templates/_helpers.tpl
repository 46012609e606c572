{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "weightbridge-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "weightbridge-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- $name := include "weightbridge-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of a thing that has no namespace: two releases of one name may be in two namespaces. */}}
{{- define "weightbridge-operator.clusterName" -}}
{{- $name := include "weightbridge-operator.fullname" . }}
{{- if eq .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end }}
{{- end }}

{{/* The namespaces that are watched, as a YAML list; [] = all. */}}
{{- define "weightbridge-operator.watched" -}}
{{- if and .Values.watchNamespace .Values.watchNamespaces }}{{ fail "give watchNamespace or watchNamespaces, not both" }}{{ end }}
{{- toYaml (ternary (list .Values.watchNamespace) .Values.watchNamespaces (ne .Values.watchNamespace "")) }}
{{- end }}

{{/* What NOTES say of other releases that live: one for all namespaces leaves those of others alone. */}}
{{- define "weightbridge-operator.others" -}}
{{- $own := printf "%s/%s" .Release.Namespace (include "weightbridge-operator.fullname" .) }}
{{- $watched := include "weightbridge-operator.watched" . | fromYamlArray }}
{{- range dig "items" list (lookup "coordination.k8s.io/v1" "Lease" "" "") }}
{{- $key := printf "%s/%s" .metadata.namespace .metadata.name }}
{{- $holder := dig "spec" "holderIdentity" "" . }}
{{- $age := sub (now | unixEpoch | int64) (dig "spec" "renewTime" "2006-01-02T15:04:05.000000Z" . | toDate "2006-01-02T15:04:05.000000Z" | unixEpoch | int64) }}
{{- if and $holder (lt $age 60) }}
{{- if and $watched (eq (dig "metadata" "labels" "weightbridge.io/serves" "" .) "all") (ne $key $own) }}
The release with Lease {{ $key }} serves all other namespaces, and leaves {{ join ", " $watched }} to this one: connect agents there to this one.
{{- else if and (not $watched) (eq .metadata.name "weightbridge-serves") (ne $holder $own) }}
Namespace {{ .metadata.namespace }} is served by release {{ $holder }}: this one leaves it alone.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weightbridge-operator.selector" -}}
app.kubernetes.io/name: {{ include "weightbridge-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weightbridge-operator.labels" -}}
{{- include "weightbridge-operator.labelsWith" (list . dict) }}
{{- end }}

{{/* List of root and further labels. The chart's own win, then those, then the common ones. */}}
{{- define "weightbridge-operator.labelsWith" -}}
{{- $root := index . 0 }}
{{- $own := include "weightbridge-operator.selector" $root | fromYaml }}
{{- $own = merge $own (dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/part-of" "weightbridge") }}
{{- toYaml (merge $own (index . 1) $root.Values.commonLabels) }}
{{- end }}

{{/* Whether another release has the WeightTransfer resource: "" or its namespace/name. */}}
{{- define "weightbridge-operator.crdOwner" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "weighttransfers.weightbridge.io" }}
{{- $of := dig "metadata" "annotations" dict $there }}
{{- $owner := printf "%s/%s" (get $of "meta.helm.sh/release-namespace") (get $of "meta.helm.sh/release-name") }}
{{- if and $there (ne $owner (printf "%s/%s" .Release.Namespace .Release.Name)) }}{{ $owner }}{{ end }}
{{- end }}

{{- define "weightbridge-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "weightbridge-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Reference of an image: list of root and the image's values. */}}
{{- define "weightbridge-operator.image" -}}
{{- $root := index . 0 }}{{- $i := index . 1 }}
{{- $registry := default $i.registry $root.Values.global.imageRegistry }}
{{- $name := $i.repository }}
{{- if $registry }}{{ $name = printf "%s/%s" $registry $name }}{{ end }}
{{- if $i.digest }}{{ printf "%s@%s" $name $i.digest }}{{ else }}{{ printf "%s:%s" $name (default $root.Chart.AppVersion $i.tag | toString) }}{{ end }}
{{- end }}

{{/* Where the operator's monitor is: the Secret that it names has to be there. */}}
{{- define "weightbridge-operator.monitorNamespace" -}}
{{- ternary (default .Release.Namespace .Values.serviceMonitor.namespace) .Release.Namespace .Values.serviceMonitor.enabled }}
{{- end }}

{{/* Field authorization of a monitor's endpoint: list of root, "metrics" or "agent-metrics", and what the user has
instead. Nothing where everybody may read. */}}
{{- define "weightbridge-operator.authorization" -}}
{{- $root := index . 0 }}
{{- $own := dict "credentials" (dict "name" (printf "%s-%s" (include "weightbridge-operator.fullname" $root) (index . 1)) "key" "token") }}
{{- if or (index . 2) $root.Values.metrics.auth }}
authorization: {{- default $own (index . 2) | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "weightbridge-operator.tlsSecret" -}}
{{- if eq .Values.tls.mode "ExistingSecret" }}
{{- required "tls.existingSecret is needed with tls.mode ExistingSecret" .Values.tls.existingSecret }}
{{- else }}
{{- include "weightbridge-operator.fullname" . }}-tls
{{- end }}
{{- end }}

{{/* Names in the certificate. The first is the one that agents dial. */}}
{{- define "weightbridge-operator.dnsNames" -}}
{{- $name := include "weightbridge-operator.fullname" . }}
{{- $ns := .Release.Namespace -}}
{{ $name }}.{{ $ns }}.svc
{{ $name }}.{{ $ns }}.svc.cluster.local
{{ $name }}.{{ $ns }}
{{ $name }}
{{- end }}
