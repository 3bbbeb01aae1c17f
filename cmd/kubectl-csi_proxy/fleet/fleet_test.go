// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

func node(name string) *core.Node {
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "windows"}}}
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	return n
}

// daemonPod is CSI Proxy's pod on a node, which serves metrics at a port of that name.
func daemonPod(node, port string, args ...string) *core.Pod {
	p := &core.Pod{ObjectMeta: meta.ObjectMeta{
		Namespace: "csi-proxy", Name: "csi-proxy-" + node,
		Labels: map[string]string{"app.kubernetes.io/name": "csi-proxy", "app.kubernetes.io/component": "daemon"},
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []core.Container{{
		Name: "csi-proxy", Image: "registry.example.com:5000/csi-proxy:v0.1.0", Args: args,
		Ports: []core.ContainerPort{{Name: port, ContainerPort: 14810}},
	}}
	p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	return p
}

const healthy = `csi_proxy_build_info{version="v0.1.0"} 1
csi_proxy_staged_volumes 3
csi_proxy_disks{state="online"} 4
csi_proxy_disks{state="offline"} 1
csi_proxy_skipped_disks 0
csi_proxy_smb_mappings{state="network_error"} 0
csi_proxy_calls{state="running"} 1
csi_proxy_calls_limit 4096
`

// ofDrivers is of a daemon with a file of drivers: each driver has series of its own.
const ofDrivers = `csi_proxy_build_info{version="v0.1.0"} 1
csi_proxy_calls{driver="a.example.com",state="running"} 0
csi_proxy_calls{driver="a.example.com",state="streams"} 128
csi_proxy_calls{driver="administrators",state="running"} 60
csi_proxy_calls{driver="b.example.com",state="running"} 60
csi_proxy_calls_limit{driver="a.example.com"} 100
csi_proxy_calls_limit{driver="administrators"} 4096
csi_proxy_calls_limit{driver="b.example.com"} 100
# TYPE grpc_server_handled_total counter
grpc_server_handled_total{driver="a.example.com",grpc_code="FailedPrecondition",grpc_method="UnstageVolume"} 2
grpc_server_handled_total{driver="b.example.com",grpc_code="FailedPrecondition",grpc_method="UnstageVolume"} 3
`

// aCluster is a cluster of these objects whose daemons answer as metrics does.
func aCluster(metrics func(pod string) (string, error), objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	client.PrependProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		get := action.(clienttesting.ProxyGetAction)
		return true, answerFunc(func() (string, error) { return metrics(get.GetName()) }), nil
	})
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
	return client
}

type answerFunc func() (string, error)

func (f answerFunc) DoRaw(context.Context) ([]byte, error) {
	text, err := f()
	return []byte(text), err
}

func (f answerFunc) Stream(context.Context) (io.ReadCloser, error) {
	text, err := f()
	return io.NopCloser(strings.NewReader(text)), err
}

// crowd counts who is there at one time.
type crowd struct {
	mu        sync.Mutex
	now, most int
	all       int
}

func (c *crowd) enter() {
	c.mu.Lock()
	c.now++
	c.all++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(time.Second)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
}

// many returns 300 nodes with CSI Proxy, which serves metrics at a port of that name.
func many(port string) (objects []runtime.Object) {
	for i := range 300 {
		name := fmt.Sprintf("win-%03d", i)
		objects = append(objects, node(name), daemonPod(name, port))
	}
	return objects
}

// TestThreeHundredNodes: each node is asked once, some at a time, and the API server's lists
// are read once.
func TestThreeHundredNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked crowd
		client := aCluster(func(pod string) (string, error) {
			asked.enter()
			if pod == "csi-proxy-win-123" {
				return "", errors.New("connection refused")
			}
			return healthy, nil
		}, many("metrics")...)
		s, err := Query{Client: client, Namespace: "csi-proxy"}.Status(t.Context())
		if err != nil || len(s.Nodes) != 300 || s.OK {
			t.Fatalf("%d nodes, ok %t, %v", len(s.Nodes), s.OK, err)
		}
		if s.Nodes[0].Node != "win-123" || s.Nodes[1].Node != "win-000" || s.Nodes[299].Node != "win-299" {
			t.Errorf("the first are %s and %s, the last is %s", s.Nodes[0].Node, s.Nodes[1].Node, s.Nodes[299].Node)
		}
		if asked.all != 300 || asked.most != cluster.Parallel {
			t.Errorf("%d nodes were asked, %d at a time", asked.all, asked.most)
		}
		lists := slices.DeleteFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "list" })
		if len(lists) != 2 {
			t.Errorf("%d lists were read: %v", len(lists), lists)
		}
	})
}

