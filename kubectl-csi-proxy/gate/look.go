// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// What is known of CSI Proxy's pods: see deploy.
const (
	daemonLabels = "app.kubernetes.io/name=csi-proxy,app.kubernetes.io/component=daemon"
	metricsPort  = "metrics"
	buildInfo    = "csi_proxy_build_info"
)

// metricsTimeout is how long a daemon may take to answer.
const metricsTimeout = 10 * time.Second

// look reads everything that the check needs.
func look(ctx context.Context, client kubernetes.Interface, o Options) (*clusterState, error) {
	c := &clusterState{
		nodes:       make(map[string]*core.Node),
		csiNodes:    make(map[string]*storage.CSINode),
		pods:        make(map[string][]core.Pod),
		pvs:         make(map[string]*core.PersistentVolume),
		claimed:     make(map[string]*core.PersistentVolume),
		attachments: make(map[string][]storage.VolumeAttachment),
		daemons:     make(map[string]Daemon),
	}
	selector := core.LabelOSStable + "=windows"
	if o.Selector != "" {
		selector += "," + o.Selector
	}
	err := each(ctx, "nodes", client.CoreV1().Nodes().List, meta.ListOptions{LabelSelector: selector}, func(n *core.Node) {
		c.nodes[n.Name] = n
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, "CSINodes", client.StorageV1().CSINodes().List, meta.ListOptions{}, func(n *storage.CSINode) {
		if c.nodes[n.Name] != nil {
			c.csiNodes[n.Name] = n
		}
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, "VolumeAttachments", client.StorageV1().VolumeAttachments().List, meta.ListOptions{}, func(a *storage.VolumeAttachment) {
		if c.nodes[a.Spec.NodeName] != nil {
			c.attachments[a.Spec.NodeName] = append(c.attachments[a.Spec.NodeName], *a)
		}
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, "PersistentVolumes", client.CoreV1().PersistentVolumes().List, meta.ListOptions{}, func(pv *core.PersistentVolume) {
		c.pvs[pv.Name] = pv
		if claim := pv.Spec.ClaimRef; claim != nil {
			c.claimed[claim.Namespace+"/"+claim.Name] = pv
		}
	})
	if err != nil {
		return nil, err
	}
	for name := range c.nodes {
		onNode := meta.ListOptions{FieldSelector: "spec.nodeName=" + name}
		err := each(ctx, "pods of node "+name, client.CoreV1().Pods(meta.NamespaceAll).List, onNode, func(p *core.Pod) {
			if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed {
				c.pods[name] = append(c.pods[name], *p)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if o.WithoutDaemon {
		return c, nil
	}
	err = each(ctx, "pods of CSI Proxy", client.CoreV1().Pods(o.Namespace).List, meta.ListOptions{LabelSelector: daemonLabels}, func(p *core.Pod) {
		// A pod that is being deleted counts only until there is another one.
		node := p.Spec.NodeName
		if known, ok := c.daemons[node]; c.nodes[node] == nil || ok && (known.PodReady || p.DeletionTimestamp != nil) {
			return
		}
		c.daemons[node] = askDaemon(ctx, client, p)
	})
	return c, err
}

// each calls do with each object of a list.
func each[T any, L runtime.Object, P interface {
	*T
	runtime.Object
}](ctx context.Context, what string, list func(context.Context, meta.ListOptions) (L, error), o meta.ListOptions, do func(P)) error {
	pages := pager.New(func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	err := pages.EachListItem(ctx, o, func(object runtime.Object) error {
		typed, ok := object.(P)
		if !ok {
			return fmt.Errorf("unexpected type %T", object)
		}
		do(typed)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// askDaemon asks the daemon of a pod for its version, by way of the API server. The pod may
// also be one that only installs the daemon as a service: it is on the node's network, so
// its port is the service's.
func askDaemon(ctx context.Context, client kubernetes.Interface, p *core.Pod) Daemon {
	d := Daemon{Pod: p.Name, PodReady: podIsReady(p)}
	if !d.PodReady {
		return d
	}
	port := int32(0)
	for _, container := range p.Spec.Containers {
		for _, candidate := range container.Ports {
			if candidate.Name == metricsPort {
				port = candidate.ContainerPort
			}
		}
	}
	if port == 0 {
		d.Error = fmt.Sprintf("the pod %s has no port named %s", p.Name, metricsPort)
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	metrics, err := client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, strconv.Itoa(int(port)), "metrics", nil).DoRaw(ctx)
	if err == nil {
		d.Version, err = versionIn(metrics)
	}
	if err != nil {
		d.Error = fmt.Sprintf("metrics of the pod %s: %v", p.Name, err)
		return d
	}
	d.Source = FromMetrics
	return d
}

// versionIn returns the version of the daemon that says these metrics.
func versionIn(metrics []byte) (string, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return "", err
	}
	for _, metric := range families[buildInfo].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "version" && label.GetValue() != "" {
				return label.GetValue(), nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s with a version", buildInfo)
}
