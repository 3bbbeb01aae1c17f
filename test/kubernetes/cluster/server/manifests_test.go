// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// TestServerTakesTheManifests gives all manifests to the server. Namespaces and accounts are
// made, since pods need them; everything else is a dry run, which the server checks as if it
// were not. The pods of each DaemonSet and Deployment are given to it too: no controller makes them here,
// and only a pod meets the rules of its namespace.
func TestServerTakesTheManifests(t *testing.T) {
	makeMonitoring(t)
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: windows, namespace: csi-proxy}}`))
	makeOperatorsNamespace(t, apply)
	for name, rendered := range manifests.Everything(t) {
		for _, document := range manifests.Documents(t, rendered) {
			object := read(t, document)
			switch object.GetKind() {
			case "Namespace", "ServiceAccount":
				apply.really(t, document)
			}
		}
		for _, document := range manifests.Documents(t, rendered) {
			if err := apply.apply(t, document, []string{meta.DryRunAll}); err != nil {
				t.Errorf("%s: %v in:\n%s", name, err, document)
			}
		}
		for _, template := range manifests.Templates(manifests.Decode(t, rendered)) {
			if err := tryPod(t, template, template.Namespace); err != nil {
				t.Errorf("%s: a pod of %s: %v", name, template.Name, err)
			}
		}
	}
}

// TestChartUpgrade installs the chart of a version before, which CSI_PROXY_CHART_BEFORE names, and
// upgrades it, as "test/kubernetes/cluster/run v1.2.2" asks for: the server would refuse a change of what can't be
// changed, such as the selector of a DaemonSet.
func TestChartUpgrade(t *testing.T) {
	before := os.Getenv("CSI_PROXY_CHART_BEFORE")
	if before == "" {
		t.Skip("CSI_PROXY_CHART_BEFORE doesn't name the chart of a version before; run test/kubernetes/cluster/run v1.2.2")
	}
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	for _, values := range []string{"", "mode: container", "kubectlPlugin: {viewers: {enabled: true}}",
		"exampleDriver: {enabled: true}"} {
		old, err := manifests.HelmedFrom(t, before, values)
		if err != nil {
			t.Fatalf("the chart before with %s: %v", values, err)
		}
		for _, rendered := range [][]byte{old, manifests.MustHelm(t, values)} {
			for _, document := range manifests.Documents(t, rendered) {
				if err := apply.apply(t, document, nil); err != nil {
					t.Errorf("with %s: %v", values, err)
				}
			}
		}
	}
}

// TestServerRefuses shows that the server would tell: a field that doesn't exist, a
// HostProcess pod without the node's network, and a namespace that doesn't allow such pods.
func TestServerRefuses(t *testing.T) {
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: baseline}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: csi-proxy, namespace: restricted}}`))
	rendered := string(manifests.Kustomized(t, "hostprocess"))
	template := manifests.Templates(manifests.Decode(t, []byte(rendered)))[0]
	if err := tryPod(t, template, "restricted"); !apierrors.IsForbidden(err) {
		t.Errorf("a HostProcess pod in a namespace with the level baseline: %v", err)
	}
	for from, to := range map[string]string{
		"hostNetwork: true":   "hostNetwork: false",
		"minReadySeconds":     "minReadySecond",
		"name: local-metrics": "name: metrics-and-more-than-fifteen",
		"maxUnavailable: 1":   "maxUnavailable: 101%",
		"name: windows":       "name: linux", // with options that are Windows'
		"type: RollingUpdat":  "type: Recreat",
	} {
		changed := strings.ReplaceAll(rendered, from, to)
		if changed == rendered {
			t.Errorf("%q isn't in the manifests", from)
		}
		refused := false
		for _, document := range manifests.Documents(t, []byte(changed)) {
			if read(t, document).GetKind() == "DaemonSet" {
				refused = apply.apply(t, document, []string{meta.DryRunAll}) != nil
			}
		}
		if !refused {
			t.Errorf("the server takes %q", to)
		}
	}
}

// tryPod gives the server a pod, in a dry run.
func tryPod(t *testing.T, template core.PodTemplateSpec, namespace string) error {
	t.Helper()
	pod := &core.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.GenerateName, pod.Name, pod.Namespace = template.Name+"-", "", namespace
	_, err := cluster.CoreV1().Pods(namespace).Create(t.Context(), pod,
		meta.CreateOptions{DryRun: []string{meta.DryRunAll}, FieldValidation: "Strict"})
	return err
}

// applier applies objects of all kinds that the server knows.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(t *testing.T) *applier {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config)
	must(t, err)
	return &applier{client, restmapper.NewDeferredDiscoveryRESTMapper(
		memory.NewMemCacheClient(cluster.Discovery()))}
}

// apply applies a document as "kubectl apply --server-side" does.
func (a *applier) apply(t *testing.T, document []byte, dryRun []string) error {
	t.Helper()
	object, resource, err := a.resource(t, document)
	if err != nil {
		return err
	}
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(t.Context(), object.GetName(), types.ApplyPatchType, content,
		meta.PatchOptions{FieldManager: "test", DryRun: dryRun, FieldValidation: "Strict", Force: &force})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// remove removes the object of a document.
func (a *applier) remove(t *testing.T, document []byte) error {
	t.Helper()
	object, resource, err := a.resource(t, document)
	if err != nil {
		return err
	}
	return resource.Delete(context.Background(), object.GetName(), meta.DeleteOptions{})
}

// resource returns the object of a document, and the client of its kind and namespace.
func (a *applier) resource(t *testing.T, document []byte) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	t.Helper()
	object := read(t, document)
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, nil, err
	}
	return object, a.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

func (a *applier) really(t *testing.T, document []byte) {
	t.Helper()
	must(t, a.apply(t, document, nil))
}

func read(t *testing.T, document []byte) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
	return object
}

// makeMonitoring makes the server know the kinds of the Prometheus operator. Their fields aren't
// checked by it: the tests without a server decode them into the operator's types.
func makeMonitoring(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"PodMonitor", "PrometheusRule"} {
		makeKind(t, []byte(strings.NewReplacer("PodMonitor", kind, "podmonitor", strings.ToLower(kind)).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, listKind: PodMonitorList, plural: podmonitors, singular: podmonitor}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)))
	}
}

// makeKind makes the server know a kind by its definition.
func makeKind(t *testing.T, definition []byte) {
	t.Helper()
	apply := newApplier(t)
	apply.really(t, definition)
	name := read(t, definition).GetName()
	must(t, controlplane.Await(t.Context(), "the server knows "+name, cluster.Ended, func() (bool, error) {
		object, err := apply.client.Resource(
			schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
			Get(t.Context(), name, meta.GetOptions{})
		if err != nil {
			return false, err
		}
		status, _, err := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
		conditions, _ := status.([]any) // none at first
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, err
	}))
}
