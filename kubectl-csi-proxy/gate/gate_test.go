// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/cluster"
)

const (
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	diskURI   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/"
)

func node(name string, change ...func(*core.Node)) *core.Node {
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "windows"}}}
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	for _, f := range change {
		f(n)
	}
	return n
}

func annotated(version string) func(*core.Node) {
	return func(n *core.Node) { n.Annotations = map[string]string{cluster.VersionAnnotation: version} }
}

// attached makes kubelet report a volume under a name.
func attached(name string) func(*core.Node) {
	return func(n *core.Node) {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, core.AttachedVolume{Name: core.UniqueVolumeName(name)})
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, core.UniqueVolumeName(name))
	}
}

func csiNode(name, migrated string, drivers ...string) *storage.CSINode {
	n := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name,
		Annotations: map[string]string{core.MigratedPluginsAnnotationKey: migrated}}}
	for _, driver := range drivers {
		n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: driver, NodeID: name})
	}
	return n
}

// diskPV is a PersistentVolume for the in-tree plugin of Azure Disk, with its claim in the
// namespace default.
func diskPV(name, claim string) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: name}}
	pv.Spec.AzureDisk = &core.AzureDiskVolumeSource{DiskName: name, DataDiskURI: diskURI + name}
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: claim}
	return pv
}

// pod is a pod in the namespace default with volumes.
func pod(name, node string, volumes ...core.Volume) *core.Pod {
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

// daemon is a pod of CSI Proxy that tells its version.
func daemon(node, version string, ready bool) *core.Pod {
	p := &core.Pod{ObjectMeta: meta.ObjectMeta{
		Namespace: "csi-proxy", Name: "csi-proxy-" + node, Annotations: map[string]string{"test/version": version},
		Labels: map[string]string{"app.kubernetes.io/name": "csi-proxy", "app.kubernetes.io/component": "daemon"},
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []core.Container{{Ports: []core.ContainerPort{{Name: "metrics", ContainerPort: 29810}}}}
	status := core.ConditionFalse
	if ready {
		status = core.ConditionTrue
	}
	p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: status}}
	return p
}

func attachment(name, node, attacher string, source storage.VolumeAttachmentSource) *storage.VolumeAttachment {
	return &storage.VolumeAttachment{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec:       storage.VolumeAttachmentSpec{NodeName: node, Attacher: attacher, Source: source},
	}
}

// check looks at a cluster of these objects. Metrics come from the daemons' pods.
func check(t *testing.T, o Options, objects ...runtime.Object) (Report, error) {
	t.Helper()
	o.Namespace = "csi-proxy"
	client := fake.NewClientset(objects...)
	// The double of the API server knows no field selectors.
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		on, ok := action.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		pods := &core.PodList{}
		for _, object := range objects {
			if p, isPod := object.(*core.Pod); isPod && p.Spec.NodeName == on {
				pods.Items = append(pods.Items, *p)
			}
		}
		return ok, pods, nil
	})
	client.PrependProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		get := action.(clienttesting.ProxyGetAction)
		for _, object := range objects {
			if p, ok := object.(*core.Pod); ok && p.Name == get.GetName() && get.GetPort() == "29810" &&
				get.GetPath() == "metrics" {
				return true, metricsOf(p.Annotations["test/version"]), nil
			}
		}
		return true, nil, errors.New("no such pod")
	})
	return Check(t.Context(), client, o)
}

// metricsOf is the answer of a daemon of that version: none if it is empty.
type metricsOf string

func (version metricsOf) DoRaw(context.Context) ([]byte, error) {
	if version == "" {
		return nil, errors.New("connection refused")
	}
	return fmt.Appendf(nil, "# TYPE csi_proxy_build_info gauge\ncsi_proxy_build_info{commit=\"abc\",version=%q} 1\n",
		string(version)), nil
}

func (version metricsOf) Stream(ctx context.Context) (io.ReadCloser, error) {
	text, err := version.DoRaw(ctx)
	return io.NopCloser(bytes.NewReader(text)), err
}

