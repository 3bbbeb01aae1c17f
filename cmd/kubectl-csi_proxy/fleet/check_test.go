// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

const (
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	diskURI   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/"
)

// attached is a node to which volumes with these names are attached, and inUse one whose kubelet uses
// them: a volume that is about to be attached, or isn't attachable, is in one of the lists alone.
func attached(names ...string) *core.Node {
	n := node("win-1")
	for _, name := range names {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, core.AttachedVolume{Name: core.UniqueVolumeName(name)})
	}
	return n
}

func inUse(names ...string) *core.Node {
	n := node("win-1")
	for _, name := range names {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, core.UniqueVolumeName(name))
	}
	return n
}

func csiNode(name string, drivers ...string) *storage.CSINode {
	n := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}}
	for _, driver := range drivers {
		n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: driver, NodeID: name})
	}
	return n
}

// pvOf is a PersistentVolume with its claim in the namespace default.
func pvOf(name, claim string, source core.PersistentVolumeSource) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: name}}
	pv.Spec.PersistentVolumeSource = source
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: claim}
	return pv
}

func diskPV(name, claim string) *core.PersistentVolume {
	return pvOf(name, claim, core.PersistentVolumeSource{
		AzureDisk: &core.AzureDiskVolumeSource{DiskName: name, DataDiskURI: diskURI + name}})
}

// app is a pod in the namespace default with volumes.
func app(name, node string, volumes ...core.Volume) *core.Pod {
	p := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName = node
	p.Spec.Volumes = volumes
	p.Status.Phase = core.PodRunning
	return p
}

func claimed(claim string) core.Volume {
	v := core.Volume{Name: claim}
	v.PersistentVolumeClaim = &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	return v
}

