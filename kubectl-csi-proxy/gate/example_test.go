// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"context"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/gate"
)

// upgradeable is the condition by which an operator keeps the cluster from an upgrade. What
// can't be looked at isn't ready.
func upgradeable(ctx context.Context, client kubernetes.Interface) meta.Condition {
	condition := meta.Condition{Type: "Upgradeable", Status: meta.ConditionFalse, Reason: "WindowsNodesNotReadyForCSI"}
	report, err := gate.Check(ctx, client, gate.Options{Drivers: []string{"disk.csi.azure.com"}, WithoutDaemon: true})
	if err != nil {
		condition.Reason, condition.Message = "CheckFailed", err.Error()
		return condition
	}
	if report.Ready {
		condition.Status, condition.Reason = meta.ConditionTrue, "AsExpected"
		return condition
	}
	var problems []string
	for _, n := range report.Nodes {
		for _, problem := range n.Problems {
			problems = append(problems, n.Name+": "+problem)
		}
	}
	condition.Message = strings.Join(problems, "\n")
	return condition
}

// An operator sets a condition from a check: see docs/upgrade-gate.md.
func ExampleCheck() {
	client := fake.NewClientset(&core.Node{
		ObjectMeta: meta.ObjectMeta{Name: "win-1", Labels: map[string]string{core.LabelOSStable: "windows"}},
		Status:     core.NodeStatus{Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}},
	})
	condition := upgradeable(context.Background(), client)
	fmt.Println(condition.Type, condition.Status, condition.Reason)
	fmt.Println(condition.Message)
	// Output:
	// Upgradeable False WindowsNodesNotReadyForCSI
	// win-1: the CSI driver disk.csi.azure.com isn't registered
	// win-1: there is no CSINode: kubelet hasn't registered any CSI driver
}