// complete adds what a ready node has, and isn't among the objects.
func complete(objects []runtime.Object) []runtime.Object {
	for _, one := range []runtime.Object{node("win-1"), csiNode("win-1", "", azureFile), daemon("win-1", "v1.0.0", true)} {
		if !slices.ContainsFunc(objects, func(o runtime.Object) bool {
			return reflect.TypeOf(o) == reflect.TypeOf(one) && o.(meta.Object).GetName() == one.(meta.Object).GetName()
		}) {
			objects = append(objects, one)
		}
	}
	return objects
}

func TestCheck(t *testing.T) {
	pv1 := "pv-1"
	translated, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(),
		&core.Volume{Name: "data", VolumeSource: core.VolumeSource{
			AzureDisk: &core.AzureDiskVolumeSource{DiskName: "inline", DataDiskURI: diskURI + "inline"},
		}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		options  Options
		objects  []runtime.Object // see complete
		problems []string         // of the node win-1, each by a part
		volumes  []Volume
	}{
		{name: "ready", options: Options{Drivers: []string{azureDisk}, MinVersion: "v0.1.0"},
			objects: []runtime.Object{csiNode("win-1", "", azureDisk, azureFile)}},
		{name: "any driver will do"},
		{name: "no driver", objects: []runtime.Object{csiNode("win-1", "")},
			problems: []string{"no CSI driver is registered"}},
		{name: "another driver", options: Options{Drivers: []string{azureDisk, azureFile}},
			problems: []string{azureDisk + " isn't registered"}},
		{name: "not a ready node", objects: []runtime.Object{node("win-1",
			func(n *core.Node) { n.Status.Conditions[0].Status = core.ConditionUnknown })},
			problems: []string{"the node isn't ready"}},
		{name: "the daemon itself knows better than the annotation", options: Options{MinVersion: "v1.0.0"},
			objects:  []runtime.Object{node("win-1", annotated("v1.0.1")), daemon("win-1", "v0.9.9", true)},
			problems: []string{"CSI Proxy is v0.9.9, older than v1.0.0"}},
		{name: "a later commit of the version", options: Options{MinVersion: "v1.0.0"},
			objects: []runtime.Object{daemon("win-1", "v1.0.0-5-gabcdef0", true)}},
		{name: "an unknown version", options: Options{MinVersion: "v1.0.0"},
			objects:  []runtime.Object{daemon("win-1", "unknown", true)},
			problems: []string{"can't be compared"}},
		{name: "a daemon that doesn't answer", objects: []runtime.Object{daemon("win-1", "", true)},
			problems: []string{"doesn't tell its version: metrics of the pod csi-proxy-win-1: connection refused"}},
		{name: "a daemon that isn't ready",
			objects:  []runtime.Object{node("win-1", annotated("v1.0.0")), daemon("win-1", "v1.0.0", false)},
			problems: []string{"CSI Proxy isn't ready: see the pod csi-proxy-win-1"}},
		{
			name: "a volume whose driver is missing",
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/azure-disk/"+diskURI+"pv-1")), csiNode("win-1", "", azureFile),
				diskPV("pv-1", "data"), pod("app", "win-1", claimed("data")),
			},
			problems: []string{azureDisk + " isn't registered; the node has volumes for it: pv-1"},
			volumes:  []Volume{{"pv-1", "kubernetes.io/azure-disk", azureDisk, ByInTree, []string{"default/app"}}},
		},
		{
			name: "a volume whose driver is there",
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/azure-disk/"+diskURI+"pv-1")), csiNode("win-1", "", azureDisk),
				diskPV("pv-1", "data"), pod("app", "win-1", claimed("data")),
			},
			volumes: []Volume{{"pv-1", "kubernetes.io/azure-disk", azureDisk, ByInTree, []string{"default/app"}}},
		},
		{
			name:    "nothing in-tree is allowed",
			options: Options{NoInTree: true},
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/azure-disk/"+diskURI+"pv-1")),
				csiNode("win-1", "kubernetes.io/azure-disk", azureDisk),
				diskPV("pv-1", "data"), pod("app", "win-1", claimed("data")),
			},
			problems: []string{"the volume pv-1 is handled by the in-tree plugin kubernetes.io/azure-disk"},
			volumes:  []Volume{{"pv-1", "kubernetes.io/azure-disk", azureDisk, ByInTree, []string{"default/app"}}},
		},
		{
			name: "attached, and no pod any more",
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/azure-disk/"+diskURI+"pv-1")), csiNode("win-1", ""),
			},
			problems: []string{azureDisk + " isn't registered"},
			volumes: []Volume{{"kubernetes.io/azure-disk/" + diskURI + "pv-1", "kubernetes.io/azure-disk", azureDisk, ByInTree,
				[]string{}}},
		},
		{
			name:    "migrated",
			options: Options{NoInTree: true},
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/csi/"+azureDisk+"^"+diskURI+"pv-1")), csiNode("win-1", "", azureDisk),
				diskPV("pv-1", "data"), pod("app", "win-1", claimed("data")), pod("other", "win-1", claimed("data")),
				attachment("csi-1", "win-1", azureDisk, storage.VolumeAttachmentSource{PersistentVolumeName: &pv1}),
			},
			volumes: []Volume{{"pv-1", "kubernetes.io/azure-disk", azureDisk, ByCSI, []string{"default/app", "default/other"}}},
		},
		{
			name:    "a pod's own volume, migrated",
			options: Options{NoInTree: true},
			objects: []runtime.Object{
				csiNode("win-1", "kubernetes.io/azure-disk", azureDisk),
				attachment("csi-1", "win-1", azureDisk, storage.VolumeAttachmentSource{InlineVolumeSpec: &translated.Spec}),
			},
			volumes: []Volume{{"kubernetes.io/azure-disk/" + diskURI + "inline", "kubernetes.io/azure-disk", azureDisk, ByCSI,
				[]string{}}},
		},
		{
			name:    "a share, which isn't attached, migrated",
			options: Options{NoInTree: true},
			objects: []runtime.Object{
				csiNode("win-1", "kubernetes.io/aws-ebs,kubernetes.io/azure-file", azureFile),
				pod("app", "win-1", core.Volume{Name: "share",
					VolumeSource: core.VolumeSource{AzureFile: &core.AzureFileVolumeSource{ShareName: "s"}}}),
			},
			volumes: []Volume{{"default/app/share", "kubernetes.io/azure-file", azureFile, ByCSI, []string{"default/app"}}},
		},
		{
			name: "a share of kubelet's",
			objects: []runtime.Object{
				csiNode("win-1", "", azureDisk),
				pod("app", "win-1", core.Volume{Name: "share",
					VolumeSource: core.VolumeSource{AzureFile: &core.AzureFileVolumeSource{ShareName: "s"}}}),
			},
			problems: []string{azureFile + " isn't registered; the node has volumes for it: default/app/share"},
			volumes:  []Volume{{"default/app/share", "kubernetes.io/azure-file", azureFile, ByInTree, []string{"default/app"}}},
		},
		{
			name: "what else there is",
			objects: []runtime.Object{
				node("win-1", attached("kubernetes.io/iscsi/target"), attached("kubernetes.io/csi/"+azureDisk+"^x")),
				csiNode("win-1", "", azureDisk),
				diskPV("pv-1", "data"), pod("elsewhere", "linux-1", claimed("data")),
				&core.Node{ObjectMeta: meta.ObjectMeta{Name: "linux-1", Labels: map[string]string{core.LabelOSStable: "linux"}}},
				ended(pod("done", "win-1", claimed("data"))),
				pod("app", "win-1", claimed("unbound"),
					core.Volume{Name: "e", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}}),
				attachment("csi-2", "linux-1", azureDisk, storage.VolumeAttachmentSource{PersistentVolumeName: &pv1}),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, err := check(t, tt.options, complete(tt.objects)...)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Nodes) != 1 || report.Nodes[0].Name != "win-1" {
				t.Fatalf("nodes: %+v", report.Nodes)
			}
			n := report.Nodes[0]
			if want := len(tt.problems) == 0; n.Ready != want || report.Ready != want {
				t.Errorf("ready is %t", n.Ready)
			}
			if len(n.Problems) != len(tt.problems) {
				t.Errorf("problems: %q", n.Problems)
			}
			for i, problem := range tt.problems {
				if i < len(n.Problems) && !strings.Contains(n.Problems[i], problem) {
					t.Errorf("problem %q isn't %q", n.Problems[i], problem)
				}
			}
			if diff := cmp.Diff(append([]Volume{}, tt.volumes...), n.Volumes); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