// checkOf looks at a cluster whose daemons are well.
func checkOf(t *testing.T, c Check, objects ...runtime.Object) Status {
	t.Helper()
	client := aCluster(func(string) (string, error) { return healthy, nil }, objects...)
	s, err := Query{Client: client, Namespace: "csi-proxy", Check: &c}.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	share := core.Volume{Name: "share",
		VolumeSource: core.VolumeSource{AzureFile: &core.AzureFileVolumeSource{ShareName: "s"}}}
	daemon := daemonPod("win-1", "metrics")
	ended := app("done", "win-1", claimed("data"))
	ended.Status.Phase = core.PodSucceeded
	annotated := node("win-1")
	annotated.Annotations = map[string]string{cluster.VersionAnnotation: "v9"}
	for _, tt := range []struct {
		name     string
		check    Check
		objects  []runtime.Object // a node win-1 is added, unless there is one
		problems []string         // of it, each by a part
		volumes  []InTreeVolume
	}{
		{name: "ready", check: Check{Drivers: []string{azureDisk}},
			objects: []runtime.Object{daemon, csiNode("win-1", azureFile, azureDisk)}},
		{name: "any driver will do", objects: []runtime.Object{daemon, csiNode("win-1", azureFile)}},
		{name: "no driver", objects: []runtime.Object{daemon, csiNode("win-1")},
			problems: []string{"no CSI driver is registered"}},
		{name: "no CSINode", objects: []runtime.Object{daemon}, problems: []string{"no CSI driver is registered"}},
		{name: "another driver", check: Check{Drivers: []string{azureDisk, azureFile}},
			objects: []runtime.Object{daemon, csiNode("win-1", azureFile)}, problems: []string{azureDisk + " isn't registered"}},
		{name: "no daemon", objects: []runtime.Object{csiNode("win-1", azureFile)},
			problems: []string{"CSI Proxy isn't there"}},
		{name: "no daemon is needed", check: Check{WithoutDaemon: true}, objects: []runtime.Object{csiNode("win-1", azureFile)}},
		{name: "another's daemon", objects: []runtime.Object{annotated, csiNode("win-1", azureFile)}},
		{
			name:     "a volume whose driver is missing",
			objects:  []runtime.Object{daemon, csiNode("win-1", azureFile), diskPV("pv-1", "data"), app("app", "win-1", claimed("data"))},
			problems: []string{azureDisk + " isn't registered: after the upgrade the node can't mount pv-1"},
			volumes:  []InTreeVolume{{"pv-1", azureDisk}},
		},
		{
			name: "a volume whose driver is there, as its pods and the node's status have it",
			objects: []runtime.Object{attached("kubernetes.io/azure-disk/" + diskURI + "pv-1"), daemon, csiNode("win-1", azureDisk),
				diskPV("pv-1", "data"), app("app", "win-1", claimed("data")), app("other", "win-1", claimed("data"))},
			volumes: []InTreeVolume{{"pv-1", azureDisk}},
		},
		{
			name: "attached, and no pod any more",
			objects: []runtime.Object{inUse("kubernetes.io/azure-disk/" + diskURI + "pv-1"), daemon, csiNode("win-1", azureFile),
				app("app", "win-1", share)},
			problems: []string{azureDisk + " isn't registered"},
			volumes:  []InTreeVolume{{"default/app/share", azureFile}, {"kubernetes.io/azure-disk/" + diskURI + "pv-1", azureDisk}},
		},
		{
			name:     "no daemon for a volume",
			objects:  []runtime.Object{csiNode("win-1", azureFile), app("app", "win-1", share)},
			problems: []string{"CSI Proxy isn't there"},
			volumes:  []InTreeVolume{{"default/app/share", azureFile}},
		},
		{
			name: "an ephemeral volume's claim",
			objects: []runtime.Object{daemon, csiNode("win-1"), diskPV("pv-1", "app-scratch"), app("app", "win-1",
				core.Volume{Name: "scratch", VolumeSource: core.VolumeSource{Ephemeral: &core.EphemeralVolumeSource{}}})},
			problems: []string{azureDisk + " isn't registered"},
			volumes:  []InTreeVolume{{"pv-1", azureDisk}},
		},
		{
			name: "what else there is",
			objects: []runtime.Object{
				attached("kubernetes.io/iscsi/target", "kubernetes.io/csi/"+azureDisk+"^x"), daemon, csiNode("win-1", azureFile),
				diskPV("pv-1", "data"), app("elsewhere", "linux-1", claimed("data")), ended,
				pvOf("pv-2", "csi", core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: azureDisk}}),
				app("app", "win-1", claimed("unbound"), claimed("csi"),
					core.Volume{Name: "e", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}}),
				&core.Node{ObjectMeta: meta.ObjectMeta{Name: "linux-1", Labels: map[string]string{core.LabelOSStable: "linux"}}},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := tt.objects[0].(*core.Node); !ok {
				tt.objects = append(tt.objects, node("win-1"))
			}
			s := checkOf(t, tt.check, tt.objects...)
			n := s.Nodes[0]
			if len(s.Nodes) != 1 || s.OK != (len(tt.problems) == 0) || len(n.Problems) != len(tt.problems) {
				t.Fatalf("ok is %t: %+v", s.OK, s.Nodes)
			}
			for i, problem := range tt.problems {
				if !strings.Contains(n.Problems[i], problem) {
					t.Errorf("problem %q isn't %q", n.Problems[i], problem)
				}
			}
			if !slices.Equal(n.InTree, tt.volumes) {
				t.Errorf("volumes: %+v", n.InTree)
			}
		})
	}
}

