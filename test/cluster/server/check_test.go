// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/cluster/manifests"
	"github.com/csi-proxy/csi-proxy/test/kubelet/controlplane"
)

const driver = "disk.csi.azure.com"

// TestCheck runs "kubectl csi-proxy check", with the rights of its manifests only, through
// what happens to a cluster that moves to CSI. The daemon is the real one, on a simulated
// node; the check learns its version from it by way of the API server.
func TestCheck(t *testing.T) {
	apply := newApplier(t)
	apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: csi-proxy, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: csi-proxy, namespace: csi-proxy}}`))
	for _, document := range manifests.Documents(t, manifests.Kustomized(t, "upgrade-gate")) {
		apply.really(t, document)
	}
	plugin := build(t, "kubectl-csi-proxy", "kubectl-csi_proxy")
	daemon := startDaemon(t)
	check := func(args ...string) result { return runCheck(t, plugin, tokenOf(t, "csi-proxy-upgrade-gate"), args...) }

	if r := check(); r.code != 0 || !strings.Contains(r.stdout, "no Windows nodes") {
		t.Errorf("a cluster without Windows nodes: %v", r)
	}
	if r := check("-l", "pool=missing"); r.code != 2 || !strings.Contains(r.stderr, "pool=missing") {
		t.Errorf("a selector for no node: %v", r)
	}
	if r := runCheck(t, plugin, tokenOf(t, "csi-proxy")); r.code != 2 || !strings.Contains(r.stderr, "forbidden") {
		t.Errorf("an account without rights: %v", r)
	}

	// A node comes, without anything.
	makeNode(t, "win-1")
	if r := check("-o", "json"); r.code != 1 || r.report(t).Nodes[0].CSINode || len(r.report(t).Nodes[0].Problems) != 2 {
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
	if n := r.report(t).Nodes[0]; r.code != 1 || n.Daemon.Version != builtVersion || n.Daemon.Source != "metrics" ||
		len(n.Problems) != 1 {
		t.Errorf("a node with CSI Proxy %s: %v", builtVersion, r)
	}

	// The daemon answers what the manifests' probes ask.
	for _, path := range probePaths(t) {
		url := fmt.Sprintf("http://%s%s", net.JoinHostPort(daemon.ip, fmt.Sprint(daemon.port)), path)
		if response, err := http.Get(url); err != nil || response.StatusCode != http.StatusOK ||
			response.Body.Close() != nil {
			t.Errorf("%s: %v, %v", path, response, err)
		}
	}

	// While the check waits, the driver comes.
	waiting := startCheck(t, plugin, tokenOf(t, "csi-proxy-upgrade-gate"), "--driver", driver, "--wait", "2m",
		"--interval", "200ms", "-o", "json")
	if line := <-waiting.progress; !strings.Contains(line, "0 of 1 Windows nodes are ready for CSI. Waiting.") {
		t.Errorf("progress: %s", line)
	}
	makeCSINode(t, "win-1", driver)
	if r := waiting.wait(); r.code != 0 || !r.report(t).Ready {
		t.Errorf("after the driver came: %v", r)
	}
	if r := check("--driver", driver, "--driver", "another.example.com"); r.code != 1 ||
		!strings.Contains(r.stdout, "win-1: the CSI driver another.example.com isn't registered") {
		t.Errorf("a driver that isn't there: %v", r)
	}
	if r := check("--wait", "1s", "--interval", "200ms", "--driver", "another.example.com"); r.code != 1 {
		t.Errorf("waiting for a driver that doesn't come: %v", r)
	}

	// A pod uses a volume of the in-tree plugin.
	makeVolume(t, "win-1")
	setAttached(t, "win-1", "kubernetes.io/azure-disk/"+diskURI)
	if r := check(); r.code != 0 || !strings.Contains(r.stdout, "in-tree") || !strings.Contains(r.stdout, "default/app") {
		t.Errorf("a volume whose driver is there: %v", r)
	}
	if r := check("--no-in-tree"); r.code != 1 ||
		!strings.Contains(r.stdout, "the volume pv-1 is handled by the in-tree plugin kubernetes.io/azure-disk") {
		t.Errorf("a volume of the in-tree plugin: %v", r)
	}
	// It is migrated.
	setAttached(t, "win-1", "kubernetes.io/csi/"+driver+"^"+diskURI)
	makeAttachment(t, "win-1")
	r = check("--no-in-tree", "-o", "json")
	if v := r.report(t).Nodes[0].Volumes; r.code != 0 || len(v) != 1 || v[0].By != "csi" || v[0].Name != "pv-1" {
		t.Errorf("a migrated volume: %v", r)
	}

	// Another node, on which something else installs CSI Proxy, and whose driver is missing.
	makeNode(t, "win-2")
	makeCSINode(t, "win-2")
	annotate(t, "win-2", "v9.9.9")
	r = check("--min-version", "v9.0", "-l", "kubernetes.io/hostname=win-2", "-o", "json")
	if n := r.report(t).Nodes[0]; r.code != 1 || n.Daemon.Version != "v9.9.9" || len(n.Problems) != 1 {
		t.Errorf("a node with an annotation: %v", r)
	}
	if r := check("-l", "kubernetes.io/hostname=win-1"); r.code != 0 {
		t.Errorf("the other node: %v", r)
	}
	checkStatus(t, apply, plugin, daemon)

	// The daemon ends.
	daemon.Kill()
	if r := check("-l", "kubernetes.io/hostname=win-1"); r.code != 1 ||
		!strings.Contains(r.stdout, "CSI Proxy doesn't tell its version") {
		t.Errorf("a daemon that doesn't answer: %v", r)
	}
}

// checkStatus runs "kubectl csi-proxy status" with the rights of viewers only, on a cluster
// whose node win-1 has the real daemon and whose node win-2 has an annotation.
func checkStatus(t *testing.T, apply *applier, plugin string, d *daemonProcess) {
	t.Helper()
	for _, document := range manifests.Documents(t, manifests.Kustomized(t, "kubectl-plugin")) {
		apply.really(t, document)
	}
	as := func(group string, args ...string) result {
		return startPlugin(t, plugin, cluster.Config.BearerToken,
			append(args, "--as", "somebody", "--as-group", group)...).wait()
	}
	r := as("csi-proxy:viewers", "status", "-o", "json")
	var status struct {
		OK    bool
		Nodes []struct {
			Node, Mode, Version string
			Disks               *int
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &status); err != nil || r.code != 0 || !status.OK ||
		len(status.Nodes) != 2 {
		t.Fatalf("%v, %v", err, r)
	}
	if n := status.Nodes[0]; n.Mode != "container" || n.Version != builtVersion || n.Disks == nil {
		t.Errorf("win-1: %+v", n)
	}
	if n := status.Nodes[1]; n.Mode != "other" || n.Version != "v9.9.9" || n.Disks != nil {
		t.Errorf("win-2: %+v", n)
	}
	// Administrators of nodes run csi-proxyctl there, which viewers can't.
	administrator := func(args ...string) result { return as("csi-proxy:node-administrators", args...) }
	if r := administrator("disks", "win-1"); r.code != 2 || !strings.Contains(r.stdout, "1 of 1 nodes gave no answer") {
		t.Errorf("disks of a node whose kubelet is away: %v", r)
	}
	ran := startKubelet(t, "win-1", d)
	if r := as("csi-proxy:viewers", "disks", "win-1"); r.code != 2 || !strings.Contains(r.stdout, "forbidden") ||
		ran.Load() != 0 {
		t.Errorf("disks as a viewer: %v", r)
	}
	for command, want := range map[string]string{"disks": "SIMSYSTEM", "doctor": "this system is linux",
		"volumes": "PERSISTENT VOLUME"} {
		if r := administrator(command, "win-1"); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%s as an administrator of nodes: %v", command, r)
		}
	}
	dump := filepath.Join(t.TempDir(), "dump.zip")
	if r := administrator("sysdump", "win-1", "--file", dump); !strings.Contains(r.stdout, "dump.zip") {
		t.Errorf("sysdump as an administrator of nodes: %v", r)
	}
	checkDump(t, dump)
	if ran.Load() < 4 {
		t.Errorf("csi-proxyctl ran %d times", ran.Load())
	}
}

const diskURI = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pv-1"

// builtVersion is the version of the programs that the tests build.
const builtVersion = "v1.2.3"

// build builds a program of the repository, and returns its path.
func build(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	command := exec.Command("go", "build", "-ldflags", "-X main.version="+builtVersion, "-o", path, ".")
	command.Dir = filepath.Join("../../..", dir)
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

// probePaths returns what the probes of CSI Proxy's pods ask for.
func probePaths(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, base := range []string{"hostprocess", "service"} {
		c := manifests.All[*apps.DaemonSet](
			manifests.Decode(t, manifests.Kustomized(t, base)))[0].Spec.Template.Spec.Containers[0]
		paths = append(paths, c.StartupProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path)
	}
	return paths
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

// setAttached makes a volume the only one that is attached to a node.
func setAttached(t *testing.T, node, volume string) {
	t.Helper()
	n, err := cluster.CoreV1().Nodes().Get(t.Context(), node, meta.GetOptions{})
	must(t, err)
	n.Status.VolumesAttached = []core.AttachedVolume{{Name: core.UniqueVolumeName(volume)}}
	n.Status.VolumesInUse = []core.UniqueVolumeName{core.UniqueVolumeName(volume)}
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

func makeAttachment(t *testing.T, node string) {
	t.Helper()
	pv := "pv-1"
	a := &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: "csi-1"}, Spec: storage.VolumeAttachmentSpec{
		Attacher: driver, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &pv},
	}}
	if _, err := cluster.StorageV1().VolumeAttachments().Create(t.Context(), a, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// tokenOf returns a token for an account in the namespace csi-proxy.
func tokenOf(t *testing.T, account string) string {
	t.Helper()
	request, err := cluster.CoreV1().ServiceAccounts("csi-proxy").CreateToken(t.Context(), account,
		&authentication.TokenRequest{}, meta.CreateOptions{})
	must(t, err)
	return request.Status.Token
}

// result is what a check printed, and its exit code.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
}

// report is the JSON that a check prints, as its documentation describes it.
type report struct {
	Ready bool
	Nodes []struct {
		Name     string
		Ready    bool
		Problems []string
		CSINode  bool
		Drivers  []string
		Daemon   struct{ Version, Source string } `json:"csiProxy"`
		Volumes  []struct {
			Name string
			By   string `json:"handledBy"`
		} `json:"inTreeVolumes"`
	}
}

func (r result) report(t *testing.T) report {
	t.Helper()
	var parsed report
	if err := json.Unmarshal([]byte(r.stdout), &parsed); err != nil || len(parsed.Nodes) == 0 {
		t.Fatalf("%v in %v", err, r)
	}
	return parsed
}

// startedCheck is a check that runs.
type startedCheck struct {
	progress <-chan string // its lines on stderr, then closed
	wait     func() result
}

func startCheck(t *testing.T, plugin, token string, args ...string) startedCheck {
	t.Helper()
	return startPlugin(t, plugin, token, append([]string{"check"}, args...)...)
}

// startPlugin starts a command of the plugin.
func startPlugin(t *testing.T, plugin, token string, args ...string) startedCheck {
	t.Helper()
	command := exec.Command(plugin, append(args, "--kubeconfig", kubeconfig(t, token))...)
	var stdout bytes.Buffer
	command.Stdout = &stdout
	stderr, err := command.StderrPipe()
	must(t, err)
	must(t, command.Start())
	// It never has that many.
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return startedCheck{lines, func() result {
		var r result
		for line := range lines {
			r.stderr += line + "\n"
		}
		_ = command.Wait() // the exit code says it
		r.code, r.stdout = command.ProcessState.ExitCode(), stdout.String()
		return r
	}}
}

func runCheck(t *testing.T, plugin, token string, args ...string) result {
	t.Helper()
	return startCheck(t, plugin, token, args...).wait()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