// TestAskThreeHundredNodes is TestThreeHundredNodes for what runs csi-proxyctl.
func TestAskThreeHundredNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked crowd
		var progress []int
		a := &Asker{Client: aCluster(nil, many("metrics")...), Namespace: "csi-proxy", Timeout: time.Minute}
		a.Progress = func(done, all int) { progress = append(progress, done) }
		a.Exec = func(ctx context.Context, pod *core.Pod, args []string, stdout, _ io.Writer) error {
			asked.enter()
			if pod.Name == "csi-proxy-win-007" {
				<-ctx.Done() // a node that hangs
				return ctx.Err()
			}
			_, err := io.WriteString(stdout, `[{"number":0,"size_bytes":68719476736,"online":true}]`)
			return err
		}
		d, err := a.Disks(t.Context())
		if err != nil || len(d.Nodes) != 300 || Failed(d.Asked()) != 1 || !strings.Contains(d.Nodes[7].Error, "within 1m0s") {
			t.Fatalf("%d nodes, %v, node 7: %+v", len(d.Nodes), err, d.Nodes[7])
		}
		if asked.all != 300 || asked.most != cluster.Parallel || len(progress) != 300 || progress[299] != 300 {
			t.Errorf("%d nodes were asked, %d at a time; progress %d", asked.all, asked.most, len(progress))
		}
	})
}

