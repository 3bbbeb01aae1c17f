// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

const driver = "disk.csi.azure.com"

// TestCheck runs "kubectl csi-proxy check", with the rights of viewers only, through what happens to
// a cluster that moves to CSI. The daemon is the real one, on a simulated node; the check learns its
// version from it by way of the API server.
func TestCheck(t *testing.T) {
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: csi-proxy, namespace: csi-proxy}}`))
	for _, document := range manifests.Documents(t, manifests.Kustomized(t, "kubectl-plugin")) {
		apply.really(t, document)
	}
	plugin := build(t, "cmd/kubectl-csi_proxy", "kubectl-csi_proxy")
	daemon := startDaemon(t)
	as := func(group string, args ...string) result {
		return runPlugin(t, plugin, append(args, "--as", "somebody", "--as-group", group)...)
	}
	check := func(args ...string) result { return as("csi-proxy:viewers", append([]string{"check"}, args...)...) }

	if r := check(); r.code != 0 || !strings.Contains(r.stdout, "no Windows nodes") {
		t.Errorf("a cluster without Windows nodes: %v", r)
	}
	if r := check("-l", "pool=missing"); r.code != 2 || !strings.Contains(r.stderr, "pool=missing") {
		t.Errorf("a selector for no node: %v", r)
	}
	if r := as("others", "check"); r.code != 2 || !strings.Contains(r.stderr, "forbidden") {
		t.Errorf("somebody without rights: %v", r)
	}

	// A node comes, without anything.
	makeNode(t, "win-1")
	if r := check("-o", "json"); r.code != 1 || len(r.status(t).Nodes[0].Problems) != 2 {
		t.Errorf("a node without anything: %v", r)
	}

	// CSI Proxy comes, and the right to read its metrics.
	makeDaemonPod(t, "win-1", daemon)
	if r := check(); r.code != 1 || !strings.Contains(r.stdout, "pods/proxy") ||
		!strings.Contains(r.stdout, "metrics-reader gives that right") {
		t.Errorf("metrics that mustn't be read: %v", r)
	}
	for _, document := range manifests.Documents(t, manifests.Kustomized(t, "metrics-reader")) {
		apply.really(t, document)
	}
	r := check("-o", "json")
	if n := r.status(t).Nodes[0]; r.code != 1 || n.Version != builtVersion || len(n.Problems) != 1 {
		t.Errorf("a node with CSI Proxy %s: %v", builtVersion, r)
	}

	// A driver comes, but not the one for a volume of the in-tree plugin that a pod uses.
	makeCSINode(t, "win-1", "another.example.com")
	if r := check(); r.code != 0 {
		t.Errorf("after a driver came: %v", r)
	}
	makeVolume(t, "win-1")
	if r := check(); r.code != 1 || !strings.Contains(r.stdout,
		"the CSI driver disk.csi.azure.com isn't registered: after the upgrade the node can't mount pv-1") {
		t.Errorf("a volume whose driver is missing: %v", r)
	}
	if r := as("csi-proxy:viewers", "status"); r.code != 0 {
		t.Errorf("status, which isn't about drivers: %v", r)
	}
	addDriver(t, "win-1", driver)
	r = check("--driver", driver, "-o", "json")
	if n := r.status(t).Nodes[0]; r.code != 0 || len(n.Drivers) != 2 || len(n.InTree) != 1 || n.InTree[0].Name != "pv-1" {
		t.Errorf("after its driver came: %v", r)
	}

	// Another node, on which something else installs CSI Proxy.
	makeNode(t, "win-2")
	makeCSINode(t, "win-2", driver)
	if r := check("--without-daemon"); r.code != 0 {
		t.Errorf("a node that needs no CSI Proxy: %v", r)
	}
	if r := check(); r.code != 1 || !strings.Contains(r.stdout, "CSI Proxy isn't there") {
		t.Errorf("a node without CSI Proxy: %v", r)
	}
	if r := check("-l", "kubernetes.io/hostname=win-1"); r.code != 0 {
		t.Errorf("the other node: %v", r)
	}
	annotate(t, "win-2", "v9.9.9")
	checkStatus(t, as, daemon)

	// The daemon ends.
	daemon.Kill()
	if r := check("-l", "kubernetes.io/hostname=win-1"); r.code != 1 || !strings.Contains(r.stdout, "CSI Proxy doesn't answer") {
		t.Errorf("a daemon that doesn't answer: %v", r)
	}
}

// checkStatus runs "kubectl csi-proxy status" with the rights of viewers only, on a cluster
// whose node win-1 has the real daemon and whose node win-2 has an annotation; and "why --exec" with those of
// administrators of nodes.
func checkStatus(t *testing.T, as func(group string, args ...string) result, d *daemonProcess) {
	t.Helper()
	r := as("csi-proxy:viewers", "status", "-o", "json")
	status := r.status(t)
	if r.code != 0 || !status.OK || len(status.Nodes) != 2 {
		t.Fatal(r)
	}
	if n := status.Nodes[0]; n.Mode != "container" || n.Version != builtVersion || n.Disks == nil {
		t.Errorf("win-1: %+v", n)
	}
	if n := status.Nodes[1]; n.Mode != "other" || n.Version != "v9.9.9" || n.Disks != nil {
		t.Errorf("win-2: %+v", n)
	}
	// Administrators of nodes run csi-proxyctl there, which others can't.
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "inline"}, Spec: core.PodSpec{
		NodeName: "win-1", Containers: []core.Container{{Name: "app", Image: "app"}},
		Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: driver}}}},
	}}
	if _, err := cluster.CoreV1().Pods("default").Create(t.Context(), pod, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ran := startKubelet(t, "win-1", d)
	if r := as("csi-proxy:why", "why", "-n", "default", "inline", "--exec"); !strings.Contains(r.stdout, "forbidden") || ran.Load() != 0 {
		t.Errorf("why --exec without the right: %v", r)
	}
	r = as("csi-proxy:why", "why", "-n", "default", "inline", "--exec", "--as-group", "csi-proxy:node-administrators")
	if !strings.Contains(r.stdout, "csi-proxyctl doctor has found no problem") || ran.Load() != 1 {
		t.Errorf("why --exec as an administrator of nodes, with %d runs: %v", ran.Load(), r)
	}
}

const diskURI = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pv-1"

// builtVersion is the version of the programs that the tests build.
const builtVersion = "v1.2.3"

// build builds a program of the repository, and returns its path.
func build(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	tags, err := os.ReadFile("../../../../cmd/build-tags")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "build", "-tags", strings.TrimSpace(string(tags)), "-ldflags", "-X main.version="+builtVersion, "-o", path, ".")
	command.Dir = filepath.Join("../../../..", dir)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", dir, err, out)
	}
	return path
}

// daemonProcess is a csi-proxy on a simulated node.
type daemonProcess struct {
	*controlplane.Program
	endpoints string // the directory
	ip        string
	port      int32
}

// startDaemon starts a daemon that serves metrics at an address of this machine that the API
// server connects to: none of 127.0.0.0/8, which it refuses.
func startDaemon(t *testing.T) *daemonProcess {
	t.Helper()
	path := build(t, "cmd/csi-proxy", "csi-proxy")
	ports, err := controlplane.FreePorts(1)
	must(t, err)
	ip := address(t)
	dir := t.TempDir()
	endpoints := filepath.Join(dir, "node")
	p, err := controlplane.Start(dir, "csi-proxy",
		exec.Command(path, "-endpoint-dir="+endpoints, "-metrics-bind-address="+net.JoinHostPort(ip, ports[0])))
	must(t, err)
	d := &daemonProcess{Program: p, endpoints: endpoints, ip: ip}
	t.Cleanup(d.Kill)
	if _, err := fmt.Sscan(ports[0], &d.port); err != nil {
		t.Fatal(err)
	}
	url := "http://" + net.JoinHostPort(ip, ports[0]) + "/metrics"
	must(t, controlplane.Await(t.Context(), "the daemon's metrics are served", d.Ended, func() (bool, error) {
		response, err := http.Get(url)
		if err != nil {
			return false, nil
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	}))
	return d
}

func address(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but 127.0.0.1, to which an API server doesn't connect")
	return ""
}

func makeNode(t *testing.T, name string) {
	t.Helper()
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name,
		Labels: map[string]string{core.LabelOSStable: "windows", core.LabelHostname: name}}}
	n, err := cluster.CoreV1().Nodes().Create(t.Context(), n, meta.CreateOptions{})
	must(t, err)
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	if _, err := cluster.CoreV1().Nodes().UpdateStatus(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, node, version string) {
	t.Helper()
	n, err := cluster.CoreV1().Nodes().Get(t.Context(), node, meta.GetOptions{})
	must(t, err)
	n.Annotations = map[string]string{"csi-proxy.dev/version": version}
	if _, err := cluster.CoreV1().Nodes().Update(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func makeCSINode(t *testing.T, node string, drivers ...string) {
	t.Helper()
	n := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: node}}
	for _, name := range drivers {
		n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: name, NodeID: node})
	}
	if _, err := cluster.StorageV1().CSINodes().Create(t.Context(), n, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makeDaemonPod makes the pod that the DaemonSet would make on a node, and reports it as
// ready, with the real daemon behind it.
func makeDaemonPod(t *testing.T, node string, d *daemonProcess) {
	t.Helper()
	set := manifests.All[*apps.DaemonSet](manifests.Decode(t, manifests.Kustomized(t, "hostprocess")))[0]
	pod := &core.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Name = "csi-proxy-" + node
	pod.Spec.NodeName = node
	pod.Spec.Containers[0].Ports[0].Name = "metrics" // which others can read
	pod.Spec.Containers[0].Ports[0].ContainerPort = d.port
	pod.Spec.Containers[0].Ports[0].HostPort = d.port
	pod, err := cluster.CoreV1().Pods("csi-proxy").Create(t.Context(), pod, meta.CreateOptions{})
	must(t, err)
	pod.Status.Phase = core.PodRunning
	pod.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	pod.Status.PodIPs = []core.PodIP{{IP: d.ip}}
	pod.Status.PodIP = d.ip
	if _, err := cluster.CoreV1().Pods("csi-proxy").UpdateStatus(t.Context(), pod,
		meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makeVolume makes a volume for the in-tree plugin of Azure Disk, and a pod that uses it.
func makeVolume(t *testing.T, node string) {
	t.Helper()
	size := core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pv-1"}, Spec: core.PersistentVolumeSpec{
		Capacity: size, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
		ClaimRef: &core.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"},
	}}
	managed := core.AzureManagedDisk
	pv.Spec.AzureDisk = &core.AzureDiskVolumeSource{DiskName: "pv-1", DataDiskURI: diskURI, Kind: &managed}
	if _, err := cluster.CoreV1().PersistentVolumes().Create(t.Context(), pv, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "default"}}
	if _, err := cluster.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "app"}, Spec: core.PodSpec{
		NodeName:   node,
		Containers: []core.Container{{Name: "app", Image: "app"}},
		Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}},
	}}
	if _, err := cluster.CoreV1().Pods("default").Create(t.Context(), pod, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addDriver registers one more driver with a node's kubelet.
func addDriver(t *testing.T, node, name string) {
	t.Helper()
	n, err := cluster.StorageV1().CSINodes().Get(t.Context(), node, meta.GetOptions{})
	must(t, err)
	n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: name, NodeID: node})
	if _, err := cluster.StorageV1().CSINodes().Update(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// result is what a command of the plugin printed, and its exit code.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
}

// status is the JSON that status and check print, as their documentation describes it.
type status struct {
	OK    bool
	Nodes []struct {
		Node, Mode, Version string
		Problems, Drivers   []string
		Disks               *int
		InTree              []struct{ Name, Driver string } `json:"inTreeVolumes"`
	}
}

func (r result) status(t *testing.T) status {
	t.Helper()
	var parsed status
	if err := json.Unmarshal([]byte(r.stdout), &parsed); err != nil || len(parsed.Nodes) == 0 {
		t.Fatalf("%v in %v", err, r)
	}
	return parsed
}

// runPlugin runs a command of the plugin, with all rights unless its arguments say otherwise.
func runPlugin(t *testing.T, plugin string, args ...string) result {
	t.Helper()
	command := exec.Command(plugin, append(args, "--kubeconfig", kubeconfig(t, cluster.Config.BearerToken))...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run() // the exit code says it
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
