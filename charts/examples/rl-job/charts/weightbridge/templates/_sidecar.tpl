{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{/*
Parts of a pod template. Each takes a dict:
  root      the chart's $
  name      WeightTransfer of the pod (same namespace)
  role      trainer, rollout or both
  workers   worker processes in the pod (default 1)
and to size memory, in quantities of one worker:
  bufferSize   as in the WeightTransfer (default 1Gi for trainers, 4Gi for rollouts)
  staging      bytes of its parameters where its side stages in HostMemory (default 0)
or memory, the sidecar's memory as it is to be. hostNetwork: true where the pod has it; namespace: of
the pod, where it is not the release's; profile, image, operator, metricsAuth: other than the chart's. Of one pod give
the same dict to all.
*/}}

{{/* Labels by which a pod chooses its object, and those of commonLabels. */}}
{{- define "weightbridge.labels" -}}
{{- if not (has .role (list "trainer" "rollout" "both")) }}{{ fail (printf "weightbridge: role is %v, not trainer, rollout or both" .role) }}{{ end -}}
weightbridge.io/name: {{ required "weightbridge: name of the WeightTransfer is missing" .name | quote }}
weightbridge.io/role: {{ .role }}
{{- range $k, $x := omit (include "weightbridge.values" .root | fromYaml).commonLabels "weightbridge.io/name" "weightbridge.io/role" }}
{{ $k }}: {{ $x | quote }}
{{- end }}
{{- end }}

{{/* A mesh's proxy would end the TLS of agents, and has no business with weights. */}}
{{- define "weightbridge.annotations" -}}
traffic.sidecar.istio.io/excludeInboundPorts: "7444,9402"
traffic.sidecar.istio.io/excludeOutboundPorts: "7443,7444"
config.linkerd.io/skip-inbound-ports: "7444,9402"
config.linkerd.io/skip-outbound-ports: "7443,7444"
{{- end }}

{{/* For each app container that attaches. */}}
{{- define "weightbridge.volumeMounts" -}}
- {name: weightbridge-run, mountPath: /run/weightbridge}
{{- end }}

{{- define "weightbridge.volumes" -}}
- name: weightbridge-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: weightbridge-none
  emptyDir: {medium: Memory, sizeLimit: 4Ki}