func TestStatus(t *testing.T) {
	hang := fmt.Sprintf("csi_proxy_windows_hanging_call_start_time_seconds"+
		"{call=\"CreateFileW\",object=\"PhysicalDrive3\"} %d\n",
		time.Now().Add(-time.Hour).Unix())
	waiting := daemonPod("win-1", "metrics")
	waiting.Status = core.PodStatus{ContainerStatuses: []core.ContainerStatus{{
		RestartCount: 4, State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ImagePullBackOff",
			Message: "no such image"}},
	}}}
	crashing := daemonPod("win-1", "metrics")
	crashing.Status = core.PodStatus{ContainerStatuses: []core.ContainerStatus{{
		RestartCount: 2, State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "back-off 10s"}},
		LastTerminationState: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 2,
			Message: "a line\r\nunknown flag: -max-cals\r\n"}},
	}}}
	annotated := node("win-1")
	annotated.Annotations = map[string]string{cluster.VersionAnnotation: "v9"}
	notReady := node("win-1")
	notReady.Status.Conditions = nil
	for _, tt := range []struct {
		name    string
		metrics string
		objects []runtime.Object // nil for a node with a container
		problem string           // a part of the only one
		mode    string
		version string
		check   func(NodeStatus) bool
	}{
		{
			name: "well", metrics: healthy,
			check: func(n NodeStatus) bool { return *n.Volumes == 3 && *n.Disks == 5 && *n.OfflineDisks == 1 },
		},
		{
			name: "metrics are local", objects: []runtime.Object{node("win-1"),
				daemonPod("win-1", "local-metrics", "service", "install")},
			mode: Service, version: "v0.1.0",
			check: func(n NodeStatus) bool { return n.Volumes == nil && strings.Contains(n.Unknown, "on its node only") },
		},
		{name: "no daemon", objects: []runtime.Object{node("win-1")}, problem: "CSI Proxy isn't there",
			check: func(n NodeStatus) bool {
				hints := Status{Nodes: []NodeStatus{n}}.hints()
				return len(hints) == 1 && strings.Contains(hints[0], "docs/install.md")
			}},
		{name: "an annotation", objects: []runtime.Object{annotated}, mode: Other, version: "v9"},
		{name: "the node isn't ready", metrics: healthy, objects: []runtime.Object{notReady, daemonPod("win-1", "metrics")},
			problem: "the node isn't ready", mode: Container, version: "v0.1.0"},
		{name: "the pod isn't ready", objects: []runtime.Object{node("win-1"), waiting},
			problem: "ImagePullBackOff: no such image, after 4 restarts", mode: Container},
		{name: "the pod crashes", objects: []runtime.Object{node("win-1"), crashing},
			problem: "CrashLoopBackOff: back-off 10s, after 2 restarts; it said: unknown flag: -max-cals", mode: Container},
		{name: "removal", objects: []runtime.Object{node("win-1"), daemonPod("win-1", "metrics", "service", "uninstall")},
			mode: Removal},
		{name: "a hang", metrics: healthy + hang, problem: "Windows hasn't answered CreateFileW on PhysicalDrive3 for 1h",
			check: func(n NodeStatus) bool { return len(n.Hangs) == 1 }},
		{name: "silent disks", metrics: strings.Replace(healthy, "skipped_disks 0", "skipped_disks 2", 1),
			problem: "2 disks don't answer"},
		{name: "a mapping", metrics: strings.Replace(healthy, "network_error\"} 0", "network_error\"} 1", 1),
			problem: "1 SMB mappings have network errors"},
		{name: "a file of drivers", metrics: healthy + `csi_proxy_drivers_file_changed{file="C:\\k\\drivers.json"} 0` + "\n"},
		{name: "a file of drivers that has changed", metrics: healthy + `csi_proxy_drivers_file_changed{file="C:\\k\\drivers.json"} 1` + "\n",
			problem: `C:\k\drivers.json has changed since the daemon has read it`},
		{name: "a file of drivers that is wrong", metrics: healthy + `csi_proxy_drivers_file_changed{file="C:\\k\\drivers.json"} 2` + "\n",
			problem: `the daemon can't start again with C:\k\drivers.json`},
		{name: "a volume that was in use", metrics: healthy + `# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK",grpc_method="UnstageVolume"} 5
grpc_server_handled_total{grpc_code="FailedPrecondition",grpc_method="UnstageVolume"} 2
grpc_server_handled_total{grpc_code="FailedPrecondition",grpc_method="StageVolume"} 7
`,
			check: func(n NodeStatus) bool { return *n.RefusedUnstages == 2 }},
		{name: "links that kubelet has lost track of", metrics: healthy + `csi_proxy_forgotten_links{path="C:\\k\\pods\\1a2b\\volumes\\kubernetes.io~csi\\pv-1\\mount"} 1
csi_proxy_forgotten_links{path="C:\\o'k\\pods\\2b\\volumes\\kubernetes.io~csi\\pv-2\\mount"} 1
csi_proxy_forgotten_links{path="others"} 3
`,
			problem: "volumes can't be unstaged: kubelet has lost track of 5 links to them",
			check: func(n NodeStatus) bool {
				const path = `C:\k\pods\1a2b\volumes\kubernetes.io~csi\pv-1\mount`
				return n.ForgottenLinkCount == 5 && slices.Equal(n.ForgottenLinks, []ForgottenLink{{path, "1a2b", "pv-1",
					`kubectl -n csi-proxy exec csi-proxy-win-1 -- '%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxyctl.exe' storage unpublish '` + path + "'"}})
			}},
		{name: "no such links", metrics: healthy + "csi_proxy_forgotten_links{path=\"others\"} 0\n",
			check: func(n NodeStatus) bool { return n.ForgottenLinkCount == 0 && len(n.ForgottenLinks) == 0 }},
		{name: "old", metrics: healthy + "csi_proxy_inventory_timestamp_seconds{of=\"volumes\"} 1\n",
			problem: "Windows hasn't answered queries for the node's volumes"},
		{name: "many calls", metrics: strings.Replace(healthy, "running\"} 1", "running\"} 3000", 1),
			problem: "3000 calls are under way, of 4096"},
		{name: "many calls of one of the drivers", metrics: ofDrivers,
			problem: "60 calls of b.example.com are under way, of 100",
			check:   func(n NodeStatus) bool { return *n.RefusedUnstages == 5 }},
		{name: "another program", metrics: "<html>", problem: "CSI Proxy doesn't answer"},
		{name: "endless", metrics: strings.Repeat("#", 17<<20), problem: "more than 16777216 bytes"},
	} {
		if tt.objects == nil {
			tt.objects, tt.mode, tt.version = []runtime.Object{node("win-1"), daemonPod("win-1", "metrics")}, Container, "v0.1.0"
		}
		t.Run(tt.name, func(t *testing.T) {
			client := aCluster(func(string) (string, error) { return tt.metrics, nil }, tt.objects...)
			s, err := Query{Client: client, Namespace: "csi-proxy"}.Status(t.Context())
			if err != nil || len(s.Nodes) != 1 {
				t.Fatalf("%+v, %v", s, err)
			}
			n := s.Nodes[0]
			switch {
			case tt.problem == "" && len(n.Problems) > 0,
				tt.problem != "" && (len(n.Problems) != 1 || !strings.Contains(n.Problems[0], tt.problem)):
				t.Errorf("problems: %q", n.Problems)
			case s.OK != (tt.problem == "") || n.Mode != tt.mode || n.Version != tt.version || tt.check != nil && !tt.check(n):
				t.Errorf("%+v", n)
			}
		})
	}
}

