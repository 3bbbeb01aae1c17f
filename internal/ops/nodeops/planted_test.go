// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
)

// A pod makes thousands of links to volumes and shares, its own and others', where it may
// write: that keeps nobody from unstaging or repairing, and CleanUp leaves them.
func TestPlantedLinks(t *testing.T) {
	const links = 2000
	emptyDir := simtest.Kubelet + `\pods\6a1c2d3e\volumes\kubernetes.io~empty-dir\cache`
	deep := strings.Repeat(`\deeper`, 30)
	for place, directory := range map[string]string{
		"in an emptyDir": emptyDir, "deep in an emptyDir": emptyDir + deep,
		"in a volume": target, "deep in a volume": target + deep,
		"in a share": podShare,
	} {
		for name, run := range map[string]func(ctx context.Context, n *nodeops.Node) error{
			"UnstageVolume": func(ctx context.Context, n *nodeops.Node) error {
				done, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
				return want("unmounted, and the disk offline", done.Unmounted && done.DiskOffline, true, err)
			},
			"CheckVolume": func(ctx context.Context, n *nodeops.Node) error {
				done, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: staging, SpotFix: true})
				return want("repaired", done.Fixed, true, err)
			},
			"UnstageShare": func(ctx context.Context, n *nodeops.Node) error {
				done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
				return want("unmapped", done.Unmapped, true, err)
			},
			"CleanUp": func(ctx context.Context, n *nodeops.Node) error {
				done, err := n.Storage.CleanUp(ctx, true)
				return want("the number of leftovers", len(done.Mounts), 0, err)
			},
		} {
			t.Run(place+"/"+name, func(t *testing.T) {
				r := newRig(t)
				r.published()
				r.publishedShare()
				r.must(r.sim.SetVolumeDamage(staging, volumes.SpotDamage))
				r.must(r.sim.MkdirAll(directory))
				for i := range links {
					to := []string{staging, share, target, emptyDir + `\nothing`}[i%4]
					r.must(r.sim.Symlink(fmt.Sprintf(`%s\%d`, directory, i), to, true))
				}
				ctx, n := t.Context(), r.process()
				r.must(errors.Join(n.Storage.UnpublishVolume(ctx, target), n.Storage.UnpublishVolume(ctx, podShare)))
				r.must(run(ctx, n))
				if strings.HasPrefix(directory, emptyDir) {
					entries, err := r.sim.ReadDir(directory)
					simtest.WantError(t, want("the number of links", len(entries), links, err), nil)
				}
			})
		}
	}
}
