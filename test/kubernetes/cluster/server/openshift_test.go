// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// operatorsNamespace is where OpenShift's operators run their drivers.
const operatorsNamespace = "openshift-cluster-csi-drivers"

// makeOperatorsNamespace makes the namespace as openshift/cluster-storage-operator bb8d2fd1 has it.
func makeOperatorsNamespace(t *testing.T, apply *applier) {
	t.Helper()
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: `+operatorsNamespace+`, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
}

// TestWindowsHalves: what docs/openshift.md adds beside OpenShift's operators are a DaemonSet for Windows nodes, its account
// and the rights of this account. There is no second controller or CSIDriver, and nothing has a name of the operators' objects.
func TestWindowsHalves(t *testing.T) {
	apply := newApplier(t)
	makeOperatorsNamespace(t, apply)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-baseline, labels: {pod-security.kubernetes.io/enforce: baseline}}}`))
	kinds := []string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "DaemonSet"}
	for base, rights := range map[string][]authorization.ResourceAttributes{
		"ebs": {{Verb: "get", Resource: "nodes"}},
		"vsphere": {{Verb: "get", Resource: "nodes"}, {Verb: "create", Group: "cns.vmware.com", Resource: "csinodetopologies"},
			{Verb: "watch", Resource: "configmaps", Namespace: operatorsNamespace}},
	} {
		name := base + "-csi-node-windows"
		rendered := manifests.Kustomized(t, "openshift/"+base)
		for _, document := range manifests.Documents(t, rendered) {
			object := read(t, document)
			if !slices.Contains(kinds, object.GetKind()) || object.GetKind() != "Namespace" && object.GetName() != name {
				t.Errorf("%s has the %s %s", base, object.GetKind(), object.GetName())
			}
			apply.really(t, document)
		}
		template := manifests.Templates(manifests.Decode(t, rendered))[0]
		must(t, tryPod(t, template, template.Namespace))
		apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: `+name+`, namespace: csi-baseline}}`))
		if err := tryPod(t, template, "csi-baseline"); !apierrors.IsForbidden(err) {
			t.Errorf("%s without the namespace's labels: %v", base, err)
		}
		for _, right := range rights {
			checkRight(t, template.Namespace, name, right, true)
		}
		checkRight(t, template.Namespace, name, authorization.ResourceAttributes{Verb: "patch", Resource: "nodes"}, false)
		checkRight(t, template.Namespace, name, authorization.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: operatorsNamespace}, false)
	}
}

func checkRight(t *testing.T, namespace, account string, right authorization.ResourceAttributes, want bool) {
	t.Helper()
	review, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{
		Spec: authorization.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &right},
	}, meta.CreateOptions{})
	must(t, err)
	if review.Status.Allowed != want {
		t.Errorf("%s may %s %s: %t", account, right.Verb, right.Resource, review.Status.Allowed)
	}
}

// TestSCC gives the constraints to the server with OpenShift's definition of them. The admission that enforces them is in
// OpenShift's own API server only.
func TestSCC(t *testing.T) {
	definition, err := os.ReadFile("testdata/scc.yaml")
	must(t, err)
	makeKind(t, definition)
	scc, err := os.ReadFile(filepath.Join(manifests.KustomizeDir(t), "../openshift/scc.yaml"))
	must(t, err)
	apply := newApplier(t)
	must(t, apply.apply(t, scc, nil))
	for from, to := range map[string]string{"allowHostPID": "allowHostPid", "runAsUser: {type:": "runAsUser: {kind:", "allowHostIPC: false\n": ""} {
		changed := bytes.ReplaceAll(scc, []byte(from), []byte(to))
		if bytes.Equal(changed, scc) || apply.apply(t, changed, []string{meta.DryRunAll}) == nil {
			t.Errorf("the server takes %q in place of %q", to, from)
		}
	}
}