// exited is an exit code other than 0.
type exited int

func (e exited) Error() string   { return fmt.Sprintf("exit code %d", int(e)) }
func (e exited) ExitStatus() int { return int(e) }

// hostile is a text that clears a terminal's screen and forges a row.
const hostile = "v1\x1b]0;owned\x07\x1b[2J\nwin-2  yes\u202e"

// TestNothingReachesTheTerminal: what nodes and the API server say is data, in each command.
func TestNothingReachesTheTerminal(t *testing.T) {
	n := node("win-1")
	n.Annotations = map[string]string{cluster.VersionAnnotation: hostile}
	s, err := Query{Client: aCluster(nil, n), Namespace: "csi-proxy"}.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quoted := strings.NewReplacer("\x1b", `\u001b`, "\x07", `\u0007`, "\n", `\n`).Replace(hostile)
	raw := []byte(fmt.Sprintf(`{"path":"%s","serial_number":"%s","kind":"%s"}`, quoted, quoted, quoted))
	for name, found := range map[string]interface{ Print(io.Writer) error }{
		"status": View{Status: s},
		"disks": Disks{answers(NodeDisks{Asked{Node: hostile, Error: hostile}, nil},
			NodeDisks{Asked{Node: "a"}, []json.RawMessage{raw}})},
		"volumes": Volumes{answers(
			NodeVolumes{Asked{Node: hostile}, []Mount{{Mount: raw, Problem: hostile}}, hostile})},
		"doctor": Findings{answers(
			NodeFindings{Asked{Node: hostile}, []Finding{{hostile, "problem", hostile, hostile}}})},
		"logs": Logs{answers(NodeLog{Asked{Node: hostile}, []string{hostile}}, NodeLog{Asked{Node: "a"}, nil})},
	} {
		var out bytes.Buffer
		if err := found.Print(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202e' }); i >= 0 ||
			out.Len() == 0 {
			t.Errorf("%s: %q", name, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "win-2") {
				t.Errorf("%s: a forged line: %q", name, line)
			}
		}
	}
}

func TestVolumes(t *testing.T) {
	handle := sha256.Sum256([]byte("vol-1"))
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1"}
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "data"}
	app := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "app", UID: "0a1b2c"},
		Spec: core.PodSpec{NodeName: "win-1"}}
	a := &Asker{Client: aCluster(nil, node("win-1"), daemonPod("win-1", "metrics"), pv, app), Namespace: "csi-proxy",
		Timeout: time.Minute}
	a.Exec = func(_ context.Context, _ *core.Pod, args []string, stdout, _ io.Writer) error {
		if strings.Join(args[:2], " ") != "storage volumes" {
			return fmt.Errorf("arguments %q", args)
		}
		_, err := fmt.Fprintf(stdout, `{"mounts":[
			{"kind":"mount point","path":"C:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\csi\\ebs.csi.aws.com\\%s\\globalmount"},
			{"kind":"link","path":"c:\\var\\lib\\kubelet\\pods\\0A1B2C\\volumes\\kubernetes.io~csi\\pv-1\\mount"},
			{"kind":"link","path":"C:\\var\\lib\\kubelet\\pods\\ffff\\volumes\\kubernetes.io~csi\\pv-2\\mount","leftover_reason":"it leads nowhere"},
			{"kind":"link","path":"C:\\k\\pods\\0a1b2c\\volumes\\kubernetes.io~csi\\pv-3\\mount","forgotten_pod":"0a1b2c"},
			{"kind":"mapping","target":"\\\\files\\share"}],"incomplete_reason":"disk 3"}`, hex.EncodeToString(handle[:]))
		return err
	}
	v, err := a.Volumes(t.Context())
	if err != nil || len(v.Nodes) != 1 || len(v.Nodes[0].Mounts) != 5 {
		t.Fatalf("%+v, %v", v, err)
	}
	for i, want := range []struct{ pod, claim, pv, problem string }{
		{claim: "shop/data", pv: "pv-1"},
		{pod: "shop/app", claim: "shop/data", pv: "pv-1"},
		{problem: "nobody needs it: it leads nowhere; the API server has no pod with the UID ffff on the node: if kubelet there hasn't either, run on it csi-proxyctl storage unpublish C:\\var\\lib\\kubelet\\pods\\ffff\\volumes\\kubernetes.io~csi\\pv-2\\mount"},
		{pod: "shop/app", problem: "kubelet has lost track of the volume of this pod, whose UID is 0a1b2c: when the pod is gone from the node, run on it csi-proxyctl storage unpublish C:\\k\\pods\\0a1b2c\\volumes\\kubernetes.io~csi\\pv-3\\mount"},
		{},
	} {
		if m := v.Nodes[0].Mounts[i]; m.Pod != want.pod || m.Claim != want.claim || m.PersistentVolume != want.pv ||
			m.Problem != want.problem {
			t.Errorf("mount %d: %+v", i, m)
		}
	}
}

