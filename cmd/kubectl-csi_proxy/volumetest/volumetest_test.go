// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/why"
)

// world is a cluster whose scheduler, kubelets and driver do at once what they must, unless a fault is planted.
type world struct {
	*fake.Clientset
	class *storage.StorageClass
	// broken changes a pod that was made; nil for nothing.
	broken func(pod *core.Pod)
	// The faults of the driver: it makes, grows and deletes no volumes.
	makesNone, growsNone, deletesNone bool
	// saysNothing says that the driver doesn't even say that it makes none.
	saysNothing bool

	mu    sync.Mutex
	asked int
	// onRequest is called before each request, with its number. An error is the answer.
	onRequest func(n int, action clienttesting.Action) error
}

var (
	podKind   = core.SchemeGroupVersion.WithResource("pods")
	claimKind = core.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	pvKind    = core.SchemeGroupVersion.WithResource("persistentvolumes")
)

func newWorld(t *testing.T, nodes ...string) *world {
	yes := true
	w := &world{class: &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: "disks"}, Provisioner: "disk.example.com", AllowVolumeExpansion: &yes}}
	objects := []runtime.Object{w.class}
	for _, name := range nodes {
		n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "windows"}}}
		n.Status.NodeInfo = core.NodeSystemInfo{OperatingSystem: "windows", OSImage: "Windows Server 2022", KernelVersion: "10.0.20348.2700"}
		n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		daemon := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "csi-proxy", Name: "csi-proxy-" + name,
			Labels: map[string]string{"app.kubernetes.io/name": "csi-proxy", "app.kubernetes.io/component": "daemon"}}}
		daemon.Spec.NodeName = name
		daemon.Spec.Containers = []core.Container{{Name: "csi-proxy", Image: "example.com/csi-proxy:v1.2.3"}}
		daemon.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
		driver := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "kube-system", Name: "driver-" + name}, Status: daemon.Status}
		driver.Spec.NodeName = name
		driver.Spec.Volumes = []core.Volume{
			{Name: "d", VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: `C:\var\lib\kubelet\plugins\disk.example.com`}}},
			{Name: "p", VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: `\\.\pipe\csi-proxy-disk-v1`}}}}
		registered := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name},
			Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: w.class.Provisioner, NodeID: name}}}}
		objects = append(objects, n, daemon, driver, registered)
	}
	w.Clientset = fake.NewClientset(objects...)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	w.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*core.Pod)
		w.start(pod)
		pv := "pvc-" + pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
		attached := &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: pod.Name}, Spec: storage.VolumeAttachmentSpec{
			NodeName: pod.Spec.NodeName, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		attached.Status.Attached = true
		must(w.Tracker().Add(attached))
		return false, nil, nil
	})
	w.PrependReactor("create", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		claim := a.(clienttesting.CreateAction).GetObject().(*core.PersistentVolumeClaim)
		claim.UID = "uid-of-claim"
		if w.makesNone {
			if w.saysNothing {
				return false, nil, nil
			}
			must(w.Tracker().Add(warning("PersistentVolumeClaim", claim.Name, "ProvisioningFailed", "quota exceeded")))
			return false, nil, nil
		}
		claim.Spec.VolumeName = "pvc-" + claim.Name
		claim.Status = core.PersistentVolumeClaimStatus{Phase: core.ClaimBound, Capacity: claim.Spec.Resources.Requests}
		pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: claim.Spec.VolumeName}}
		pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: w.class.Provisioner, VolumeHandle: "vol-1"}
		must(w.Tracker().Add(pv))
		return false, nil, nil
	})
	w.PrependReactor("patch", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		var change core.PersistentVolumeClaim
		must(json.Unmarshal(patch.GetPatch(), &change))
		found, err := w.Tracker().Get(claimKind, a.GetNamespace(), patch.GetName())
		must(err)
		claim := found.DeepCopyObject().(*core.PersistentVolumeClaim)
		claim.Spec.Resources = change.Spec.Resources
		if w.growsNone {
			must(w.Tracker().Add(warning("PersistentVolumeClaim", claim.Name, "VolumeResizeFailed", "no room")))
		} else {
			claim.Status.Capacity = change.Spec.Resources.Requests
			w.growPod(t, a.GetNamespace(), claim.Name)
		}
		return true, claim, w.Tracker().Update(claimKind, claim, a.GetNamespace())
	})
	w.PrependReactor("delete", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := "pvc-" + a.(clienttesting.DeleteAction).GetName()
		if w.deletesNone {
			must(w.Tracker().Add(warning("PersistentVolume", name, "VolumeFailedDelete", "the disk is attached")))
		} else if err := w.Tracker().Delete(pvKind, "", name); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		return false, nil, nil
	})
	w.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		w.asked++
		n := w.asked
		w.mu.Unlock()
		if w.onRequest == nil {
			return false, nil, nil
		}
		err := w.onRequest(n, a)
		return err != nil, nil, err
	})
	return w
}

