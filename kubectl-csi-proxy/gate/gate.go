// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate says whether the Windows nodes of a cluster are ready for CSI: whether the
// cluster may be upgraded to a version of Kubernetes without in-tree storage plugins.
package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/cluster"
)

// Options are what is expected of the nodes.
type Options struct {
	// Scraper says how the daemons are asked for their version.
	Scraper cluster.Scraper
	// Selector is a label selector for the nodes. Only Windows nodes are looked at in any
	// case; empty for all of them.
	Selector string
	// Drivers are the CSI drivers that each node must have, besides those for the in-tree
	// volumes on it. If there are none, it must have any.
	Drivers []string
	// Namespace is that of CSI Proxy's pods.
	Namespace string
	// WithoutDaemon is for nodes whose drivers need no CSI Proxy.
	WithoutDaemon bool
	// MinVersion is the least version of CSI Proxy; empty for any.
	MinVersion string
	// NoInTree demands that no volume is handled by an in-tree plugin any more.
	NoInTree bool
}

// Report is the result of a check. Its JSON is the output of "kubectl csi-proxy check -o
// json".
type Report struct {
	// Ready says that no node has a problem.
	Ready bool   `json:"ready"`
	Nodes []Node `json:"nodes"`
}

// Node is a Windows node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Problems are the reasons why it isn't ready, in sentences.
	Problems []string `json:"problems"`
	// CSINode says that the node has an object CSINode.
	CSINode bool `json:"csiNode"`
	// Drivers are the CSI drivers that are registered with the node's kubelet.
	Drivers []string `json:"drivers"`
	// Missing are those that are expected and aren't registered.
	Missing []string `json:"missingDrivers"`
	Daemon  Daemon   `json:"csiProxy"`
	// Volumes are those that are specified for an in-tree plugin and used or attached on
	// the node.
	Volumes []Volume `json:"inTreeVolumes"`
}

// Daemon is the CSI Proxy on a node.
type Daemon struct {
	// Version is empty if it isn't known.
	Version string `json:"version,omitempty"`
	// Source says who told the version: FromMetrics, FromImage or FromAnnotation; empty if
	// nobody did.
	Source string `json:"source,omitempty"`
	// Pod is CSI Proxy's pod on the node, if there is one.
	Pod string `json:"pod,omitempty"`
	// PodReady says that this pod is ready, which means that the daemon serves.
	PodReady bool `json:"podReady,omitempty"`
	// Error says why the version isn't known.
	Error string `json:"error,omitempty"`
}

// Who told a version.
const (
	FromMetrics    = "metrics"
	FromImage      = "image" // by the tag of the pod's image, since nobody else can read its metrics
	FromAnnotation = "annotation"
)

// Volume is a volume that is specified for an in-tree plugin.
type Volume struct {
	// Name is that of the PersistentVolume; or, without one, that of the volume in its pod,
	// or the name under which kubelet reports it.
	Name string `json:"name"`
	// Plugin is the in-tree plugin, such as kubernetes.io/azure-disk.
	Plugin string `json:"plugin"`
	// Driver is the CSI driver that replaces the plugin.
	Driver string `json:"driver"`
	// By is ByInTree or ByCSI.
	By string `json:"handledBy"`
	// Pods use it on the node, as namespace/name.
	Pods []string `json:"pods"`
}

// Who handles a volume.
const (
	ByInTree = "in-tree" // the plugin in kubelet and the controller manager
	ByCSI    = "csi"     // the CSI driver: the volume is migrated
)

// ErrOptions is that Options make no sense.
var ErrOptions = errors.New("invalid options")

// Check looks at the cluster once. An error says that it could not be looked at.
func Check(ctx context.Context, client kubernetes.Interface, o Options) (Report, error) {
	var least *version.Version
	if o.MinVersion != "" {
		var err error
		if least, err = version.ParseGeneric(o.MinVersion); err != nil {
			return Report{}, fmt.Errorf("%w: the least version %q isn't one such as v1.2.3", ErrOptions, o.MinVersion)
		}
	}
	found, err := look(ctx, client, o)
	if err != nil {
		return Report{}, err
	}
	report := Report{Ready: true, Nodes: []Node{}}
	for _, name := range slices.Sorted(maps.Keys(found.nodes)) {
		node := found.judge(found.nodes[name], o, least)
		report.Ready = report.Ready && node.Ready
		report.Nodes = append(report.Nodes, node)
	}
	return report, nil
}

