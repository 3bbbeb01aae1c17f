{{/*
Copyright The CSI Proxy Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/* What pods could only fail with is refused here, in sentences: the schema has none of its own. */}}
{{- define "csi-proxy.refuse" -}}
{{- include "csi-proxy.refuseDirectory" (dict "name" "kubeletPath" "path" .Values.kubeletPath) }}
{{- range .Values.workingDirs }}
{{- include "csi-proxy.refuseDirectory" (dict "name" "workingDirs" "path" .) }}
{{- end }}
{{- include "csi-proxy.refuseDirectory" (dict "name" "service.directory" "path" .Values.service.directory) }}
{{- with .Values.metrics.webConfigFile }}
{{- include "csi-proxy.refuseDirectory" (dict "name" "metrics.webConfigFile" "path" .) }}
{{- end }}

{{- $flags := .Files.Get "files/flags.txt" | trim | splitList "\n" }}
{{- range .Values.extraArgs }}
{{- $name := . | trimPrefix "-" | trimPrefix "-" | splitList "=" | first }}
{{- if has (printf "%s=" $name) $flags }}
{{- if not (contains "=" .) }}
{{- fail (printf "extraArgs: the flag -%s takes a value: write %s=VALUE as one item of the list" $name .) }}
{{- end }}
{{- else if not (has $name $flags) }}
{{- fail (printf "extraArgs: %q isn't a flag of the daemon on a node; docs/flags.md lists them" .) }}
{{- end }}
{{- end }}

{{- include "csi-proxy.refuseImage" (dict "image" (include "csi-proxy.image" .) "write" "image.repository is its name without a tag, in lower case, image.tag its tag, and image.digest sha256: with 64 hexadecimal digits") }}
{{- if .Values.exampleDriver.enabled }}
{{- range $name := list "image" "registrarImage" "livenessProbeImage" }}
{{- include "csi-proxy.refuseImage" (dict "image" (get $.Values.exampleDriver $name) "write" (printf "exampleDriver.%s is NAME:TAG, with the name in lower case" $name)) }}
{{- end }}
{{- if eq .Values.exampleDriver.mode "hostProcess" }}
{{- $ports := list (int .Values.metrics.port) (int .Values.exampleDriver.livenessPort) (int .Values.exampleDriver.registrarPort) }}
{{- if lt (uniq $ports | len) 3 }}
{{- fail "metrics.port, exampleDriver.livenessPort and exampleDriver.registrarPort are all ports of the node: each must be another one" }}
{{- end }}
{{- end }}
{{- end }}

{{- if and .Values.service.restore (ne .Values.mode "removeService") }}
{{- fail (printf "service.restore brings the published daemon back when the service is removed: it is for mode removeService, and mode is %s" .Values.mode) }}
{{- end }}
{{- end }}

{{/* A path without what cmd.exe, by which HostProcess containers are started, takes as its own. */}}
{{- define "csi-proxy.refuseDirectory" -}}
{{- if not (regexMatch `^[A-Za-z]:(\\[^\\/:*?"<>|&^%\x00-\x1f]+)+$` .path) }}
{{- fail (printf `%s is %q: it must be a path on a Windows drive such as C:\var\lib\kubelet, without a backslash at its end and without any of / * ? " < > | & ^ and the percent sign. With --set, double each backslash: --set '%s=C:\\var\\lib\\kubelet'. In a file, write the path in single quotes or in none` .name .path .name) }}
{{- end }}
{{- end }}

{{/* NAME:TAG, NAME@DIGEST or both: without either the version is the latest. */}}
{{- define "csi-proxy.refuseImage" -}}
{{- if not (regexMatch `^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$` .image) }}
{{- fail (printf "%q isn't the name of an image such as ghcr.io/csi-proxy/csi-proxy:v0.1.0: %s" .image .write) }}
{{- end }}
{{- end }}
