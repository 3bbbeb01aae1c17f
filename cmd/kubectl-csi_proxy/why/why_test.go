// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// The places at which a chain breaks are tested with a real API server:
// test/kubernetes/cluster/server.

// TestAnswer: the link that the others wait for is the first broken one of the control plane, else the
// last broken one on the node, else the driver's last error. The driver must be registered before anything is attached.
func TestAnswer(t *testing.T) {
	chainOf := func(states ...Link) *chain { return &chain{links: states} }
	link := func(kind string, s State) Link {
		return Link{Kind: kind, Object: "o", State: s, Finding: "f", Advice: "a"}
	}
	for _, tt := range []struct {
		name  string
		c     *chain
		kind  string // of the broken link; empty for none
		state State
	}{
		{"all is well", chainOf(link(KindClaim, OK), link(KindWindows, OK)), "", OK},
		{"the control plane comes first", chainOf(link(KindClaim, Broken), link(KindAttachment, Broken), link(KindDaemon, Broken)),
			KindClaim, Broken},
		{"a pod isn't scheduled without its claim", chainOf(link(KindPod, Broken), link(KindClaim, Broken)), KindClaim, Broken},
		{"a driver doesn't run without its daemon", chainOf(link(KindRegistration, Broken), link(KindDriver, Broken),
			link(KindDaemon, Broken), link(KindLastError, Broken)), KindDaemon, Broken},
		{"only the driver is broken", chainOf(link(KindRegistration, Broken), link(KindDriver, Broken), link(KindDaemon, OK)),
			KindDriver, Broken},
		{"nothing is attached without the driver", chainOf(link(KindAttachment, Broken), link(KindRegistration, Broken), link(KindDriver, Broken)),
			KindDriver, Broken},
		{"the driver is there, and nothing is attached", chainOf(link(KindAttachment, Broken), link(KindRegistration, OK), link(KindDaemon, Broken)),
			KindAttachment, Broken},
		{"an error, and nothing else", chainOf(link(KindDaemon, Unknown), link(KindLastError, Broken)), KindLastError, Broken},
		{"something is under way", chainOf(link(KindDaemon, OK), link(KindWindows, Waiting)), "", Waiting},
		{"something isn't seen", chainOf(link(KindDaemon, OK), link(KindWindows, Unknown)), "", Unknown},
	} {
		a := tt.c.answer()
		kind := ""
		if a.Broken != nil {
			kind = a.Links[*a.Broken].Kind
		}
		if kind != tt.kind || a.State != tt.state || a.Answer == "" {
			t.Errorf("%s: %s, %s, %q", tt.name, kind, a.State, a.Answer)
		}
	}
}

// TestWindows: a call that takes long on a disk that is well is no fault, until it takes too long.
func TestWindows(t *testing.T) {
	const hang = "csi_proxy_windows_hanging_call_start_time_seconds"
	now := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		metrics string
		state   State
		finding string
	}{
		{"csi_proxy_ready 1\n", OK, "no call hangs"},
		{hang + `{call="MSFT_Volume.Format",object="v"} 1799999960` + "\n", Waiting, "formatting for 40s"},
		{hang + `{call="MSFT_Volume.Format",object="v"} 1799990000` + "\n", Broken, "MSFT_Volume.Format for 2h46m40s"},
		{hang + `{call="CreateFileW",object="\\\\.\\PhysicalDrive2"} 1799999990` + "\n", Broken, "CreateFileW for 10s"},
	} {
		metrics, err := cluster.ParseMetrics([]byte(tt.metrics))
		if err != nil {
			t.Fatal(err)
		}
		c := &chain{now: now, node: &core.Node{}}
		c.checkWindows(metrics)
		if l := c.links[0]; l.State != tt.state || !strings.Contains(l.Finding, tt.finding) {
			t.Errorf("%s: %+v", tt.metrics, l)
		}
	}
}

