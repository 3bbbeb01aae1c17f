// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
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
			problem: `C:\k\drivers.json has changed since the daemon read it`},
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

// hostile is a text that clears a terminal's screen and forges a row.
const hostile = "v1\x1b]0;owned\x07\x1b[2J\nwin-2  yes\u202e"

// TestNothingReachesTheTerminal: what nodes and the API server say is data.
func TestNothingReachesTheTerminal(t *testing.T) {
	n := node("win-1")
	n.Annotations = map[string]string{cluster.VersionAnnotation: hostile}
	s, err := Query{Client: aCluster(nil, n), Namespace: "csi-proxy"}.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (View{Status: s}).Print(&out); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202e' }); i >= 0 || out.Len() == 0 {
		t.Errorf("%q", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "win-2") {
			t.Errorf("a forged line: %q", line)
		}
	}
}