// judge says what is to say about a node.
func (c *clusterState) judge(n *core.Node, o Options, least *version.Version) Node {
	node := Node{Name: n.Name, Problems: []string{}, Drivers: []string{}, Missing: []string{}, Volumes: c.volumes(n)}
	problem := func(format string, args ...any) { node.Problems = append(node.Problems, fmt.Sprintf(format, args...)) }

	if !cluster.NodeIsReady(n) {
		problem("the node isn't ready: what its kubelet reported may be old")
	}
	csiNode := c.csiNodes[n.Name]
	if csiNode != nil {
		node.CSINode = true
		for _, driver := range csiNode.Spec.Drivers {
			node.Drivers = append(node.Drivers, driver.Name)
		}
		slices.Sort(node.Drivers)
	}
	for driver, why := range expected(o.Drivers, node.Volumes) {
		if !slices.Contains(node.Drivers, driver) {
			node.Missing = append(node.Missing, driver)
			problem("the CSI driver %s isn't registered%s", driver, why)
		}
	}
	slices.Sort(node.Missing)
	slices.Sort(node.Problems)
	switch {
	case csiNode == nil:
		problem("there is no CSINode: kubelet hasn't registered any CSI driver")
	case len(node.Drivers) == 0 && len(node.Missing) == 0:
		problem("no CSI driver is registered")
	}

	if !o.WithoutDaemon {
		node.Daemon = c.daemon(n)
		if text := judgeDaemon(node.Daemon, o, least); text != "" {
			problem("%s", text)
		}
	}
	if o.NoInTree {
		for _, v := range node.Volumes {
			if v.By == ByInTree {
				problem("the volume %s is handled by the in-tree plugin %s", v.Name, v.Plugin)
			}
		}
	}
	node.Ready = len(node.Problems) == 0
	return node
}

// expected returns the drivers that a node must have, each with the reason as the end of a
// sentence.
func expected(drivers []string, volumes []Volume) map[string]string {
	all := make(map[string]string)
	for _, driver := range drivers {
		all[driver] = ""
	}
	using := make(map[string][]string)
	for _, v := range volumes {
		using[v.Driver] = append(using[v.Driver], v.Name)
	}
	for driver, names := range using {
		all[driver] = fmt.Sprintf("; the node has volumes for it: %s", strings.Join(names, ", "))
	}
	return all
}

// judgeDaemon returns what is wrong with the daemon, or nothing.
func judgeDaemon(d Daemon, o Options, least *version.Version) string {
	switch {
	case d.Pod == "" && d.Version == "":
		return fmt.Sprintf("CSI Proxy isn't there: no pod of it in the namespace %s, and no annotation %s; if something "+
			"else has installed it, as on OpenShift, set that annotation, and if no driver uses it, check --without-daemon",
			o.Namespace, cluster.VersionAnnotation)
	case d.Pod != "" && !d.PodReady:
		return fmt.Sprintf("CSI Proxy isn't ready: see the pod %s in the namespace %s", d.Pod, o.Namespace)
	case d.Version == "":
		return fmt.Sprintf("CSI Proxy doesn't tell its version: %s", d.Error)
	case least == nil:
		return ""
	}
	is, err := version.ParseGeneric(d.Version)
	switch {
	case err != nil:
		return fmt.Sprintf("CSI Proxy's version %s is no release's, so it can't be compared with %s: install a release, "+
			"or leave the least version out", d.Version, o.MinVersion)
	case is.LessThan(least):
		return fmt.Sprintf("CSI Proxy is %s, older than %s", d.Version, o.MinVersion)
	}
	return ""
}

// clusterState is what was read from the API.
type clusterState struct {
	nodes       map[string]*core.Node
	csiNodes    map[string]*storage.CSINode // by node
	pods        map[string][]core.Pod       // by node; those that have ended aren't in it
	pvs         map[string]*core.PersistentVolume
	claimed     map[string]*core.PersistentVolume     // by namespace/name of the claim
	attachments map[string][]storage.VolumeAttachment // by node
	daemons     map[string]Daemon                     // by node; those with a pod
}

// daemon returns the CSI Proxy on a node.
func (c *clusterState) daemon(n *core.Node) Daemon {
	if d, ok := c.daemons[n.Name]; ok {
		return d
	}
	if v := n.Annotations[cluster.VersionAnnotation]; v != "" {
		return Daemon{Version: v, Source: FromAnnotation}
	}
	return Daemon{}
}
