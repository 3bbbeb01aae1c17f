// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet shows the state of CSI Proxy on the Windows nodes of a cluster, as far as the API
// server and the daemons' metrics show it. It only reads.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// Status is the state of CSI Proxy on all nodes. Its JSON is the output of "kubectl csi-proxy
// status -o json".
type Status struct {
	// OK says that no node has a problem.
	OK bool `json:"ok"`
	// Nodes are sorted by name, those with problems first.
	Nodes []NodeStatus `json:"nodes"`
}

// NodeStatus is the state of CSI Proxy on a node.
type NodeStatus struct {
	Node string `json:"node"`
	// Problems are sentences; none if all is well, as far as it is known.
	Problems []string `json:"problems"`
	// Mode is one of the modes; empty if there is no CSI Proxy.
	Mode string `json:"mode,omitempty"`
	Pod  string `json:"pod,omitempty"`
	// Version is empty if it isn't known.
	Version string `json:"version,omitempty"`
	// Drivers are the CSI drivers that are registered with the node's kubelet, and InTree the
	// volumes of in-tree plugins on it. Only a check has them.
	Drivers []string       `json:"drivers,omitzero"`
	InTree  []InTreeVolume `json:"inTreeVolumes,omitzero"`
	// Unknown says why the fields below aren't known; it is empty if they are.
	Unknown string `json:"unknown,omitempty"`
	missing bool   // nothing says that CSI Proxy is installed
	// Volumes are the volumes of disks that are staged.
	Volumes *int `json:"stagedVolumes,omitempty"`
	// Disks counts the disks that answer, OfflineDisks the offline ones among them, and SilentDisks the disks
	// without an answer.
	Disks        *int `json:"disks,omitempty"`
	OfflineDisks *int `json:"offlineDisks,omitempty"`
	SilentDisks  *int `json:"silentDisks,omitempty"`
	// RefusedUnstages is how many calls of UnstageVolume were refused since the daemon started,
	// mostly since something used the volume.
	RefusedUnstages *int `json:"refusedUnstages,omitempty"`
	// Hangs are the calls that Windows doesn't answer.
	Hangs []Hang `json:"hangingCalls"`
	// ForgottenLinks are the links that kubelet has lost track of, the first of them if there are
	// many, and ForgottenLinkCount is how many there are.
	ForgottenLinks     []ForgottenLink `json:"forgottenLinks"`
	ForgottenLinkCount int             `json:"forgottenLinkCount"`
}