// TestDoctor: findings count even if csi-proxyctl ends with the code that says that there are
// problems; an error that it says itself is the node's.
func TestDoctor(t *testing.T) {
	objects := []runtime.Object{node("win-1"), node("win-2"), node("win-3"), daemonPod("win-1", "metrics"),
		daemonPod("win-2", "metrics")}
	a := &Asker{Client: aCluster(nil, objects...), Namespace: "csi-proxy", Timeout: time.Minute}
	a.Exec = func(_ context.Context, pod *core.Pod, _ []string, stdout, stderr io.Writer) error {
		if pod.Name == "csi-proxy-win-1" {
			_, err := io.WriteString(stdout, `[{"check":"disks","verdict":"problem","finding":"disk 3 hangs","advice":"look"},{"check":"a","verdict":"unknown","finding":"b"}]`)
			return errors.Join(err, exited(1))
		}
		_, err := io.WriteString(stderr, `{"error":{"code":"Unavailable","message":"nobody listens"}}`)
		return errors.Join(err, exited(6))
	}
	f, err := a.Doctor(t.Context())
	if err != nil || f.Problems() != 1 || Failed(f.Asked()) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if f.Nodes[1].Error != "nobody listens" || !strings.Contains(f.Nodes[2].Error, "no pod of CSI Proxy") {
		t.Errorf("%+v", f.Nodes)
	}
	var out bytes.Buffer
	if err := f.Print(&out); err != nil || !strings.Contains(out.String(), "to do: look") ||
		!strings.Contains(out.String(), "can't tell") ||
		!strings.Contains(out.String(), "2 of 3 nodes gave no answer") || !strings.Contains(out.String(), "On 0 of 3 nodes") {
		t.Errorf("%v\n%s", err, &out)
	}
	a.Names = []string{"linux-1"}
	if _, err := a.Doctor(t.Context()); err == nil || !strings.Contains(err.Error(), "no Windows node linux-1") {
		t.Errorf("a node that isn't there: %v", err)
	}
}