func ended(p *core.Pod) *core.Pod {
	p.Status.Phase = core.PodSucceeded
	return p
}

// TestOneNodeIsEnough: the gate is shut if one of many nodes isn't ready.
func TestOneNodeIsEnough(t *testing.T) {
	report, err := check(t, Options{WithoutDaemon: true}, node("win-1"), node("win-2"), node("win-3"),
		csiNode("win-1", "", azureDisk), csiNode("win-3", "", azureDisk))
	if err != nil || report.Ready || report.Summary() != "2 of 3 Windows nodes are ready for CSI." {
		t.Errorf("%+v, %v", report, err)
	}
	var out bytes.Buffer
	if err := report.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"win-1   yes", "win-2   no", "win-2: there is no CSINode", "2 of 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

// What is missing is said, unless the options or an annotation make up for it.
func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		options Options
		objects []runtime.Object
		problem string // empty for none
	}{
		{objects: []runtime.Object{node("win-1"), daemon("win-1", "v1.0.0", true)}, problem: "no CSINode"},
		{objects: []runtime.Object{node("win-1"), csiNode("win-1", "", azureFile)}, problem: "CSI Proxy isn't there"},
		{Options{WithoutDaemon: true}, []runtime.Object{node("win-1"), csiNode("win-1", "", azureFile)}, ""},
		{Options{MinVersion: "1.0"},
			[]runtime.Object{node("win-1", annotated("v1.0.1")), csiNode("win-1", "", azureFile)}, ""},
	} {
		report, err := check(t, tt.options, tt.objects...)
		if err != nil || report.Ready != (tt.problem == "") ||
			!report.Ready && !strings.Contains(strings.Join(report.Nodes[0].Problems, "\n"), tt.problem) {
			t.Errorf("%s: %+v, %v", tt.problem, report, err)
		}
	}
}

