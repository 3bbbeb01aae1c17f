// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common/util"
	"sigs.k8s.io/yaml"
)

// changes are a change for each value of values.yaml, and the values with which it matters.
var changes = []struct {
	value string
	to    any
	with  string
}{
	{"mode", "container", ""},
	{"service.name", "csiproxy", ""},
	{"service.directory", `D:\csi-proxy`, ""},
	{"service.restore", true, "mode: removeService"},
	{"service.resources.requests.cpu", "20m", ""},
	{"service.resources.requests.memory", "20Mi", ""},
	{"service.resources.limits.memory", "1Gi", ""},
	{"image.repository", "registry.example.com/csi-proxy", ""},
	{"image.tag", "v1.2.3", ""},
	{"image.digest", "sha256:" + strings.Repeat("0a", 32), ""},
	{"image.pullPolicy", "Always", ""},
	{"imagePullSecrets", []any{map[string]any{"name": "secret"}}, ""},
	{"kubeletPath", `D:\kubelet`, ""},
	{"workingDirs", []any{`C:\k\csi`}, ""},
	{"protectedVolumes", []any{"D:"}, ""},
	{"drivers", []any{map[string]any{"name": "ebs.csi.aws.com"}}, "mode: container"},
	{"sharedEndpoints", true, "{mode: container, drivers: [{name: ebs.csi.aws.com}]}"},
	{"requirePrivacy", false, ""},
	{"gracePeriodSeconds", 60, ""},
	{"logLevel", 4, ""},
	{"extraArgs", []any{"-max-calls=100"}, ""},
	{"metrics.bindAddress", "", ""},
	{"metrics.port", 19810, ""},
	{"metrics.prometheusRule.enabled", true, ""},
	{"metrics.prometheusRule.labels", map[string]any{"a": "b"}, "metrics: {prometheusRule: {enabled: true}}"},
	{"metrics.dashboard.enabled", true, ""},
	{"metrics.dashboard.labels.grafana_dashboard", "2", "metrics: {dashboard: {enabled: true}}"},
	{"metrics.podMonitor.endpoint", map[string]any{"scrapeTimeout": "9s"},
		"metrics: {bindAddress: '', podMonitor: {enabled: true}}"},
	{"metrics.podMonitor.enabled", true, "metrics: {bindAddress: ''}"},
	{"metrics.podMonitor.interval", "1m", "metrics: {bindAddress: '', podMonitor: {enabled: true}}"},
	{"metrics.podMonitor.labels", map[string]any{"a": "b"}, "metrics: {bindAddress: '', podMonitor: {enabled: true}}"},
	{"serviceAccount.create", false, ""},
	{"serviceAccount.name", "windows", ""},
	{"priorityClassName", "", ""},
	{"resourceQuota.enabled", true, ""},
	{"resourceQuota.pods", 5, "resourceQuota: {enabled: true}"},
	{"admissionPolicy.enabled", true, ""},
	{"admissionPolicy.validationActions", []any{"Warn", "Audit"}, "admissionPolicy: {enabled: true}"},
	{"admissionPolicy.accounts", []any{map[string]any{"driver": "a.example.com", "namespace": "a", "serviceAccount": "b", "pipes": []any{"disk-v1"}}},
		"admissionPolicy: {enabled: true}"},
	{"nodeSelector", map[string]any{"a": "b"}, ""},
	{"tolerations", []any{}, ""},
	{"affinity", map[string]any{"nodeAffinity": map[string]any{}}, ""},
	{"maxUnavailable", 2, ""},
	{"resources.requests.cpu", "20m", "mode: container"},
	{"resources.requests.memory", "20Mi", "mode: container"},
	{"resources.limits.memory", "1Gi", "mode: container"},
	{"goMemoryLimit", "300MiB", "mode: container"},
	{"podLabels", map[string]any{"a": "b"}, ""},
	{"podAnnotations", map[string]any{"a": "b"}, ""},
	{"kubectlPlugin.viewers.enabled", true, ""},
	{"kubectlPlugin.viewers.subjects", []any{map[string]any{"kind": "Group", "name": "a"}},
		"kubectlPlugin: {viewers: {enabled: true}}"},
	{"kubectlPlugin.why.enabled", true, ""},
	{"kubectlPlugin.why.subjects", []any{map[string]any{"kind": "Group", "name": "a"}}, "kubectlPlugin: {why: {enabled: true}}"},
	{"kubectlPlugin.nodeAdministrators.enabled", true, ""},
	{"kubectlPlugin.nodeAdministrators.subjects", []any{map[string]any{"kind": "Group", "name": "a"}},
		"kubectlPlugin: {nodeAdministrators: {enabled: true}}"},
	{"exampleDriver.enabled", true, "exampleDriver: {image: 'csi-example-driver:classic'}"},
	{"exampleDriver.mode", "hostProcess", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.image", "a:b", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.registrarImage", "a:b", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.livenessProbeImage", "a:b", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.pullPolicy", "Always", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.pipes.storage", "v1alpha2", "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"},
	{"exampleDriver.livenessPort", 19811, "exampleDriver: {enabled: true, image: 'csi-example-driver:classic', mode: hostProcess}"},
	{"exampleDriver.registrarPort", 19812, "exampleDriver: {enabled: true, image: 'csi-example-driver:classic', mode: hostProcess}"},
}

// leaves returns the paths of all values that aren't maps with something in them.
func leaves(prefix string, values map[string]any) []string {
	var paths []string
	for key, value := range values {
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			paths = append(paths, leaves(prefix+key+".", below)...)
		} else {
			paths = append(paths, prefix+key)
		}
	}
	return paths
}

// nest returns the map in which value is at a path such as a.b.
func nest(path string, value any) map[string]any {
	key, below, more := strings.Cut(path, ".")
	if more {
		return map[string]any{key: nest(below, value)}
	}
	return map[string]any{key: value}
}

func parse(t testing.TB, values string) map[string]any {
	t.Helper()
	parsed := make(map[string]any)
	if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	return parsed
}

// merge returns values with others over them.
func merge(t testing.TB, values string, others map[string]any) string {
	t.Helper()
	merged, err := yaml.Marshal(util.MergeTables(others, parse(t, values)))
	must(t, err)
	return string(merged)
}