func warning(kind, name, reason, message string) *core.Event {
	return &core.Event{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: reason}, Type: core.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: core.ObjectReference{Kind: kind, Namespace: "shop", Name: name}, LastTimestamp: meta.Now()}
}

// start has a pod run on its node. Its containers end, but the one that waits for more space.
func (w *world) start(pod *core.Pod) {
	pod.Spec.NodeName = pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	pod.Status.Phase = core.PodRunning
	for _, c := range pod.Spec.Containers {
		s := core.ContainerStatus{Name: c.Name}
		if c.Name == "grow" {
			s.State.Running = &core.ContainerStateRunning{}
		} else {
			s.State.Terminated = &core.ContainerStateTerminated{}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	if w.broken != nil {
		w.broken(pod)
	}
}

// growPod ends the container that waits for more space.
func (w *world) growPod(t *testing.T, namespace, claim string) {
	found, err := w.Tracker().Get(podKind, namespace, claim+"-read")
	if err != nil {
		t.Error(err)
		return
	}
	pod := found.DeepCopyObject().(*core.Pod)
	pod.Status.ContainerStatuses[1].State = core.ContainerState{Terminated: &core.ContainerStateTerminated{}}
	if err := w.Tracker().Update(podKind, pod, namespace); err != nil {
		t.Error(err)
	}
}

// left returns what is left in the cluster, as kubectl names it.
func (w *world) left(t *testing.T) (left []string) {
	for _, kind := range []struct {
		resource schema.GroupVersionResource
		kind     schema.GroupVersionKind
		short    string
	}{{podKind, core.SchemeGroupVersion.WithKind("Pod"), "pod/"}, {claimKind, core.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "pvc/"},
		{pvKind, core.SchemeGroupVersion.WithKind("PersistentVolume"), "pv/"}} {
		namespace := "shop"
		if kind.short == "pv/" {
			namespace = ""
		}
		list, err := w.Tracker().List(kind.resource, kind.kind, namespace)
		if err != nil {
			t.Fatal(err)
		}
		switch l := list.(type) {
		case *core.PodList:
			for _, o := range l.Items {
				left = append(left, kind.short+o.Name)
			}
		case *core.PersistentVolumeClaimList:
			for _, o := range l.Items {
				left = append(left, kind.short+o.Name)
			}
		case *core.PersistentVolumeList:
			for _, o := range l.Items {
				left = append(left, kind.short+o.Name)
			}
		}
	}
	return left
}

func (w *world) test() Test {
	return Test{Client: w, Namespace: "shop", DaemonNamespace: "csi-proxy", Class: "disks", Size: resource.MustParse("1Gi"),
		Wait: 5 * time.Minute, Log: func(string) {}}
}

// taken are the names of the steps that were taken.
func taken(r Result) (names []string) {
	for _, s := range r.Steps {
		if s.Skipped == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "win-1", "win-2")
		report, err := w.test().Run(t.Context(), t.Context())
		if err != nil || !report.OK || len(report.Nodes) != 2 {
			t.Fatalf("%+v, %v", report, err)
		}
		for _, n := range report.Nodes {
			if !slices.Equal(taken(n), steps) || n.Failed != "" || len(n.Left) > 0 || n.Why != nil {
				t.Errorf("%+v", n)
			}
			want := slices.Concat(rowsOfDaemon, rowsOfSteps[stepRead], rowsOfSteps[stepGrow])
			if !slices.Equal(n.Evidence.Rows, want) || n.Evidence.Daemon != "v1.2.3" {
				t.Errorf("%+v", n.Evidence)
			}
		}
		if left := w.left(t); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		created := 0
		for _, a := range w.Actions() {
			create, ok := a.(clienttesting.CreateAction)
			if !ok || a.GetVerb() != "create" {
				continue
			}
			created++
			object := create.GetObject().(meta.Object)
			if object.GetLabels()[Label] == "" || object.GetNamespace() != "shop" {
				t.Errorf("%s has the labels %v", object.GetName(), object.GetLabels())
			}
			if pod, ok := object.(*core.Pod); ok && pod.Spec.Containers[0].Image != "mcr.microsoft.com/windows/nanoserver:ltsc2022" {
				t.Errorf("the image is %s", pod.Spec.Containers[0].Image)
			}
		}
		if created != 6 {
			t.Errorf("%d objects were made", created)
		}
		var out bytes.Buffer
		if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "| grow | proven | kubectl csi-proxy test passed write, read, grow, remove |\n") ||
			!strings.Contains(out.String(), "win-2   Windows Server 2022 10.0.20348.2700") || strings.Contains(out.String(), "failed") || strings.Contains(out.String(), "says nothing") {
			t.Errorf("%v\n%s", err, &out)
		}
	})
}

