// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet says how CSI Proxy does on the Windows nodes of a cluster. What a node's
// metrics and the API server say takes rights to read only. Everything else is asked of the
// node itself, by running csi-proxyctl in CSI Proxy's pod on it, which is SYSTEM there: who
// may do that is an administrator of the nodes.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/cluster"
	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/table"
)

// Status is how CSI Proxy does on all nodes. Its JSON is the output of "kubectl csi-proxy
// status -o json".
type Status struct {
	// OK says that no node has a problem.
	OK bool `json:"ok"`
	// Nodes are sorted by name, those with problems first.
	Nodes []NodeStatus `json:"nodes"`
}

// NodeStatus is how CSI Proxy does on a node.
type NodeStatus struct {
	Node string `json:"node"`
	// Problems are sentences; none if all is well, as far as it is known.
	Problems []string `json:"problems"`
	// Mode is one of the modes; empty if there is no CSI Proxy.
	Mode string `json:"mode,omitempty"`
	Pod  string `json:"pod,omitempty"`
	// Version is empty if it isn't known.
	Version string `json:"version,omitempty"`
	// Unknown says why the fields below aren't known; it is empty if they are.
	Unknown string `json:"unknown,omitempty"`
	// Volumes are the volumes of disks that are staged.
	Volumes *int `json:"stagedVolumes,omitempty"`
	// Disks are those that answer, OfflineDisks those of them that are offline, and
	// SilentDisks those that don't answer.
	Disks        *int `json:"disks,omitempty"`
	OfflineDisks *int `json:"offlineDisks,omitempty"`
	SilentDisks  *int `json:"silentDisks,omitempty"`
	// Hangs are the calls that Windows doesn't answer.
	Hangs []Hang `json:"hangingCalls"`
}

// The modes in which CSI Proxy is on a node.
const (
	Container = "container" // a HostProcess container
	Service   = "service"   // a Windows service that a pod installs and watches
	Removal   = "removal"   // a pod that removes the service
	Other     = "other"     // something else has installed it: the node has the annotation
)

// Hang is a call that Windows doesn't answer.
type Hang struct {
	Call   string    `json:"call"`
	Object string    `json:"object"`
	Since  time.Time `json:"since"`
}

// ReadStatus asks the API server, and by way of it the daemons, once. An error says that the
// cluster couldn't be looked at.
func ReadStatus(ctx context.Context, client kubernetes.Interface, scraper cluster.Scraper, namespace,
	selector string) (Status, error) {
	nodes, err := cluster.Nodes(ctx, client, selector)
	if err != nil {
		return Status{}, err
	}
	pods, err := cluster.DaemonPods(ctx, client, namespace)
	if err != nil {
		return Status{}, err
	}
	var s Status
	s.Nodes = cluster.InParallel(nodes, func(n *core.Node) NodeStatus {
		return statusOf(ctx, client, scraper, n, pods[n.Name])
	})
	s.OK = s.with(func(n NodeStatus) bool { return len(n.Problems) > 0 }) == 0
	slices.SortStableFunc(s.Nodes, func(a, b NodeStatus) int {
		return cmp.Compare(min(1, len(b.Problems)), min(1, len(a.Problems)))
	})
	// An interrupted look isn't one that found daemons that don't answer.
	return s, context.Cause(ctx)
}

