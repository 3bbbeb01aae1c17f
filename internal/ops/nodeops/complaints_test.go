// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Drivers that unmount a volume by removing its directory mount it again on the same node
// (azuredisk-csi-driver #2691): the mount manager forgets the directory, too.
func TestMountAgainAfterRmdir(t *testing.T) {
	r := newRig(t)
	r.formatted()
	n, ctx := r.process(), context.Background()
	const published = simtest.Kubelet + `\pods\1\volumes\kubernetes.io~csi\pv-1\mount`
	r.must(n.Filesystem.Mkdir(ctx, simtest.Kubelet+`\pods\1\volumes\kubernetes.io~csi\pv-1`))
	for range 5 {
		r.must(n.Volume.MountVolume(ctx, r.volume, staging))
		r.must(n.Filesystem.CreateSymlink(ctx, staging, published))
		for _, path := range []string{published, staging} {
			r.must(n.Filesystem.Rmdir(ctx, path, true))
		}
		if points := r.sim.MountPoints(); len(points) > 0 {
			t.Fatalf("still mounted: %v", points)
		}
	}
}