// TestOtherDriver: a driver that doesn't call CSI Proxy, or has no pod that is known, decides no row.
func TestOtherDriver(t *testing.T) {
	for name, change := range map[string]func(*core.Pod){
		"no pipe":      func(p *core.Pod) { p.Spec.Volumes = p.Spec.Volumes[:1] },
		"no directory": func(p *core.Pod) { p.Spec.Volumes = p.Spec.Volumes[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "win-1")
				found, err := w.Tracker().Get(podKind, "kube-system", "driver-win-1")
				if err != nil {
					t.Fatal(err)
				}
				pod := found.DeepCopyObject().(*core.Pod)
				change(pod)
				if err := w.Tracker().Update(podKind, pod, pod.Namespace); err != nil {
					t.Fatal(err)
				}
				report, err := w.test().Run(t.Context(), t.Context())
				if err != nil || !report.OK || len(report.Nodes[0].Evidence.Rows) > 0 {
					t.Fatalf("%+v, %v", report, err)
				}
				var out bytes.Buffer
				const want = "the driver disk.example.com has no pod on win-1 that mounts the pipes of CSI Proxy: the result says nothing about CSI Proxy"
				if err := report.Print(&out); err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "For an issue") {
					t.Errorf("%v\n%s", err, &out)
				}
			})
		})
	}
}

// TestOtherClasses: volumes that can't grow, that are on shares, and that are retained.
func TestOtherClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "win-1")
		no, retain := false, core.PersistentVolumeReclaimRetain
		w.class.AllowVolumeExpansion, w.class.ReclaimPolicy = &no, &retain
		w.deletesNone = true
		if err := w.Tracker().Update(storage.SchemeGroupVersion.WithResource("storageclasses"), w.class, ""); err != nil {
			t.Fatal(err)
		}
		if err := w.Tracker().Add(&storage.CSIDriver{ObjectMeta: meta.ObjectMeta{Name: w.class.Provisioner},
			Spec: storage.CSIDriverSpec{AttachRequired: &no}}); err != nil {
			t.Fatal(err)
		}
		report, err := w.test().Run(t.Context(), t.Context())
		if err != nil || !report.OK {
			t.Fatalf("%+v, %v", report, err)
		}
		n := report.Nodes[0]
		if !slices.Equal(taken(n), []string{stepWrite, stepRead, stepRemove}) || !slices.Equal(n.Evidence.Rows, rowsOfDaemon) {
			t.Errorf("%+v", n)
		}
		if left := w.left(t); len(left) != 1 || !slices.Equal(n.Left, left) || !strings.Contains(report.Advice, "kubectl delete "+left[0]) {
			t.Errorf("left: %q, %q, %s", left, n.Left, report.Advice)
		}
	})
}