// TestNothingCanBeRead: what can't be read is never called well, and is listed.
func TestNothingCanBeRead(t *testing.T) {
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "web"}}
	pod.Spec.NodeName = "win-1"
	pod.Spec.Volumes = []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	client := fake.NewClientset(pod)
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.Matches("get", "pods") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no right"))
	})
	answer, err := Query{Client: client, Namespace: "csi-proxy"}.Pod(t.Context(), "shop", "web")
	if err != nil || answer.State != Unknown || answer.Broken != nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	var printed bytes.Buffer
	if err := answer.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{KindLastError, KindNode, KindClaim} {
		if !strings.Contains(printed.String(), "Not seen: "+kind) {
			t.Errorf("%s isn't listed as not seen:\n%s", kind, &printed)
		}
	}
	text, err := json.Marshal(answer)
	if err != nil || !strings.Contains(string(text), `"state":"unknown"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestOverdue: what is still under way is broken once the pod should have its volumes.
func TestOverdue(t *testing.T) {
	class, now := "disks", meta.Now()
	claim := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "data", CreationTimestamp: now},
		Spec: core.PersistentVolumeClaimSpec{StorageClassName: &class}}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "web"}, Status: core.PodStatus{Phase: core.PodPending}}
	pod.Spec.Volumes = []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pending := []runtime.Object{claim, &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: class}, Provisioner: "disk.example.com"}}

	bound := claim.DeepCopy()
	bound.Spec.VolumeName, bound.Status.Phase = "pv", core.ClaimBound
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "disk.example.com"}
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: "node"}, Status: core.NodeStatus{
		Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}}}
	attachment := &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: "attachment", CreationTimestamp: now},
		Spec: storage.VolumeAttachmentSpec{NodeName: "node", Source: storage.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}}
	registered := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: "node"},
		Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: "disk.example.com"}}}}
	scheduled := pod.DeepCopy()
	scheduled.Spec.NodeName = "node"
	attached := attachment.DeepCopy()
	attached.Status.Attached = true
	for name, tt := range map[string]struct {
		objects []runtime.Object
		kind    string // of the link that is broken then
		answer  string
	}{
		"provisioning": {append(pending, scheduled, node), KindClaim, "the cluster has no CSIDriver disk.example.com"},
		"attaching":    {[]runtime.Object{bound, pv, node, registered, scheduled, attachment}, KindAttachment, "neither attached nor refused"},
		"staging":      {[]runtime.Object{bound, pv, node, registered, scheduled, attached}, KindLastError, "still waits for the volumes"},
	} {
		for _, overdue := range []bool{false, true} {
			answer, err := Query{Client: fake.NewClientset(tt.objects...), Namespace: "csi-proxy", Overdue: overdue}.Claim(t.Context(), "shop", "data")
			if err != nil || (answer.State == Broken) != overdue {
				t.Fatalf("%s: overdue %t: %+v, %v", name, overdue, answer, err)
			}
			if overdue && (answer.Links[*answer.Broken].Kind != tt.kind || !strings.Contains(answer.Answer, tt.answer)) {
				t.Errorf("%s: %s", name, answer.Answer)
			}
		}
	}
}

// TestEndedPod: a pod that has ended keeps its claim until it is gone.
func TestEndedPod(t *testing.T) {
	claim := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "data"}}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "job"}, Status: core.PodStatus{Phase: core.PodSucceeded}}
	pod.Spec.Volumes = []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	deleted := meta.Now()
	for _, deletion := range []*meta.Time{nil, &deleted} {
		pod.DeletionTimestamp, pod.Finalizers = deletion, []string{"example.com/wait"}
		answer, err := Query{Client: fake.NewClientset(claim, pod)}.Claim(t.Context(), "shop", "data")
		if uses := answer.Pod == "shop/job"; err != nil || uses != (deletion != nil) {
			t.Errorf("deleted at %v: %+v, %v", deletion, answer, err)
		}
	}
}