- name: weightbridge-auth
  projected:
    sources:
      - serviceAccountToken:
          audience: {{ printf "weightbridge.io/%s/%s" (default .root.Release.Namespace .namespace) .name | quote }}
          expirationSeconds: 3600
          path: token
      - configMap:
          name: weightbridge-ca
          optional: true
          items: [{key: ca.crt, path: ca.crt}]
{{- with (include "weightbridge.values" .root | fromYaml).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The list item for initContainers; first in the list. */}}
{{- define "weightbridge.sidecar" -}}
{{- $v := include "weightbridge.values" .root | fromYaml }}
{{- $profile := default (ternary "IPCLock" "Hardened" $v.rdma.ipcLock) .profile }}
{{- if not (has $profile (list "Hardened" "IPCLock")) }}{{ fail (printf "weightbridge: profile is %v, not Hardened or IPCLock" $profile) }}{{ end }}
{{- $listen := default (ternary "0" "7444" (default false .hostNetwork)) .listen }}
{{- $http := default (ternary "0" "9402" (default false .hostNetwork)) .http }}
{{- $memory := include "weightbridge.memory" . }}
- name: weightbridge-agent
  image: {{ default (include "weightbridge.image" .root) .image | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  restartPolicy: Always
  {{- if eq $profile "IPCLock" }}
  # The program whose file has the capability: without it, no user but root has it in effect.
  command: [/usr/bin/weightbridge-agent-ipclock]
  {{- end }}
  args:
    - --name=$(POD_NAME)
    - --node=$(NODE_NAME)
    - --object=$(POD_NAMESPACE)/$(WEIGHTTRANSFER)
    - --operator={{ default $v.operator .operator }}
    - --token-file=/var/run/secrets/weightbridge/token
    - --ca-file=/var/run/secrets/weightbridge/ca.crt
    - --socket=/run/weightbridge/agent.sock
    - --listen=:{{ $listen }}
    - --http=:{{ $http }}
    {{- if default $v.metricsAuth .metricsAuth }}
    - --metrics-auth
    {{- end }}
    {{- /* not where it is missing: in values of before there was one */}}
    {{- if eq (toString $v.bench) "false" }}
    - --no-bench
    {{- end }}
    - --port-file=/run/weightbridge/agent.ports
    {{- if ne $v.transport "auto" }}
    - --transport={{ $v.transport }}
    {{- end }}
    - --advertise=$(POD_IPS)
    - --log-format=json
    - --log-level={{ $v.logLevel }}
    {{- range $v.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: POD_NAME
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}
    - name: POD_IPS
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIPs}}
    - name: NODE_NAME
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}
    - name: WEIGHTTRANSFER
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['weightbridge.io/name']"}}
    - name: WEIGHTBRIDGE_AGENT_PAGES
      value: /run/weightbridge/agent.sock.http
    {{- with $v.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if not .hostNetwork }}
  ports:
    - {name: wb-weights, containerPort: 7444, protocol: TCP}
    - {name: wb-metrics, containerPort: 9402, protocol: TCP}
  {{- end }}
  startupProbe:
    {{- $probe := dict "exec" (dict "command" (list "/usr/bin/weightbridge-agent" "--probe=startup" "--socket=/run/weightbridge/agent.sock")) "periodSeconds" 1 "timeoutSeconds" 5 "failureThreshold" 60 }}
    {{- include "weightbridge.probe" (list $probe $v.probes.startup) | nindent 4 }}
  # Over its unix socket: no other pod can stand in the way of a probe.
  livenessProbe:
    {{- $probe = dict "exec" (dict "command" (list "/usr/bin/weightbridge-agent" "--probe=live" "--socket=/run/weightbridge/agent.sock")) "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6 }}
    {{- include "weightbridge.probe" (list $probe $v.probes.liveness) | nindent 4 }}
  {{- if $v.readiness }}
  readinessProbe:
    {{- $probe = dict "exec" (dict "command" (list "/usr/bin/weightbridge-agent" "--probe=ready" "--socket=/run/weightbridge/agent.sock")) "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2 }}
    {{- include "weightbridge.probe" (list $probe $v.probes.readiness) | nindent 4 }}
  {{- end }}
  resources:
    requests:
      cpu: {{ $v.cpu | quote }}
      memory: {{ $memory | quote }}
      {{- with $v.rdma.resourceName }}
      {{ . }}: "1"
      {{- end }}
      {{- with $v.extraResources }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    limits:
      memory: {{ $memory | quote }}
      {{- with $v.rdma.resourceName }}
      {{ . }}: "1"
      {{- end }}
      {{- with $v.extraResources }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  securityContext:
    {{- with $v.runAsUser }}
    runAsUser: {{ . | int64 }}
    runAsGroup: {{ . | int64 }}
    {{- end }}
    runAsNonRoot: true
    allowPrivilegeEscalation: false
    privileged: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      {{- if eq $profile "IPCLock" }}
      add: [IPC_LOCK]
      {{- end }}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    - {name: weightbridge-run, mountPath: /run/weightbridge}
    - {name: weightbridge-auth, mountPath: /var/run/secrets/weightbridge, readOnly: true}
    # Admission mounts no token where something is mounted already.
    - {name: weightbridge-none, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/*
Rules of a NetworkPolicy for pods with an agent, to be put below spec. A dict:
  pods         label selector of the pods that speak to each other: of one object, or of all
  metricsFrom  who may read the agents' metrics: list of NetworkPolicyPeers, [] = everybody
  otherPorts   whether the pods' other ports stay open: a policy closes all that it does not name
  operator     peer that the agents dial; with it the policy says where the pods may dial, too
Pods on the host's network are in no policy's reach.
*/}}
{{- define "weightbridge.networkPolicy" -}}
podSelector: {{- toYaml .pods | nindent 2 }}
policyTypes: [Ingress{{ if .operator }}, Egress{{ end }}]
ingress:
  # Weights, from other agents.
  - ports:
      - {port: 7444, protocol: TCP}
    from:
      - podSelector: {{- toYaml .pods | nindent 10 }}
  - ports:
      - {port: 9402, protocol: TCP}
    {{- with .metricsFrom }}
    from: {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- if .otherPorts }}
  # Whatever else the pods serve.
  - ports:
      - {port: 1, endPort: 7443, protocol: TCP}
      - {port: 7445, endPort: 9401, protocol: TCP}
      - {port: 9403, endPort: 65535, protocol: TCP}
      - {port: 1, endPort: 65535, protocol: UDP}
  {{- end }}
{{- with .operator }}
egress:
  - ports:
      - {port: 7443, protocol: TCP}
    to:
      - {{- toYaml . | nindent 8 }}
  - ports:
      - {port: 7444, protocol: TCP}
    to:
      - podSelector: {{- toYaml $.pods | nindent 10 }}
  - ports:
      - {port: 53, protocol: UDP}
      - {port: 53, protocol: TCP}
  {{- if $.otherPorts }}
  - ports:
      - {port: 1, endPort: 7442, protocol: TCP}
      - {port: 7445, endPort: 65535, protocol: TCP}
      - {port: 1, endPort: 65535, protocol: UDP}
  {{- end }}
{{- end }}
{{- end }}

{{/* ---- helpers ---- */}}

{{/* A probe: list of the chart's own and what the user has instead, field by field; a handler of the user's
replaces the chart's. */}}
{{- define "weightbridge.probe" -}}
{{- $probe := index . 0 }}{{- $more := default dict (index . 1) }}
{{- range list "exec" "httpGet" "tcpSocket" "grpc" }}
{{- if hasKey $more . }}{{ $probe = omit $probe "exec" "httpGet" "tcpSocket" "grpc" }}{{ end }}
{{- end }}
{{- toYaml (merge (deepCopy $more) $probe) }}
{{- end }}

{{/* The sidecar's values: of the chart itself, or where it is a dependency. */}}
{{- define "weightbridge.values" -}}
{{- toYaml (required "weightbridge: the chart depends on chart weightbridge, whose values are missing" .Values.weightbridge) }}
{{- end }}

{{- define "weightbridge.image" -}}
{{- $i := .Values.weightbridge.image }}
{{- $name := $i.repository }}
{{- with default $i.registry (dig "imageRegistry" "" (default dict .Values.global)) }}{{ $name = printf "%s/%s" . $name }}{{ end }}
{{- if $i.digest }}{{ printf "%s@%s" $name $i.digest }}{{ else }}{{ printf "%s:%s" $name (default "0.1.0" $i.tag | toString) }}{{ end }}
{{- end }}

{{/* Quantity to bytes. */}}
{{- define "weightbridge.bytes" -}}
{{- $t := toString . }}
{{- if not (regexMatch "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $t) }}{{ fail (printf "weightbridge: %s is not a quantity such as 4Gi" $t) }}{{ end }}
{{- $unit := regexFind "[A-Za-z]+$" $t }}
{{- $factor := get (dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) $unit }}
{{- mulf (regexFind "^[0-9.]+" $t | float64) (float64 $factor) | ceil | int64 }}
{{- end }}

{{/* Requests are limits: buffers and staging of all workers, and what an agent takes beside. */}}
{{- define "weightbridge.memory" -}}
{{- if .memory }}{{ .memory }}{{ else }}
{{- $v := include "weightbridge.values" .root | fromYaml }}
{{- $buffer := default (ternary "1Gi" "4Gi" (eq .role "trainer")) .bufferSize }}
{{- $worker := add (include "weightbridge.bytes" $buffer | int64) (include "weightbridge.bytes" (default "0" .staging) | int64) }}
{{- $bytes := add (mul $worker (default 1 .workers | int64)) (include "weightbridge.bytes" $v.baseMemory | int64) }}
{{- /* In whole Mi, rounded up: every cluster shows the same text. */}}
{{- printf "%dMi" (div (add $bytes 1048575) 1048576) }}
{{- end }}
{{- end }}