// TestFaults: the step that fails says why, and nothing is left but what can't be removed.
func TestFaults(t *testing.T) {
	in := func(container string, state core.ContainerState) func(*core.Pod) {
		return func(pod *core.Pod) {
			for i := range pod.Status.ContainerStatuses {
				if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
					s.State = state
					pod.Status.Phase = core.PodPending
				}
			}
		}
	}
	exit := func(code int32, message string) core.ContainerState {
		return core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		plant func(w *world)
		step  string
		err   string
		why   string // a part of the answer; empty for none
		left  int
	}{
		"no volume is made": {func(w *world) {
			w.makesNone = true
			w.broken = func(pod *core.Pod) { pod.Spec.NodeName, pod.Status = "", core.PodStatus{Phase: core.PodPending} }
		}, stepWrite, "not within 5m0s (--wait)", "quota exceeded", 0},
		"nobody makes the volume": {func(w *world) {
			w.makesNone, w.saysNothing = true, true
			w.broken = func(pod *core.Pod) { pod.Spec.NodeName, pod.Status = "", core.PodStatus{Phase: core.PodPending} }
		}, stepWrite, "not within 5m0s (--wait)", "the cluster has no CSIDriver disk.example.com", 0},
		"no node fits": {func(w *world) {
			w.broken = func(pod *core.Pod) {
				pod.Spec.NodeName = ""
				pod.Status = core.PodStatus{Phase: core.PodPending, Conditions: []core.PodCondition{{Type: core.PodScheduled,
					Status: core.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}}
			}
		}, stepWrite, "the phase of the pod", "0/3 nodes are available", 0},
		"no image": {func(w *world) {
			w.broken = in("write", core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
		}, stepWrite, "ImagePullBackOff: no such image", "", 0},
		"no driver": {func(w *world) {
			w.broken = in("write", core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}})
			w.remove(t, storage.SchemeGroupVersion.WithResource("csinodes"), "", "win-1")
		}, stepWrite, "ContainerCreating", "isn't registered", 0},
		"no daemon": {func(w *world) {
			w.broken = in("write", core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}})
			w.remove(t, podKind, "csi-proxy", "csi-proxy-win-1")
		}, stepWrite, "ContainerCreating", "has no pod of CSI Proxy", 0},
		"writing fails": {func(w *world) { w.broken = in("write", exit(1, "Access is\r\ndenied.")) }, stepWrite, "exit code 1 Access is denied.", "", 0},
		"other data":    {func(w *world) { w.broken = in("read", exit(1, "")) }, stepRead, "the volume doesn't have what the first pod has written: exit code 1", "", 0},
		"the pod is evicted": {func(w *world) {
			w.broken = func(pod *core.Pod) {
				pod.Status = core.PodStatus{Phase: core.PodFailed, Reason: "Evicted", Message: "no room"}
			}
		}, stepWrite, "Evicted no room", "", 0},
		"no growth":            {func(w *world) { w.growsNone = true }, stepGrow, "growth of the claim: not within 5m0s (--wait); VolumeResizeFailed: no room", "", 0},
		"the volume stays":     {func(w *world) { w.deletesNone = true }, stepRemove, "VolumeFailedDelete: the disk is attached", "", 1},
		"the pod stays":        {func(w *world) { w.onRequest = refuse("delete", "pods") }, stepRead, "forbidden", "", 1},
		"no right for claims":  {func(w *world) { w.onRequest = refuse("create", "persistentvolumeclaims") }, stepWrite, "forbidden", "", 0},
		"no right for events":  {func(w *world) { w.onRequest = refuse("list", "events"); w.growsNone = true }, stepGrow, "forbidden", "", 0},
		"an unknown Windows":   {func(w *world) { w.setKernel(t, "10.0.99999.1") }, stepWrite, "name one with --image", "", 0},
		"no right for drivers": {func(w *world) { w.onRequest = refuse("get", "csidrivers") }, stepRead, "forbidden", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "win-1")
				tt.plant(w)
				report, err := w.test().Run(t.Context(), t.Context())
				if err != nil || report.OK {
					t.Fatalf("%+v, %v", report, err)
				}
				n := report.Nodes[0]
				i := slices.IndexFunc(n.Steps, func(s Step) bool { return s.Error != "" })
				if i < 0 || n.Failed != tt.step || strings.TrimRight(n.Steps[i].Error, ": ") != n.Steps[i].Error || n.Steps[i].Name != tt.step || !strings.Contains(n.Steps[i].Error, tt.err) {
					t.Errorf("%s failed: %+v", n.Failed, n.Steps)
				}
				if (n.Why != nil) != (tt.why != "") {
					t.Errorf("why: %+v", n.Why)
				}
				if tt.why != "" && (n.Why == nil || n.Why.State != why.Broken || !strings.Contains(n.Why.Answer, tt.why)) {
					t.Errorf("why: %+v", n.Why)
				}
				left := w.left(t)
				for _, object := range left {
					advice := "kubectl -n shop delete"
					if strings.HasPrefix(object, "pv/") {
						advice = object + " goes when its volume is detached: kubectl csi-proxy status"
					}
					if !slices.Contains(n.Left, object) || !strings.Contains(report.Advice, advice) {
						t.Errorf("%s is left, and not in %q: %s", object, n.Left, report.Advice)
					}
				}
				if len(left) != tt.left {
					t.Errorf("left: %q", left)
				}
				var out bytes.Buffer
				if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "win-1: "+tt.step+" failed: ") {
					t.Errorf("%v\n%s", err, &out)
				}
				if wants := slices.Contains(n.Evidence.Rows, "grow"); wants != (tt.step == stepRemove) {
					t.Errorf("the row grow is decided: %t, and %s failed", wants, tt.step)
				}
			})
		})
	}
}

