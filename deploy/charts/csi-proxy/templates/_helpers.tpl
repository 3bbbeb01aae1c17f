{{/*
Copyright The CSI Proxy Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/* The name of CSI Proxy's objects: that of the release. */}}
{{- define "csi-proxy.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "csi-proxy.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "csi-proxy.name" .) }}
{{- end }}

{{/* The labels that select the pods of a component: a dict of root and component. */}}
{{- define "csi-proxy.selector" -}}
app.kubernetes.io/name: {{ if eq .component "node" }}csi-example-driver{{ else }}csi-proxy{{ end }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "csi-proxy.labels" -}}
{{ include "csi-proxy.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "csi-proxy.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The address that serves metrics, as it stands before a port. */}}
{{- define "csi-proxy.bindHost" -}}
{{- $address := .Values.metrics.bindAddress -}}
{{ if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}
{{- end }}

{{/* The flags of csi-proxy. */}}
{{- define "csi-proxy.flags" -}}
- {{ printf "-kubelet-path=%s" .Values.kubeletPath | quote }}
{{- range .Values.workingDirs }}
- {{ printf "-working-dir=%s" . | quote }}
{{- end }}
{{- range .Values.protectedVolumes }}
- {{ printf "-protected-volume=%s" . | quote }}
{{- end }}
{{- if and (include "csi-proxy.hasDrivers" .) (eq .Values.mode "container") }}
- -drivers={{ include "csi-proxy.driversFile" . }}
{{- end }}
{{- if not .Values.requirePrivacy }}
- -require-privacy=false
{{- end }}
# They name disks, paths and servers; docs/monitoring.md says who can read them.
- {{ printf "-metrics-bind-address=%s:%d" (include "csi-proxy.bindHost" .) (int .Values.metrics.port) | quote }}
{{- if eq .Values.mode "container" }}
{{- /* What is left of the calls when the drain is over has the few seconds of a container's end. */}}
- -grace-period=2s
{{- else }}
- -grace-period={{ int .Values.gracePeriodSeconds }}s
{{- end }}
- -v={{ int .Values.logLevel }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Not empty if the manifests have a file of drivers. */}}
{{- define "csi-proxy.hasDrivers" -}}
{{- if and .Values.drivers (ne .Values.mode "removeService") -}}true{{- end -}}
{{- end }}

{{/* The file that names the node's drivers. */}}
{{- define "csi-proxy.drivers" -}}
{{ dict "sharedEndpoints" .Values.sharedEndpoints "drivers" .Values.drivers | toPrettyJson }}
{{- end }}

{{/* Where that file is mounted: a directory that a node doesn't have, since the mount hides what is there. */}}
{{- define "csi-proxy.driversDirectory" -}}
C:\csi-proxy-drivers
{{- end }}

{{/* Its path in the container: a mount is below this directory with each version of containerd. */}}
{{- define "csi-proxy.driversFile" -}}
%CONTAINER_SANDBOX_MOUNT_POINT%{{ include "csi-proxy.driversDirectory" . | trimPrefix "C:" }}\drivers.json
{{- end }}

{{/* The mount and the volume of the ConfigMap with that file. */}}
{{- define "csi-proxy.driversMount" -}}
- name: drivers
  mountPath: {{ include "csi-proxy.driversDirectory" . }}
  readOnly: true
{{- end }}

{{- define "csi-proxy.driversVolume" -}}
- name: drivers
  configMap:
    name: {{ include "csi-proxy.name" . }}-drivers
{{- end }}

{{/* Not empty if the example driver has endpoints of its own. */}}
{{- define "csi-proxy.exampleDriverOwn" -}}
{{- if include "csi-proxy.hasDrivers" . }}
{{- range .Values.drivers }}
{{- if eq .name "example.csi-proxy.dev" }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The arguments of csi-proxyctl that remove the service. */}}
{{- define "csi-proxy.uninstall" -}}
- service
- uninstall
{{- with .Values.service.name }}
- --name={{ . }}
{{- end }}
{{- if .Values.service.restore }}
- --restore
{{- end }}
{{- end }}

{{/* What a probe runs. It goes through a pipe: whoever has a port of this node, it holds. */}}
{{- define "csi-proxy.probe" -}}
exec:
  command:
    - '%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxyctl.exe'
    - status
{{- end }}

{{/* The name of the port that serves metrics, which says who can read them. */}}
{{- define "csi-proxy.metricsPort" -}}
{{- $address := .Values.metrics.bindAddress -}}
{{- if or (hasPrefix "127." $address) (eq $address "::1") -}}
local-metrics
{{- else -}}
metrics
{{- end -}}
{{- end }}

{{/* Where the pods of Windows nodes run. */}}
{{- define "csi-proxy.placement" -}}
os:
  name: windows
nodeSelector:
  kubernetes.io/os: windows
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.tolerations }}
# On every Windows node, whatever is wrong with it: pods that have volumes there can't end cleanly
# without these pods.
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
# Kubelet ends critical pods last when the node shuts down, after the pods with volumes, and never
# evicts them.
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How a DaemonSet is upgraded: a dict of root, and of ready, in seconds. */}}
{{- define "csi-proxy.update" -}}
updateStrategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: {{ .root.Values.maxUnavailable }}
    maxSurge: 0
minReadySeconds: {{ .ready }}
{{- end }}

{{/* A path as the admission policy compares it: in lower case, with backslashes, without one at its end. */}}
{{- define "csi-proxy.hostPath" -}}
{{- $path := lower . | replace "/" `\` }}
{{- if regexMatch `^\\([^\\]|$)` $path }}
{{- $path = print "c:" $path }}
{{- end }}
{{- $path | trimSuffix `\` }}
{{- end }}