// ForgottenLink is the link of a pod whose volume kubelet has lost track of. Until it is removed,
// the volume can't be unstaged.
type ForgottenLink struct {
	Path   string `json:"path"`
	PodUID string `json:"podUID"`
	// Volume is the PersistentVolume, or the volume in the pod's spec.
	Volume string `json:"volume"`
	// Command removes the link. Run it only if neither kubelet nor the API server has the pod.
	Command string `json:"command"`
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

// Query says which nodes are asked, and how.
type Query struct {
	Client kubernetes.Interface
	// Namespace is that of CSI Proxy's pods.
	Namespace string
	// Selector is a label selector for the Windows nodes; empty for all.
	Selector string
	// Check is what the nodes must have beside CSI Proxy; nil for nothing.
	Check *Check
}

// Status asks the API server, and by way of it the daemons, once. An error says that the cluster
// couldn't be read.
func (q Query) Status(ctx context.Context) (Status, error) {
	nodes, err := cluster.Nodes(ctx, q.Client, q.Selector)
	if err != nil {
		return Status{}, err
	}
	pods, err := cluster.DaemonPods(ctx, q.Client, q.Namespace)
	if err != nil {
		return Status{}, err
	}
	var u *used
	if q.Check != nil {
		if u, err = readUsed(ctx, q.Client, nodes); err != nil {
			return Status{}, err
		}
	}
	s := Status{Nodes: cluster.InParallel(nodes, func(n *core.Node) NodeStatus {
		status := q.statusOf(ctx, n, pods[n.Name])
		if q.Check != nil {
			status.check(n, u, q.Check)
		}
		return status
	})}
	s.OK = s.with(func(n NodeStatus) bool { return len(n.Problems) > 0 }) == 0
	slices.SortStableFunc(s.Nodes, func(a, b NodeStatus) int {
		return cmp.Compare(min(1, len(b.Problems)), min(1, len(a.Problems)))
	})
	// Daemons that an interrupted query hasn't reached don't count as silent.
	return s, context.Cause(ctx)
}

// statusOf returns the status of a node, with CSI Proxy's pod on it; nil for none.
func (q Query) statusOf(ctx context.Context, n *core.Node, pod *core.Pod) NodeStatus {
	s := NodeStatus{Node: n.Name, Problems: []string{}, Hangs: []Hang{}, ForgottenLinks: []ForgottenLink{}}
	if !cluster.NodeIsReady(n) {
		s.problem("the node isn't ready: what its kubelet reported may be old")
	}
	if pod == nil {
		s.Version = n.Annotations[cluster.VersionAnnotation]
		s.Unknown = "no pod of CSI Proxy is on the node"
		switch {
		case s.Version != "":
			s.Mode = Other
		case q.Check != nil && q.Check.WithoutDaemon:
		default:
			s.missing = true
			s.problem("CSI Proxy isn't there: no pod in the namespace %s", q.Namespace)
		}
		return s
	}
	s.Pod, s.Mode = pod.Name, ModeOf(pod)
	if !cluster.PodIsReady(pod) {
		s.Unknown = "its pod isn't ready"
		s.problem("CSI Proxy isn't ready: %s", cluster.WhyNotReady(pod))
		return s
	}
	if s.Mode == Removal {
		s.Unknown = "CSI Proxy is being removed"
		return s
	}
	metrics, err := cluster.ReadMetrics(ctx, q.Client, pod)
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
	s.readForgottenLinks(metrics, pod)
	return s
}

// podPath matches kubelet's path of a pod's volume.
var podPath = regexp.MustCompile(`(?i)\\pods\\([0-9a-z-]+)\\volumes\\kubernetes\.io~csi\\([^\\]+)\\mount$`)

// readForgottenLinks takes over what a daemon's metrics say of links. pod is CSI Proxy's.
func (s *NodeStatus) readForgottenLinks(m cluster.Metrics, pod *core.Pod) {
	for _, of := range m.Series("csi_proxy_forgotten_links") {
		s.ForgottenLinkCount += int(of.Value)
		path := of.Labels["path"]
		// A path that a shell would read in another way is only counted.
		if found := podPath.FindStringSubmatch(path); found != nil && !strings.Contains(path, "'") {
			s.ForgottenLinks = append(s.ForgottenLinks, ForgottenLink{path, found[1], found[2],
				cluster.Command(pod, "storage unpublish '"+path+"'")})
		}
	}
	if s.ForgottenLinkCount > 0 {
		s.problem("volumes can't be unstaged: kubelet has lost track of %d links to them", s.ForgottenLinkCount)
	}
}

// ModeOf says what CSI Proxy's pod does, by what it runs: see deploy.
func ModeOf(pod *core.Pod) string {
	c := pod.Spec.Containers[0]
	switch arguments := slices.Concat(c.Command, c.Args); {
	case slices.Contains(arguments, "uninstall"):
		return Removal
	case slices.Contains(arguments, "install"):
		return Service
	}
	return Container
}

func (s *NodeStatus) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// inventoryAge is how old what a daemon knows of its node may get. It asks the node
// when its metrics are read, at most every 30 seconds.
const inventoryAge = 10 * time.Minute

// read takes over what a daemon's metrics say; docs/monitoring.md explains them.
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
	s.RefusedUnstages = new(int)
	for _, handled := range m.Series("grpc_server_handled_total") {
		if handled.Labels["grpc_method"] == "UnstageVolume" && handled.Labels["grpc_code"] == "FailedPrecondition" {
			*s.RefusedUnstages += int(handled.Value)
		}
	}
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
		s.problem("Windows hasn't answered %s on %s for %v: check the storage behind it", h.Call, h.Object,
			now.Sub(h.Since).Round(time.Second))
	}
	for _, sign := range []struct{ metric, label, value, text string }{
		{"csi_proxy_skipped_disks", "", "", "disks don't answer"},
		{"csi_proxy_links_to_nothing", "", "",
			"links lead to no volume: csi-proxyctl storage volumes on the node names them; restart the pods that use them"},
		{"csi_proxy_smb_mappings", "state", "network_error",
			"SMB mappings have network errors: can the node reach the servers?"},
		{"csi_proxy_smb_refused_accounts", "", "", "accounts were refused by SMB servers: check the secrets"},
	} {
		if n := count(sign.metric, sign.label, sign.value); n != nil && *n > 0 {
			s.problem("%d %s", *n, sign.text)
		}
	}
	for _, file := range m.Series("csi_proxy_drivers_file_changed") {
		switch path := file.Labels["file"]; file.Value {
		case 0:
		case 1:
			s.problem("%s has changed since the daemon read it: restart that", path)
		default:
			s.problem("the daemon can't start again with %s: csi-proxyctl status on the node says why", path)
		}
	}
	for _, of := range m.Series("csi_proxy_inventory_timestamp_seconds") {
		age := now.Sub(time.UnixMilli(int64(of.Value * 1000)))
		if age > inventoryAge {
			s.problem("Windows hasn't answered queries for the node's %s for %v", of.Labels["of"], age.Round(time.Second))
		}
	}
	s.readCalls(m)
}

