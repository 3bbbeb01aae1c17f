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

{{- range .Values.protectedVolumes }}
{{- include "csi-proxy.refuseOther" (dict "name" "protectedVolumes" "value" . "pattern" `^([A-Za-z]:\\?|\\\\\?\\Volume\{[0-9A-Fa-f-]{36}\}\\?)$` "be" `a drive letter such as D:, or a volume id \\?\Volume{guid}\`) }}
{{- end }}
{{- include "csi-proxy.refuseOther" (dict "name" "metrics.bindAddress" "value" .Values.metrics.bindAddress "pattern" `^((([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])(\.|$)){4}|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)?$` "be" `an IP address of the node, such as 127.0.0.1 or ::1, or "" for all`) }}
{{- include "csi-proxy.refuseOther" (dict "name" "metrics.podMonitor.interval" "value" .Values.metrics.podMonitor.interval "pattern" `^[1-9][0-9]*(ms|s|m|h)$` "be" "a time with a unit, such as 30s") }}
{{- include "csi-proxy.refuseOther" (dict "name" "service.name" "value" .Values.service.name "pattern" `^[A-Za-z0-9_.-]*$` "be" "the name of a Windows service, of letters, digits and _ . -, or empty") }}
{{- $share := kindIs "string" .Values.maxUnavailable | ternary `^([1-9]|[1-9][0-9]|100)%$` `^[1-9]` }}
{{- include "csi-proxy.refuseOther" (dict "name" "maxUnavailable" "value" (toString .Values.maxUnavailable) "pattern" $share "be" "a number of nodes from 1 on, or a share of them, 1% to 100%") }}

{{- include "csi-proxy.refuseOther" (dict "name" "goMemoryLimit" "value" .Values.goMemoryLimit "pattern" `^([1-9][0-9]*(B|KiB|MiB|GiB))?$` "be" "a number with a unit of Go's, B, KiB, MiB or GiB, such as 400MiB, or empty") }}
{{- $units := dict "B" 1 "" 1 "Ki" 1024 "KiB" 1024 "Mi" 1048576 "MiB" 1048576 "Gi" 1073741824 "GiB" 1073741824 "k" 1000 "M" 1000000 "G" 1000000000 }}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString }}
{{- if and (eq .Values.mode "container") .Values.goMemoryLimit (regexMatch `^[0-9]+(Ki|Mi|Gi|k|M|G)?$` $limit) }}
{{- $bytes := list }}
{{- range list .Values.goMemoryLimit $limit }}
{{- $bytes = append $bytes (mul (regexFind `^[0-9]+` .) (get $units (regexFind `[A-Za-z]*$` .))) }}
{{- end }}
{{- if ge (index $bytes 0) (index $bytes 1) }}
{{- fail (printf "goMemoryLimit is %s, and resources.limits.memory %s: it must be lower, by about a fifth, or Windows refuses memory before Go frees any" .Values.goMemoryLimit $limit) }}
{{- end }}
{{- end }}

{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
{{- if hasKey $.Values.podLabels $label }}
{{- fail (printf "podLabels: the chart sets %s, by which the DaemonSet finds its pods" $label) }}
{{- end }}
{{- end }}
{{- if and .Values.drivers .Values.exampleDriver.enabled (not (or .Values.sharedEndpoints (include "csi-proxy.exampleDriverOwn" .))) }}
{{- fail "exampleDriver has no endpoints: the published ones are off while drivers names some, and it isn't among them. Add example.csi-proxy.dev to drivers, or set sharedEndpoints" }}
{{- end }}
{{- $names := list }}
{{- range .Values.drivers }}
{{- include "csi-proxy.refuseOther" (dict "name" "drivers" "value" .name "pattern" `^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$` "be" "the name of a CSIDriver, such as ebs.csi.aws.com") }}
{{- $names = append $names (lower .name) }}
{{- end }}
{{- if ne (uniq $names | len) (len $names) }}
{{- fail "drivers: one of the drivers is there twice" }}
{{- end }}
{{- $accounts := list }}
{{- range .Values.admissionPolicy.accounts }}
{{- $accounts = append $accounts (printf "%s.%s" .namespace .serviceAccount) }}
{{- if not (or (get . "driver") (get . "hostPaths")) }}
{{- fail (printf "admissionPolicy.accounts: %s of %s needs a driver or hostPaths" .serviceAccount .namespace) }}
{{- end }}
{{- if and (get . "pipes") (not (get . "driver")) }}
{{- fail (printf "admissionPolicy.accounts: the pipes of %s of %s need the driver whose they are" .serviceAccount .namespace) }}
{{- end }}
{{- end }}
{{- if ne (uniq $accounts | len) (len $accounts) }}
{{- fail "admissionPolicy.accounts: one of the accounts is there twice" }}
{{- end }}
{{- if hasKey .Values.nodeSelector "kubernetes.io/os" }}
{{- fail "nodeSelector: the chart sets kubernetes.io/os, to windows" }}
{{- end }}
{{- range $group, $rights := .Values.kubectlPlugin }}
{{- range $rights.subjects }}
{{- if and (eq .kind "ServiceAccount") (not (get . "namespace")) }}
{{- fail (printf "kubectlPlugin.%s.subjects: the ServiceAccount %s needs its namespace" $group .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- $flags := .Files.Get "files/flags.txt" | trim | splitList "\n" }}
{{- range .Values.extraArgs }}
{{- if not (hasPrefix "-" .) }}
{{- fail (printf "extraArgs: %q isn't a flag: write -NAME or -NAME=VALUE, each as one item of the list" .) }}
{{- end }}
{{- if regexMatch `[&|<>^%"]` . }}
{{- fail (printf "extraArgs: %q has one of & | < > ^ \" or the percent sign, which cmd.exe takes as its own: HostProcess containers are started by it" .) }}
{{- end }}
{{- $name := . | trimPrefix "-" | trimPrefix "-" | splitList "=" | first }}
{{- if and (eq $name "drivers") $.Values.drivers }}
{{- fail "extraArgs: -drivers is given by drivers" }}
{{- end }}
{{- $value := get (dict "kubelet-path" "kubeletPath" "metrics-bind-address" "metrics.bindAddress and metrics.port" "grace-period" "gracePeriodSeconds") $name }}
{{- if $value }}
{{- fail (printf "extraArgs: -%s is given by %s, which other parts of the manifests follow; set that" $name $value) }}
{{- end }}
{{- if has (printf "%s=" $name) $flags }}
{{- if not (contains "=" .) }}
{{- fail (printf "extraArgs: the flag -%s takes a value: write %s=VALUE as one item of the list" $name .) }}
{{- end }}
{{- else if not (has $name $flags) }}
{{- fail (printf "extraArgs: %q isn't a flag of the daemon on a node; docs/flags.md lists them" .) }}
{{- else if and (contains "=" .) (not (regexMatch "=(true|false)$" .)) }}
{{- fail (printf "extraArgs: %q: the flag -%s takes =true or =false, or nothing for true" . $name) }}
{{- end }}
{{- end }}

{{- include "csi-proxy.refuseImage" (dict "image" (include "csi-proxy.image" .) "write" "image.repository is its name without a tag, in lower case, image.tag its tag, and image.digest sha256: with 64 hexadecimal digits") }}
{{- if .Values.exampleDriver.enabled }}
{{- if not .Values.exampleDriver.image }}
{{- fail "exampleDriver.image is empty: nobody has published an image of the example driver. Build one and push it, as docs/drivers.md says, and name it here; make publish pushes that of CSI Proxy itself" }}
{{- end }}
{{- range $name := list "image" "registrarImage" "livenessProbeImage" }}
{{- include "csi-proxy.refuseImage" (dict "image" (get $.Values.exampleDriver $name) "write" (printf "exampleDriver.%s is NAME:TAG, with the name in lower case" $name)) }}
{{- end }}
{{- range $group, $version := .Values.exampleDriver.pipes }}
{{- include "csi-proxy.refuseOther" (dict "name" (printf "exampleDriver.pipes.%s" $group) "value" $version "pattern" `^v[0-9]+((alpha|beta)[0-9]+)?$` "be" "a version of the API such as v1beta2") }}
{{- end }}
{{- if eq .Values.exampleDriver.mode "hostProcess" }}
{{- $ports := list (int .Values.metrics.port) (int .Values.exampleDriver.livenessPort) (int .Values.exampleDriver.registrarPort) }}
{{- if lt (uniq $ports | len) 3 }}
{{- fail "metrics.port, exampleDriver.livenessPort and exampleDriver.registrarPort are all ports of the node: each must be another one" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The values of values.yaml: a template can't read that file. */}}
{{- $resources := dict "requests" (dict "cpu" "10m" "memory" "32Mi") "limits" (dict "memory" "128Mi") }}
{{- $service := dict "name" "" "directory" `C:\Program Files\csi-proxy` "resources" $resources }}
{{- if eq .Values.mode "container" }}
{{- range $name, $default := $service }}
{{- if ne (get $.Values.service $name | toJson) (toJson $default) }}
{{- fail (printf "service.%s is set, but in mode container there is no Windows service; choose mode service, or leave service.%s out" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.service.restore (ne .Values.mode "removeService") }}
{{- fail (printf "service.restore brings the published daemon back when the service is removed: it is for mode removeService, and mode is %s" .Values.mode) }}
{{- end }}
{{- end }}

{{/* A value in the place of which pods could only fail. */}}
{{- define "csi-proxy.refuseOther" -}}
{{- if not (regexMatch .pattern .value) }}
{{- fail (printf "%s is %q: it must be %s" .name .value .be) }}
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
