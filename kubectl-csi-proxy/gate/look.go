// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"context"
	"errors"
	"slices"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/cluster"
)

// look reads everything that the check needs.
func look(ctx context.Context, client kubernetes.Interface, o Options) (*clusterState, error) {
	c := &clusterState{
		nodes:       make(map[string]*core.Node),
		csiNodes:    make(map[string]*storage.CSINode),
		pvs:         make(map[string]*core.PersistentVolume),
		claimed:     make(map[string]*core.PersistentVolume),
		attachments: make(map[string][]storage.VolumeAttachment),
		daemons:     make(map[string]Daemon),
	}
	nodes, err := cluster.Nodes(ctx, client, o.Selector)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		c.nodes[n.Name] = n
	}
	all := meta.ListOptions{}
	err = cmp.Or(
		cluster.Each(ctx, "CSINodes", client.StorageV1().CSINodes().List, all, func(n *storage.CSINode) {
			c.csiNodes[n.Name] = n
		}),
		cluster.Each(ctx, "VolumeAttachments", client.StorageV1().VolumeAttachments().List, all,
			func(a *storage.VolumeAttachment) {
				c.attachments[a.Spec.NodeName] = append(c.attachments[a.Spec.NodeName], *a)
			}),
		cluster.Each(ctx, "PersistentVolumes", client.CoreV1().PersistentVolumes().List, all,
			func(pv *core.PersistentVolume) {
				c.pvs[pv.Name] = pv
				if claim := pv.Spec.ClaimRef; claim != nil {
					c.claimed[claim.Namespace+"/"+claim.Name] = pv
				}
			}))
	if err != nil {
		return nil, err
	}
	if c.pods, err = cluster.PodsOn(ctx, client, nodes); err != nil || o.WithoutDaemon {
		return c, err
	}
	pods, err := cluster.DaemonPods(ctx, client, o.Namespace)
	if err != nil {
		return nil, err
	}
	asked := slices.DeleteFunc(nodes, func(n *core.Node) bool { return pods[n.Name] == nil })
	for i, d := range cluster.InParallel(asked, func(n *core.Node) Daemon {
		return askDaemon(ctx, client, o.Scraper, pods[n.Name])
	}) {
		c.daemons[asked[i].Name] = d
	}
	return c, nil
}

// askDaemon asks the daemon of a pod for its version.
func askDaemon(ctx context.Context, client kubernetes.Interface, scraper cluster.Scraper, p *core.Pod) Daemon {
	d := Daemon{Pod: p.Name, PodReady: cluster.PodIsReady(p)}
	if !d.PodReady {
		return d
	}
	metrics, err := scraper.Metrics(ctx, client, p)
	switch {
	case err == nil:
		d.Source = FromMetrics
		d.Version, err = metrics.Version()
	case errors.Is(err, cluster.ErrLocal):
		d.Source = FromImage
		d.Version, err = cluster.ImageVersion(p)
	}
	if err != nil {
		d.Source, d.Error = "", err.Error()
	}
	return d
}
