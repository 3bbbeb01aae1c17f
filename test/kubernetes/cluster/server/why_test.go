// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// waitingPod is a pod that waits for its volume, with all that the chain needs. Each part is there and
// well; nil or empty leaves it out.
type waitingPod struct {
	pod        *core.Pod
	events     []core.Event // about the pod
	claim      *core.PersistentVolumeClaim
	ofClaim    []core.Event
	class      *storage.StorageClass
	volume     *core.PersistentVolume
	attachment *storage.VolumeAttachment
	node       *core.Node
	csiNode    *storage.CSINode
	driver     *core.Pod
	daemon     *core.Pod
	metrics    string // what the daemon serves
}

const whyDriver = "disk.example.com"

// newWaitingPod returns one in a namespace of its own, on a node of its own. All that isn't in a namespace is
// named like it.
func newWaitingPod(name string, metrics *net.TCPAddr) *waitingPod {
	windows := map[string]string{core.LabelOSStable: "windows", "zone": "a"}
	size := core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	once := []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	long := meta.NewTime(time.Now().Add(-time.Hour))
	ready := []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	w := &waitingPod{metrics: "csi_proxy_build_info{version=\"v1.2.3\"} 1\ncsi_proxy_ready 1\n"}
	w.node = &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: windows}, Status: core.NodeStatus{
		Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}}}
	w.csiNode = &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: storage.CSINodeSpec{
		Drivers: []storage.CSINodeDriver{{Name: whyDriver, NodeID: name}}}}
	w.class = &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: name}, Provisioner: whyDriver}
	w.claim = &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Namespace: name, Name: "data"},
		Spec: core.PersistentVolumeClaimSpec{AccessModes: once, VolumeName: name, StorageClassName: &name,
			Resources: core.VolumeResourceRequirements{Requests: size}},
		Status: core.PersistentVolumeClaimStatus{Phase: core.ClaimBound}}
	w.volume = &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: core.PersistentVolumeSpec{
		Capacity: size, AccessModes: once, StorageClassName: name,
		ClaimRef: &core.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: name, Name: "data"},
		PersistentVolumeSource: core.PersistentVolumeSource{
			CSI: &core.CSIPersistentVolumeSource{Driver: whyDriver, VolumeHandle: "vol-1"}},
	}}
	w.attachment = &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: "csi-" + name},
		Spec: storage.VolumeAttachmentSpec{Attacher: whyDriver, NodeName: name,
			Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name}},
		Status: storage.VolumeAttachmentStatus{Attached: true}}
	w.pod = &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: name, Name: "web"},
		Spec: core.PodSpec{NodeName: name, Containers: []core.Container{{Name: "web", Image: "web"}},
			Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
				PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
		Status: core.PodStatus{Phase: core.PodPending, ContainerStatuses: []core.ContainerStatus{{Name: "web",
			State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}}}}}}
	w.driver = &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: name, Name: "driver"},
		Spec: core.PodSpec{NodeName: name, Containers: []core.Container{{Name: "driver", Image: "driver"}},
			Volumes: []core.Volume{hostPath("pipe", `\\.\pipe\csi-proxy-disk-v1`),
				hostPath("plugin", `C:\var\lib\kubelet\plugins\`+whyDriver)}},
		Status: core.PodStatus{Phase: core.PodRunning, Conditions: ready}}
	w.daemon = &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "csi-proxy", Name: "csi-proxy-" + name,
		Labels: map[string]string{"app.kubernetes.io/name": "csi-proxy", "app.kubernetes.io/component": "daemon"}},
		Spec: core.PodSpec{NodeName: name, Containers: []core.Container{{Name: "csi-proxy", Image: "csi-proxy:v1.2.3",
			Ports: []core.ContainerPort{{Name: "metrics", ContainerPort: int32(metrics.Port)}}}}},
		Status: core.PodStatus{Phase: core.PodRunning, Conditions: ready, PodIP: metrics.IP.String(),
			PodIPs: []core.PodIP{{IP: metrics.IP.String()}}, StartTime: &long}}
	return w
}

func hostPath(name, path string) core.Volume {
	return core.Volume{Name: name, VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: path}}}
}

// crashes makes a pod one whose container crashes.
func crashes(p *core.Pod, lastWords string) {
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []core.ContainerStatus{{Name: p.Spec.Containers[0].Name, RestartCount: 7,
		State:                core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
		LastTerminationState: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 1, Message: lastWords}}}}
}

func event(reason, message string) core.Event {
	return core.Event{ObjectMeta: meta.ObjectMeta{GenerateName: "e-"}, Type: core.EventTypeWarning, Reason: reason, Message: message,
		LastTimestamp: meta.NewTime(time.Now().Add(-2 * time.Minute))}
}

// create gives all parts to the API server, with their states.
func (w *waitingPod) create(t *testing.T) {
	t.Helper()
	ctx, name := t.Context(), w.pod.Namespace
	core1, storage1 := cluster.CoreV1(), cluster.StorageV1()
	_, err := core1.Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
	must(t, err)
	_, err = core1.ServiceAccounts(name).Create(ctx, &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "default"}}, meta.CreateOptions{})
	must(t, err)
	if w.node != nil {
		status := w.node.Status
		n, err := core1.Nodes().Create(ctx, w.node, meta.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { must(t, core1.Nodes().Delete(context.WithoutCancel(ctx), name, meta.DeleteOptions{})) })
		n.Status = status
		_, err = core1.Nodes().UpdateStatus(ctx, n, meta.UpdateOptions{})
		must(t, err)
	}
	if w.csiNode != nil {
		_, err := storage1.CSINodes().Create(ctx, w.csiNode, meta.CreateOptions{})
		must(t, err)
	}
	if w.class != nil {
		_, err := storage1.StorageClasses().Create(ctx, w.class, meta.CreateOptions{})
		must(t, err)
	}
	if w.claim != nil {
		status := w.claim.Status
		claim, err := core1.PersistentVolumeClaims(name).Create(ctx, w.claim, meta.CreateOptions{})
		must(t, err)
		claim.Status = status
		_, err = core1.PersistentVolumeClaims(name).UpdateStatus(ctx, claim, meta.UpdateOptions{})
		must(t, err)
		createEvents(t, "PersistentVolumeClaim", claim.ObjectMeta, w.ofClaim)
	}
	if w.volume != nil {
		_, err := core1.PersistentVolumes().Create(ctx, w.volume, meta.CreateOptions{})
		must(t, err)
	}
	if w.attachment != nil {
		status := w.attachment.Status
		a, err := storage1.VolumeAttachments().Create(ctx, w.attachment, meta.CreateOptions{})
		must(t, err)
		a.Status = status
		_, err = storage1.VolumeAttachments().UpdateStatus(ctx, a, meta.UpdateOptions{})
		must(t, err)
	}
	for _, p := range []*core.Pod{w.driver, w.daemon, w.pod} {
		if p == nil {
			continue
		}
		status := p.Status
		created, err := core1.Pods(p.Namespace).Create(ctx, p, meta.CreateOptions{})
		must(t, err)
		created.Status = status
		_, err = core1.Pods(p.Namespace).UpdateStatus(ctx, created, meta.UpdateOptions{})
		must(t, err)
		if p == w.pod {
			createEvents(t, "Pod", created.ObjectMeta, w.events)
		}
	}
}

func createEvents(t *testing.T, kind string, about meta.ObjectMeta, events []core.Event) {
	t.Helper()
	for _, e := range events {
		e.InvolvedObject = core.ObjectReference{Kind: kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID}
		_, err := cluster.CoreV1().Events(about.Namespace).Create(t.Context(), &e, meta.CreateOptions{})
		must(t, err)
	}
}

func pending(w *waitingPod) {
	w.claim.Spec.VolumeName, w.claim.Status.Phase = "", core.ClaimPending
	w.volume, w.attachment = nil, nil
}

func hang(call string, since time.Duration) string {
	return fmt.Sprintf("csi_proxy_build_info{version=\"v1.2.3\"} 1\ncsi_proxy_ready 1\n"+
		"csi_proxy_windows_hanging_call_start_time_seconds{call=%q,object=%q} %d\n", call, `\\.\PhysicalDrive2`,
		time.Now().Add(-since).Unix())
}

// TestWhy runs "kubectl csi-proxy why", with no right but those of its manifest, for a pod whose chain is
// broken at each place.
func TestWhy(t *testing.T) {
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: csi-proxy}}`))
	for _, dir := range []string{"kubectl-plugin", "metrics-reader"} {
		for _, document := range manifests.Documents(t, manifests.Kustomized(t, dir)) {
			apply.really(t, document)
		}
	}
	plugin := build(t, "cmd/kubectl-csi_proxy", "kubectl-csi_proxy")
	served := ""
	listener, err := net.Listen("tcp", net.JoinHostPort(address(t), "0"))
	must(t, err)
	daemon := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, served) })}}
	daemon.Start()
	defer daemon.Close()

	for name, tt := range map[string]struct {
		breaks func(*waitingPod)
		arg    string // "web" unless given
		// want is the kind of the broken link, or the state if none is broken.
		want, answer string
	}{
		"unscheduled": {func(w *waitingPod) {
			w.pod.Spec.NodeName = ""
			w.pod.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
				Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient memory."}}
		}, "", "pod", "Insufficient memory"},
		"node-gone":      {func(w *waitingPod) { w.node = nil }, "", "node", "no such node"},
		"node-not-ready": {func(w *waitingPod) { w.node.Status.Conditions[0].Status = core.ConditionFalse }, "", "node", "isn't ready"},
		"no-claim":       {func(w *waitingPod) { w.claim = nil }, "", "claim", "doesn't exist"},
		"no-class":       {func(w *waitingPod) { pending(w); w.class = nil }, "pvc/data", "claim", "its StorageClass no-class doesn't exist"},
		"not-provisioned": {func(w *waitingPod) {
			pending(w)
			w.ofClaim = []core.Event{event("ProvisioningFailed", "rpc error: quota exceeded")}
		}, "", "claim", "quota exceeded"},
		"being-made": {pending, "", "waiting", "has been creating"},
		"claim-lost": {func(w *waitingPod) { w.claim.Status.Phase = core.ClaimLost }, "", "claim", "is gone"},
		"no-volume":  {func(w *waitingPod) { w.volume = nil }, "", "volume", "doesn't exist"},
		"other-zone": {func(w *waitingPod) {
			w.volume.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{
				{MatchExpressions: []core.NodeSelectorRequirement{{Key: "zone", Operator: core.NodeSelectorOpIn, Values: []string{"b"}}}}}}}
		}, "", "volume", "can't be used on the node"},
		"not-asked-to-attach": {func(w *waitingPod) { w.attachment = nil }, "", "attachment", "hasn't asked"},
		"not-attached": {func(w *waitingPod) {
			w.attachment.Status = storage.VolumeAttachmentStatus{AttachError: &storage.VolumeError{
				Time: meta.NewTime(time.Now().Add(-time.Minute)), Message: "rpc error: the instance has 28 disks"}}
		}, "", "attachment", "28 disks"},
		"attached-elsewhere": {func(w *waitingPod) { w.attachment.Spec.NodeName = "win-old" }, "", "attachment", "still attached to win-old"},
		"not-registered":     {func(w *waitingPod) { w.csiNode.Spec.Drivers = nil }, "", "registration", "isn't registered"},
		"no-driver":          {func(w *waitingPod) { w.csiNode.Spec.Drivers, w.driver = nil, nil }, "", "driver", "has no pod of the driver"},
		"driver-crashes": {func(w *waitingPod) { w.csiNode.Spec.Drivers = nil; crashes(w.driver, "no metadata service") }, "",
			"driver", "no metadata service"},
		"no-daemon":        {func(w *waitingPod) { w.daemon = nil; crashes(w.driver, "open pipe") }, "", "daemon", "no pod of CSI Proxy"},
		"daemon-not-ready": {func(w *waitingPod) { crashes(w.daemon, "another process holds the pipe") }, "", "daemon", "another process holds"},
		"daemon-drained":   {func(w *waitingPod) { w.metrics = strings.Replace(w.metrics, "ready 1", "ready 0", 1) }, "", "daemon", "drained"},
		"windows-hangs":    {func(w *waitingPod) { w.metrics = hang("IOCTL_DISK_GET_DRIVE_LAYOUT_EX", time.Hour) }, "", "Windows", `PhysicalDrive2: Windows hasn't answered IOCTL_DISK_GET_DRIVE_LAYOUT_EX for 1h`},
		"windows-formats":  {func(w *waitingPod) { w.metrics = hang("MSFT_Volume.Format", 40*time.Second) }, "", "waiting", "Nothing is wrong: Windows has been formatting for 4"},
		"mount-fails": {func(w *waitingPod) {
			w.events = []core.Event{event("FailedMount", `MountVolume.MountDevice failed for volume "v" : rpc error: code = FailedPrecondition desc = disk 2 holds ext4`)}
		}, "", "last error", "holds ext4"},
		"image": {func(w *waitingPod) {
			w.pod.Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
		}, "", "containers", "the volumes are mounted"},
		"mounting": {func(*waitingPod) {}, "pvc/data", "waiting", "hasn't mounted the volumes yet"},
		"linux": {func(w *waitingPod) {
			w.node.Labels[core.LabelOSStable], w.daemon = "linux", nil
		}, "", "waiting", "hasn't mounted"},
		"local-metrics": {func(w *waitingPod) { w.daemon.Spec.Containers[0].Ports = nil }, "", "unknown", "not everything could be read"},
		"host-process": {func(w *waitingPod) {
			w.daemon, w.driver.Spec.Volumes = nil, w.driver.Spec.Volumes[1:]
			w.driver.Spec.HostNetwork = true
			w.driver.Spec.SecurityContext = &core.PodSecurityContext{WindowsOptions: &core.WindowsSecurityContextOptions{
				HostProcess: ptr.To(true), RunAsUserName: ptr.To(`NT AUTHORITY\SYSTEM`)}}
		}, "", "waiting", "hasn't mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWaitingPod(name, listener.Addr().(*net.TCPAddr))
			tt.breaks(w)
			w.create(t)
			served = w.metrics
			arg := "web"
			if tt.arg != "" {
				arg = tt.arg
			}
			r := runPlugin(t, plugin, "why", "-n", name, arg, "--as", "somebody", "--as-group", "csi-proxy:why", "-o", "json")
			var got struct {
				State, Answer, Advice string
				Broken                *int
				Links                 []struct{ Kind, State string }
			}
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
				t.Fatalf("%v in %v", err, r)
			}
			what, code := got.State, 0
			if got.Broken != nil {
				what, code = got.Links[*got.Broken].Kind, 1
			} else if got.State == "unknown" {
				code = 2
			}
			if what != tt.want || r.code != code || !strings.Contains(got.Answer, tt.answer) || got.Broken != nil && got.Advice == "" {
				t.Errorf("want %s and %q, got %v", tt.want, tt.answer, r)
			}
		})
	}
	if r := runPlugin(t, plugin, "why", "-n", "default", "nobody", "--as", "somebody", "--as-group", "csi-proxy:why"); r.code != 2 ||
		!strings.Contains(r.stderr, "not found") {
		t.Errorf("a pod that isn't there: %v", r)
	}
	if r := runPlugin(t, plugin, "why", "-n", "mounting", "web", "--as", "somebody"); r.code != 2 || !strings.Contains(r.stderr, "forbidden") {
		t.Errorf("somebody without rights: %v", r)
	}
}