func TestNoWindowsNodes(t *testing.T) {
	report, err := check(t, Options{})
	if err != nil || !report.Ready || report.Nodes == nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestReplacedDaemon: while a daemon is replaced, the pod that comes counts, not the one
// that goes.
func TestReplacedDaemon(t *testing.T) {
	old := daemon("win-1", "v1.0.0", false)
	old.Name = "csi-proxy-aaa"
	old.DeletionTimestamp = &meta.Time{}
	old.Finalizers = []string{"test/keep"}
	report, err := check(t, Options{}, node("win-1"), csiNode("win-1", "", azureDisk), old,
		daemon("win-1", "v2.0.0", true))
	if err != nil || !report.Ready || report.Nodes[0].Daemon.Version != "v2.0.0" {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestErrors(t *testing.T) {
	if _, err := check(t, Options{MinVersion: "newest"}); !errors.Is(err, ErrOptions) {
		t.Errorf("a version that is none: %v", err)
	}
	for _, resource := range []string{"nodes", "csinodes", "volumeattachments", "persistentvolumes", "pods"} {
		client := fake.NewClientset(node("win-1"))
		broken := errors.New("broken")
		client.PrependReactor("list", resource,
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
		if _, err := Check(t.Context(), client, Options{}); !errors.Is(err, broken) {
			t.Errorf("%s: %v", resource, err)
		}
	}
}