// TestInTreePlugins: each plugin that Kubernetes has replaced is known, in a pod, in a
// PersistentVolume, and in what kubelet reports.
func TestInTreePlugins(t *testing.T) {
	for driver, of := range map[string]struct {
		plugin string
		pv     core.PersistentVolumeSource
		pod    core.VolumeSource
	}{
		"ebs.csi.aws.com": {"aws-ebs", core.PersistentVolumeSource{AWSElasticBlockStore: &core.AWSElasticBlockStoreVolumeSource{}},
			core.VolumeSource{AWSElasticBlockStore: &core.AWSElasticBlockStoreVolumeSource{}}},
		azureDisk: {"azure-disk", core.PersistentVolumeSource{AzureDisk: &core.AzureDiskVolumeSource{}},
			core.VolumeSource{AzureDisk: &core.AzureDiskVolumeSource{}}},
		azureFile: {"azure-file", core.PersistentVolumeSource{AzureFile: &core.AzureFilePersistentVolumeSource{}},
			core.VolumeSource{AzureFile: &core.AzureFileVolumeSource{}}},
		"cinder.csi.openstack.org": {"cinder", core.PersistentVolumeSource{Cinder: &core.CinderPersistentVolumeSource{}},
			core.VolumeSource{Cinder: &core.CinderVolumeSource{}}},
		"pd.csi.storage.gke.io": {"gce-pd", core.PersistentVolumeSource{GCEPersistentDisk: &core.GCEPersistentDiskVolumeSource{}},
			core.VolumeSource{GCEPersistentDisk: &core.GCEPersistentDiskVolumeSource{}}},
		"pxd.portworx.com": {"portworx-volume", core.PersistentVolumeSource{PortworxVolume: &core.PortworxVolumeSource{}},
			core.VolumeSource{PortworxVolume: &core.PortworxVolumeSource{}}},
		"csi.vsphere.vmware.com": {"vsphere-volume",
			core.PersistentVolumeSource{VsphereVolume: &core.VsphereVirtualDiskVolumeSource{}},
			core.VolumeSource{VsphereVolume: &core.VsphereVirtualDiskVolumeSource{}}},
	} {
		for name, objects := range map[string][]runtime.Object{
			"pv-1": {node("win-1"), pvOf("pv-1", "data", of.pv), app("app", "win-1", claimed("data"))},
			"default/app/own": {node("win-1"),
				app("app", "win-1", core.Volume{Name: "own", VolumeSource: of.pod})},
			"kubernetes.io/" + of.plugin + "/x": {attached("kubernetes.io/" + of.plugin + "/x")},
		} {
			s := checkOf(t, Check{WithoutDaemon: true}, append(objects, csiNode("win-1", "other.example.com"))...)
			if n := s.Nodes[0]; s.OK || !slices.Equal(n.InTree, []InTreeVolume{{name, driver}}) {
				t.Errorf("%s of %s: %+v", name, of.plugin, n)
			}
		}
	}
}

// TestCheckFails: what can't be looked at isn't ready.
func TestCheckFails(t *testing.T) {
	for _, resource := range []string{"nodes", "csinodes", "persistentvolumes", "pods"} {
		client := aCluster(nil, node("win-1"))
		broken := errors.New("broken")
		client.PrependReactor("list", resource,
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
		if s, err := (Query{Client: client, Check: &Check{}}).Status(t.Context()); !errors.Is(err, broken) || s.OK {
			t.Errorf("%s: %+v, %v", resource, s, err)
		}
	}
}

// TestReplacedDaemon: while a daemon is replaced, the pod that comes counts, not the one that goes.
func TestReplacedDaemon(t *testing.T) {
	old := daemonPod("win-1", "metrics")
	old.Name, old.Status = "csi-proxy-aaa", core.PodStatus{}
	old.DeletionTimestamp = &meta.Time{}
	old.Finalizers = []string{"test/keep"}
	s := checkOf(t, Check{}, node("win-1"), csiNode("win-1", azureDisk), old, daemonPod("win-1", "metrics"))
	if !s.OK || s.Nodes[0].Pod != "csi-proxy-win-1" {
		t.Errorf("%+v", s)
	}
	// What a check has looked for is in its JSON, even if there is none.
	text, err := json.Marshal(View{Status: s})
	if err != nil || !strings.Contains(string(text), `"inTreeVolumes":[]`) {
		t.Errorf("%s, %v", text, err)
	}
	s.Nodes[0].Drivers, s.Nodes[0].InTree = nil, nil // as of status
	if text, err = json.Marshal(s); err != nil || strings.Contains(string(text), "rivers") {
		t.Errorf("%s, %v", text, err)
	}
}
