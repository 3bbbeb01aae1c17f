// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// What selects pods selects the daemon's, and the dashboard is the dashboard.
func TestChartSelects(t *testing.T) {
	objects := manifests.Decode(t, manifests.MustHelm(t, "mode: container\nresourceQuota: {enabled: true}\n"+
		"metrics: {bindAddress: '', podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}\n"))
	sets, monitors := manifests.All[*apps.DaemonSet](objects), manifests.All[*monitoring.PodMonitor](objects)
	quotas := manifests.All[*core.ResourceQuota](objects)
	if len(sets) != 1 || len(monitors) != 1 || len(quotas) != 1 {
		t.Fatalf("%d DaemonSets, %d PodMonitors, %d quotas", len(sets), len(monitors), len(quotas))
	}
	pod, monitor, quota := sets[0].Spec.Template, monitors[0], quotas[0]

	selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
	must(t, err)
	if selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) || monitor.Namespace != sets[0].Namespace {
		t.Errorf("the PodMonitor selects %v in %s; the pods have %v", selector, monitor.Namespace, pod.Labels)
	}
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p core.ContainerPort) bool {
			return endpoint.Port != nil && p.Name == *endpoint.Port
		}) {
			t.Errorf("the PodMonitor's port is %v; the pods have %v", endpoint.Port, pod.Spec.Containers[0].Ports)
		}
	}

	class := quota.Spec.ScopeSelector.MatchExpressions
	if len(class) != 1 || class[0].ScopeName != core.ResourceQuotaScopePriorityClass ||
		!slices.Equal(class[0].Values, []string{pod.Spec.PriorityClassName}) || quota.Namespace != sets[0].Namespace {
		t.Errorf("the quota is for %v in %s; the pods have the class %s", class, quota.Namespace, pod.Spec.PriorityClassName)
	}

	file, err := os.ReadFile(filepath.Join(manifests.ChartDir(t), "files/dashboard.json"))
	must(t, err)
	boards := manifests.All[*core.ConfigMap](objects)
	if len(boards) != 1 {
		t.Fatalf("there are %d ConfigMaps, not the dashboard's alone", len(boards))
	}
	text := boards[0].Data["csi-proxy.json"]
	var dashboard struct{ Panels []any }
	must(t, json.Unmarshal([]byte(text), &dashboard))
	if len(dashboard.Panels) == 0 || text != string(file) && text+"\n" != string(file) {
		t.Errorf("ConfigMap %s has %d panels, and isn't files/dashboard.json", boards[0].Name, len(dashboard.Panels))
	}
}