// readCalls takes over how many calls are under way. The series of each driver with its own endpoints are compared with
// that driver's limit: a sum over all drivers would hide a stuck driver.
func (s *NodeStatus) readCalls(m cluster.Metrics) {
	limits := make(map[string]float64) // by driver
	for _, limit := range m.Series("csi_proxy_calls_limit") {
		limits[limit.Labels["driver"]] = limit.Value
	}
	for _, calls := range m.Series("csi_proxy_calls") {
		driver := calls.Labels["driver"]
		limit, ok := limits[driver]
		if calls.Labels["state"] != "running" || !ok || calls.Value <= limit/2 {
			continue
		}
		of := ""
		if driver != "" {
			of = " of " + driver
		}
		s.problem("%.0f calls%s are under way, of %.0f at most: mostly something hangs", calls.Value, of, limit)
	}
}

// View is a status for people. Its JSON is that of the status.
type View struct {
	Status
	// Brief lists only the nodes with problems, and counts the others.
	Brief bool `json:"-"`
	// Colours marks what is well and what isn't, for a terminal that shows colours.
	Colours bool `json:"-"`
}

// Print writes a line for each node that is listed, with the columns of which something is known,
// and what the nodes have in common.
func (v View) Print(w io.Writer) error {
	if len(v.Nodes) == 0 {
		return table.Line(w, "The cluster has no Windows nodes.")
	}
	nodes := table.New(w, "NODE", "OK", "MODE", "VERSION", "CSI DRIVERS", "IN-TREE VOLUMES", "VOLUMES", "DISKS", "OFFLINE",
		"SILENT", "REFUSED", "HANGS", "PROBLEMS")
	nodes.Compact()
	for _, n := range v.Nodes {
		ok := len(n.Problems) == 0
		if ok && v.Brief {
			continue
		}
		hangs, volumes := "", ""
		if n.Unknown == "" {
			hangs = strconv.Itoa(len(n.Hangs))
		}
		if n.InTree != nil {
			volumes = strconv.Itoa(len(n.InTree))
		}
		nodes.Coloured(v.colour(ok, terminal.None, terminal.Red), n.Node, map[bool]string{true: "yes", false: "no"}[ok], n.Mode, n.Version,
			strings.Join(n.Drivers, ","), volumes, number(n.Volumes), number(n.Disks), number(n.OfflineDisks),
			number(n.SilentDisks), number(n.RefusedUnstages), hangs, strings.Join(n.Problems, "; "))
	}
	if err := nodes.Flush(); err != nil {
		return err
	}
	if !v.Brief || !v.OK {
		fmt.Fprintln(w)
	}
	healthy := fmt.Sprintf("%d of %d Windows nodes are healthy, as far as can be seen from here.",
		v.with(func(n NodeStatus) bool { return len(n.Problems) == 0 }), len(v.Nodes))
	if v.Brief {
		healthy += " --all lists them."
	}
	// Nothing that a node says is in these lines but versions and names, which are quoted.
	lines := []string{v.colour(v.OK, terminal.Green, terminal.Red).Paint(healthy)}
	for _, text := range []string{v.versions(), v.refused()} {
		if text != "" {
			lines = append(lines, v.colour(true, terminal.Yellow, terminal.None).Paint(quote.Terminal(text)))
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(append(lines, v.hints()...), "\n"))
	return errors.Join(err, v.printForgottenLinks(w))
}

// mostLinks is how many links are listed.
const mostLinks = 20

// printForgottenLinks writes which links keep volumes on the nodes, and what removes them.
func (s Status) printForgottenLinks(w io.Writer) error {
	links := table.New(w, "NODE", "POD UID", "VOLUME", "COMMAND")
	listed, count := 0, 0
	for _, n := range s.Nodes {
		count += n.ForgottenLinkCount
		for _, l := range n.ForgottenLinks[:min(len(n.ForgottenLinks), mostLinks-listed)] {
			links.Row(n.Node, l.PodUID, l.Volume, l.Command)
			listed++
		}
	}
	if count == 0 {
		return nil
	}
	err := table.Lines(w, "",
		fmt.Sprintf("Links that kubelet has lost track of, so that their volumes can't be unstaged: %d", count),
		"To do: if neither the API server nor the node's kubelet has the pod, run the command", "")
	err = errors.Join(err, links.Flush())
	if more := count - listed; more > 0 {
		err = errors.Join(err, table.Line(w, "%d more: csi-proxyctl storage clean-up on a node lists those there", more))
	}
	return err
}

// colour returns the colour for what is so or isn't.
func (v View) colour(is bool, so, otherwise terminal.Colour) terminal.Colour {
	switch {
	case !v.Colours:
		return terminal.None
	case is:
		return so
	}
	return otherwise
}

// mostNames is how many nodes are named of those that have something in common.
const mostNames = 5

// versions says which nodes run another version than most; empty if none does.
func (s Status) versions() string {
	nodes := make(map[string][]string) // by version
	for _, n := range s.Nodes {
		if n.Version != "" {
			nodes[n.Version] = append(nodes[n.Version], n.Node)
		}
	}
	if len(nodes) < 2 {
		return ""
	}
	all := slices.Sorted(maps.Keys(nodes))
	slices.SortStableFunc(all, func(a, b string) int { return len(nodes[b]) - len(nodes[a]) })
	text := fmt.Sprintf("The nodes run different versions: %s on %d", all[0], len(nodes[all[0]]))
	for _, version := range all[1:] {
		names := slices.Sorted(slices.Values(nodes[version]))
		text += fmt.Sprintf("; %s on %d (%s)", version, len(names), some(names))
	}
	return text + "."
}

// some returns the first of the names of nodes, and how many more there are.
func some(names []string) string {
	text := strings.Join(names[:min(mostNames, len(names))], ", ")
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// refused says where volumes stay that were to be unstaged; empty if nowhere.
func (s Status) refused() string {
	var names []string
	for _, n := range s.Nodes {
		if n.RefusedUnstages != nil && *n.RefusedUnstages > 0 {
			names = append(names, n.Node)
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("UnstageVolume was refused on %d of the nodes (%s), mostly since something uses the volume. "+
		"The daemon's log names the processes or links.", len(names), some(names))
}

// hints say what to do for nodes of which little is known.
func (s Status) hints() []string {
	var hints []string
	if n := s.with(func(n NodeStatus) bool { return n.Unknown == cluster.ErrLocal.Error() }); n > 0 {
		hints = append(hints, fmt.Sprintf(
			"Of %d nodes volumes, disks and hangs aren't known, since their metrics are served on the node only. "+
				"csi-proxyctl doctor on a node shows them; docs/monitoring.md says how to run it, and how to open the metrics.", n))
	}
	if n := s.with(func(n NodeStatus) bool { return n.Mode == Other }); n > 0 {
		hints = append(hints, fmt.Sprintf("On %d nodes something else than this project's manifests has installed CSI Proxy, "+
			"and set its version as an annotation. Nothing more can be seen from here. On the node: csi-proxyctl doctor.", n))
	}
	if n := s.with(func(n NodeStatus) bool { return n.missing }); n > 0 {
		hints = append(hints, fmt.Sprintf("On %d nodes CSI Proxy isn't installed: docs/install.md says how to. If its namespace has "+
			"another name, use --namespace. If something else has installed it, as on OpenShift, set the annotation %s.", n,
			cluster.VersionAnnotation))
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