func (w *world) remove(t *testing.T, kind schema.GroupVersionResource, namespace, name string) {
	if err := w.Tracker().Delete(kind, namespace, name); err != nil {
		t.Fatal(err)
	}
}

func (w *world) setKernel(t *testing.T, version string) {
	nodes := core.SchemeGroupVersion.WithResource("nodes")
	found, err := w.Tracker().Get(nodes, "", "win-1")
	if err != nil {
		t.Fatal(err)
	}
	n := found.DeepCopyObject().(*core.Node)
	n.Status.NodeInfo.KernelVersion = version
	if err := w.Tracker().Update(nodes, n, ""); err != nil {
		t.Fatal(err)
	}
}

// refuse forbids a request.
func refuse(verb, resource string) func(int, clienttesting.Action) error {
	return func(_ int, a clienttesting.Action) error {
		if a.Matches(verb, resource) {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no right"))
		}
		return nil
	}
}

// requests is how many requests a test of one node makes.
func requests(t *testing.T) int {
	w := newWorld(t, "win-1")
	if report, err := w.test().Run(t.Context(), t.Context()); err != nil || !report.OK {
		t.Fatalf("%+v, %v", report, err)
	}
	return w.asked
}

// TestInterrupt: Ctrl-C at each request leaves nothing, whether or not the cluster has done what it was asked for.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := make(map[string]bool) // by step
		for n := 2; n <= 2*requests(t)+1; n++ {
			w, removing := newWorld(t, "win-1"), false
			ctx, cancel := context.WithCancel(t.Context())
			w.onRequest = func(i int, _ clienttesting.Action) error {
				if i != n/2 {
					return nil
				}
				cancel()
				if n%2 == 0 && !removing {
					return context.Canceled
				}
				return nil
			}
			test := w.test()
			test.Log = func(line string) { removing = removing || strings.Contains(line, ": "+stepGrow+": ok") }
			report, err := test.Run(ctx, t.Context())
			if left := w.left(t); len(left) > 0 {
				t.Errorf("interrupted at request %d, done is %d: %q are left", n/2, n%2, left)
			}
			if err == nil && report.Nodes[0].Failed != "" {
				interrupted[report.Nodes[0].Failed] = true
				isInterrupted := func(s Step) bool { return s.Error == "interrupted" }
				if n := report.Nodes[0]; n.Why != nil || len(n.Left) > 0 || !slices.ContainsFunc(n.Steps, isInterrupted) {
					t.Errorf("interrupted: %+v", n)
				}
			}
		}
		for _, step := range []string{stepWrite, stepRead, stepGrow} {
			if !interrupted[step] {
				t.Errorf("no interrupt came in the step %s", step)
			}
		}
	})
}