// statusOf returns the status of a node, with CSI Proxy's pod on it; nil for none.
func statusOf(ctx context.Context, client kubernetes.Interface, scraper cluster.Scraper, n *core.Node,
	pod *core.Pod) NodeStatus {
	s := NodeStatus{Node: n.Name, Problems: []string{}, Hangs: []Hang{}}
	if !cluster.NodeIsReady(n) {
		s.problem("the node isn't ready")
	}
	if pod == nil {
		s.Version = n.Annotations[cluster.VersionAnnotation]
		if s.Unknown = "no pod of CSI Proxy is on the node"; s.Version == "" {
			s.problem("CSI Proxy isn't there: the node has no pod of it, and no annotation %s", cluster.VersionAnnotation)
		} else {
			s.Mode = Other
		}
		return s
	}
	s.Pod, s.Mode = pod.Name, modeOf(pod)
	if !cluster.PodIsReady(pod) {
		s.Unknown = "its pod isn't ready"
		s.problem("CSI Proxy isn't ready: %s", whyNotReady(pod))
		return s
	}
	if s.Mode == Removal {
		s.Unknown = "CSI Proxy is being removed"
		return s
	}
	metrics, err := scraper.Metrics(ctx, client, pod)
	if err != nil {
		s.Unknown = err.Error()
		// No tag of the image is no more than a version that isn't known.
		s.Version, _ = cluster.ImageVersion(pod)
		if !errors.Is(err, cluster.ErrLocal) {
			s.problem("CSI Proxy doesn't answer: %v", err)
		}
		return s
	}
	s.read(metrics, time.Now())
	return s
}

// modeOf says what CSI Proxy's pod does, by what it runs: see deploy.
func modeOf(pod *core.Pod) string {
	c := pod.Spec.Containers[0]
	switch arguments := slices.Concat(c.Command, c.Args); {
	case slices.Contains(arguments, "uninstall"):
		return Removal
	case slices.Contains(arguments, "install"):
		return Service
	}
	return Container
}

// whyNotReady says what Kubernetes says of a pod that isn't ready.
func whyNotReady(pod *core.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		restarted := ""
		if c.RestartCount > 0 {
			restarted = fmt.Sprintf(", after %d restarts", c.RestartCount)
		}
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			return fmt.Sprintf("%s: %s%s", state.Waiting.Reason, state.Waiting.Message, restarted)
		case state.Terminated != nil:
			return fmt.Sprintf("it ended with exit code %d%s", state.Terminated.ExitCode, restarted)
		case state.Running != nil:
			return "its container runs, and isn't ready" + restarted
		}
	}
	return fmt.Sprintf("the phase of the pod %s is %s", pod.Name, pod.Status.Phase)
}

func (s *NodeStatus) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// inventoryAge is how old what a daemon knows of its node may get. It looks each time that it
// is asked, and at most every 30 seconds.
const inventoryAge = 10 * time.Minute

// read takes over what a daemon's metrics say; docs/metrics.md explains them.
func (s *NodeStatus) read(m cluster.Metrics, now time.Time) {
	var err error
	if s.Version, err = m.Version(); err != nil {
		s.Unknown = err.Error()
		s.problem("what answers isn't CSI Proxy: %v", err)
		return
	}
	count := func(name, label, value string) *int {
		v, ok := m.Value(name, label, value)
		if !ok {
			return nil
		}
		n := int(v)
		return &n
	}
	s.Volumes = count("csi_proxy_staged_volumes", "", "")
	s.OfflineDisks = count("csi_proxy_disks", "state", "offline")
	s.SilentDisks = count("csi_proxy_skipped_disks", "", "")
	if online := count("csi_proxy_disks", "state", "online"); online != nil && s.OfflineDisks != nil {
		all := *online + *s.OfflineDisks
		s.Disks = &all
	}
	for _, h := range m.Series("csi_proxy_windows_hanging_call_start_time_seconds") {
		hang := Hang{h.Labels["call"], h.Labels["object"], time.UnixMilli(int64(h.Value * 1000)).UTC()}
		s.Hangs = append(s.Hangs, hang)
	}
	slices.SortFunc(s.Hangs, func(a, b Hang) int { return a.Since.Compare(b.Since) })
	for _, h := range s.Hangs {
		s.problem("Windows hasn't answered %s on %s for %v: look at the storage behind it", h.Call, h.Object,
			now.Sub(h.Since).Round(time.Second))
	}
	for _, sign := range []struct{ metric, label, value, text string }{
		{"csi_proxy_skipped_disks", "", "", "disks don't answer"},
		{"csi_proxy_links_to_nothing", "", "",
			"links lead to no volume: see kubectl csi-proxy volumes, and restart the pods that use them"},
		{"csi_proxy_smb_mappings", "state", "network_error",
			"SMB mappings have network errors: can the node reach the servers?"},
		{"csi_proxy_refused_unstages", "", "", "volumes can't be unstaged: kubectl csi-proxy logs says what uses them"},
		{"csi_proxy_smb_refused_accounts", "", "", "accounts were refused by SMB servers: look at the secrets"},
	} {
		if n := count(sign.metric, sign.label, sign.value); n != nil && *n > 0 {
			s.problem("%d %s", *n, sign.text)
		}
	}
	for _, of := range m.Series("csi_proxy_inventory_timestamp_seconds") {
		age := now.Sub(time.UnixMilli(int64(of.Value * 1000)))
		if age > inventoryAge {
			s.problem("Windows hasn't told the node's %s for %v", of.Labels["of"], age.Round(time.Second))
		}
	}
	running, _ := m.Value("csi_proxy_calls", "state", "running")
	if limit, ok := m.Value("csi_proxy_calls_limit", "", ""); ok && running > limit/2 {
		s.problem("%.0f calls are under way, of %.0f at most: mostly something hangs", running, limit)
	}
}