// bundleOf is a support bundle with a log.
func bundleOf(t *testing.T, log string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("log/csi-proxy.log")
	if err == nil {
		_, err = io.WriteString(f, log)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSysdump(t *testing.T) {
	driver := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "kube-system", Name: "ebs-csi-node",
		Annotations: map[string]string{
			core.LastAppliedConfigAnnotation: "hunter2",
		}}, Spec: core.PodSpec{NodeName: "win-1", Containers: []core.Container{{Name: "ebs"},
		{Name: "node-driver-registrar"}}}}
	app := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "app"},
		Spec: core.PodSpec{NodeName: "win-1", Containers: []core.Container{{Name: "app"}}}}
	daemon := daemonPod("win-1", "metrics", "service", "install")
	daemon.Spec.Containers[0].Env = []core.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}
	daemon.Annotations = map[string]string{core.LastAppliedConfigAnnotation: "hunter2"}
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{VolumeAttributes: map[string]string{"password": "hunter2",
		"secretName": "kept"}}
	// On win-2 something else has installed CSI Proxy.
	elsewhere := driver.DeepCopy()
	elsewhere.Name, elsewhere.Spec.NodeName = "ebs-csi-node-2", "win-2"
	a := &Asker{Client: aCluster(nil, node("win-1"), node("win-2"), daemon, driver, elsewhere, app, pv),
		Namespace: "csi-proxy", Timeout: time.Minute}
	a.Exec = func(_ context.Context, _ *core.Pod, args []string, stdout, _ io.Writer) error {
		_, err := stdout.Write(bundleOf(t, "line 1\r\nline 2\r\n"))
		return err
	}
	var out bytes.Buffer
	asked, err := a.Sysdump(t.Context(), &out, "about", time.Now())
	if err != nil || Failed(asked) != 1 {
		t.Fatalf("%+v, %v", asked, err)
	}
	files, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	contents := make(map[string]string)
	for _, f := range files.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if contents[f.Name] = string(text); strings.Contains(string(text), "hunter2") {
			t.Errorf("%s has a secret:\n%s", f.Name, text)
		}
	}
	for name, part := range map[string]string{
		"nodes/win-1/support-bundle.zip":                           "PK",
		"nodes/win-1/logs/csi-proxy/csi-proxy-win-1/csi-proxy.log": "fake logs",
		"nodes/win-1/logs/kube-system/ebs-csi-node/ebs.log":        "fake logs",
		"nodes/win-2/logs/kube-system/ebs-csi-node-2/ebs.log":      "fake logs",
		"cluster/persistentvolumes.yaml":                           "secretName: kept",
		"cluster/csi-proxy/pods.yaml":                              "kind: Pod",
		"cluster/nodes.yaml":                                       "win-2",
		"missing.txt":                                              "node win-2: there is no pod of CSI Proxy",
		"about.txt":                                                "about",
	} {
		if !strings.Contains(contents[name], part) {
			t.Errorf("%s: %q, not %q", name, contents[name], part)
		}
	}
	for name := range contents {
		if strings.Contains(name, "shop") {
			t.Errorf("the log of a pod that is no driver's: %s", name)
		}
	}

	// The log of a service comes from the same bundle, that of a container from the API server.
	logs, err := a.Logs(t.Context(), 1)
	if err != nil || len(logs.Nodes[0].Lines) != 1 || strings.TrimSpace(logs.Nodes[0].Lines[0]) != "line 2" {
		t.Errorf("%+v, %v", logs, err)
	}
	daemon.Spec.Containers[0].Args = nil
	a.Client = aCluster(nil, node("win-1"), daemon)
	if logs, err := a.Logs(t.Context(), 1); err != nil || !slices.Equal(logs.Nodes[0].Lines, []string{"fake logs"}) {
		t.Errorf("%+v, %v", logs, err)
	}
}

func TestFileNames(t *testing.T) {
	for _, names := range [][]string{{"..", "a"}, {"a/../../b"}, {`a\b`}, {"C:x"}, {"."}} {
		got := file(append([]string{"nodes"}, names...)...)
		if !strings.HasPrefix(got, "nodes/") || strings.ContainsAny(got, `\:`) || slices.Contains(strings.Split(got, "/"), "..") {
			t.Errorf("%q: %q", names, got)
		}
	}
}

func answers[T interface{ asked() Asked }](nodes ...T) Answers[T] { return Answers[T]{nodes} }