// TestSecondInterrupt: it ends the test at once, which names what is left.
func TestSecondInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := 0
		for n := 1; n <= requests(t); n++ {
			w := newWorld(t, "win-1")
			ctx, cancel := context.WithCancel(t.Context())
			w.onRequest = func(i int, _ clienttesting.Action) error {
				switch {
				case i == n:
					cancel()
				case i > n+1: // a client whose context has ended asks nothing
					return context.Canceled
				}
				return nil
			}
			began := time.Now()
			report, err := w.test().Run(ctx, ctx)
			if took := time.Since(began); took > pause {
				t.Errorf("interrupted twice at request %d, it went on for %v", n, took)
			}
			if err != nil {
				continue
			}
			for _, object := range w.left(t) {
				named++
				if !strings.HasPrefix(object, "pv/") && !slices.Contains(report.Nodes[0].Left, object) {
					t.Errorf("interrupted twice at request %d: %s is left, and not in %q", n, object, report.Nodes[0].Left)
				}
			}
		}
		if named == 0 {
			t.Error("nothing was ever left")
		}
	})
}

// TestRequestsFail: whichever request fails once, nothing is left.
func TestRequestsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed, failed := 0, 0
		for n := 1; n <= requests(t); n++ {
			w := newWorld(t, "win-1")
			w.onRequest = func(i int, a clienttesting.Action) error {
				if i == n {
					return apierrors.NewInternalError(fmt.Errorf("request %d", i))
				}
				return nil
			}
			report, err := w.test().Run(t.Context(), t.Context())
			if left := w.left(t); len(left) > 0 {
				t.Errorf("request %d fails: %q are left", n, left)
			}
			if err == nil && report.OK {
				passed++
			} else {
				failed++
			}
		}
		if passed == 0 || failed == 0 {
			t.Errorf("%d tests passed, and %d failed", passed, failed)
		}
	})
}

// TestKeep: the objects stay, and the next run names them.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "win-1")
		kept := w.test()
		kept.Keep = true
		report, err := kept.Run(t.Context(), t.Context())
		if err != nil || !report.OK {
			t.Fatalf("%+v, %v", report, err)
		}
		left := w.left(t)
		if len(left) != 3 || len(report.Nodes[0].Left) != 2 || !strings.Contains(report.Advice, "delete pods,pvc -l csi-proxy.dev/test=") {
			t.Errorf("%q, %q, %s", left, report.Nodes[0].Left, report.Advice)
		}
		next, said := w.test(), ""
		next.Log = func(line string) { said += line }
		if _, err := next.Run(t.Context(), t.Context()); err != nil || !strings.Contains(said, left[0]) || !strings.Contains(said, report.Advice) {
			t.Errorf("%v, %s", err, said)
		}
	})
}

// TestNothingToTest: what can't be tested is an error, and makes nothing.
func TestNothingToTest(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Test)
		nodes  []string
		want   string
	}{
		"no class": {func(t *Test) { t.Class = "none" }, []string{"win-1"}, "there is no StorageClass none"},
		"no node":  {func(t *Test) { t.Nodes = []string{"win-9"} }, []string{"win-1"}, "there is no Windows node win-9"},
		"no nodes": {func(*Test) {}, nil, "the cluster has no Windows nodes"},
	} {
		w := newWorld(t, tt.nodes...)
		test := w.test()
		tt.change(&test)
		if _, err := test.Run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, a := range w.Actions() {
			if a.GetVerb() == "create" {
				t.Errorf("%s: %v", name, a)
			}
		}
	}
	w := newWorld(t, "win-1", "win-2")
	test := w.test()
	test.Nodes = []string{"win-2"}
	if report, err := test.Run(t.Context(), t.Context()); err != nil || len(report.Nodes) != 1 || report.Nodes[0].Node != "win-2" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestRowsAreAssumptions: each row that a run decides is an assumption about Windows.
func TestRowsAreAssumptions(t *testing.T) {
	assumptions, err := os.ReadFile("../../../internal/lab/wintest/assumptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range slices.Concat(rowsOfDaemon, rowsOfSteps[stepRead], rowsOfSteps[stepGrow]) {
		if !strings.Contains(string(assumptions), "\n\n"+row+"\nassumption: ") {
			t.Errorf("internal/lab/wintest/assumptions.txt has no assumption %s", row)
		}
	}
}