// Print writes the status for people: a line for each node, and what they have in common.
func (s Status) Print(w io.Writer) error {
	if len(s.Nodes) == 0 {
		return table.Line(w, "The cluster has no Windows nodes.")
	}
	nodes := table.New(w, "NODE", "OK", "MODE", "VERSION", "VOLUMES", "DISKS", "OFFLINE", "SILENT", "HANGS", "PROBLEMS")
	for _, n := range s.Nodes {
		hangs := ""
		if n.Unknown == "" {
			hangs = strconv.Itoa(len(n.Hangs))
		}
		nodes.Row(n.Node, table.YesNo(len(n.Problems) == 0), n.Mode, n.Version, number(n.Volumes), number(n.Disks),
			number(n.OfflineDisks), number(n.SilentDisks), hangs, strings.Join(n.Problems, "; "))
	}
	return errors.Join(nodes.Flush(), table.Lines(w, append([]string{"", s.summary()}, s.hints()...)...))
}

// summary is the status in one line.
func (s Status) summary() string {
	versions := make(map[string]int)
	for _, n := range s.Nodes {
		if n.Version != "" {
			versions[n.Version]++
		}
	}
	text := fmt.Sprintf("%d of %d Windows nodes have no problem that can be seen from here.",
		s.with(func(n NodeStatus) bool { return len(n.Problems) == 0 }), len(s.Nodes))
	if len(versions) > 1 {
		var all []string
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			all = append(all, fmt.Sprintf("%s on %d", v, versions[v]))
		}
		text += " They run different versions: " + strings.Join(all, ", ") + "."
	}
	return text
}

// hints say what to do for nodes of which little is known.
func (s Status) hints() []string {
	var hints []string
	if n := s.with(func(n NodeStatus) bool { return n.Unknown == cluster.ErrLocal.Error() }); n > 0 {
		hints = append(hints, fmt.Sprintf(
			"%d nodes: volumes, disks and hangs aren't known, since metrics are served on the node only. "+
				"See docs/fleet.md, or run kubectl csi-proxy doctor.", n))
	}
	if n := s.with(func(n NodeStatus) bool { return n.Mode == Other }); n > 0 {
		hints = append(hints, fmt.Sprintf("%d nodes: what installed CSI Proxy there set its version as an annotation; "+
			"nothing more can be seen from here. On the node: csi-proxyctl doctor.", n))
	}
	return hints
}

func (s Status) with(is func(NodeStatus) bool) (n int) {
	for _, node := range s.Nodes {
		if is(node) {
			n++
		}
	}
	return n
}

// number is a number in a table; empty if it isn't known.
func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
