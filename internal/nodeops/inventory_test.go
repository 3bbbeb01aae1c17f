// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

func TestInventory(t *testing.T) {
	r := newRig(t)
	r.mounted()
	first, volume := r.number, r.volume
	r.attach(winsim.DiskSpec{Serial: "vol-2", Offline: true})
	r.sim.Settle()
	r.mapped()
	n := r.process()
	ctx := context.Background()

	disks, err := n.DiskStates(ctx)
	r.must(err)
	staged, err := n.StagedVolumes(ctx)
	r.must(err)
	mappings, err := n.MappingStates(ctx)
	r.must(err)
	if diff := cmp.Diff(map[string]int{"online": 2, "offline": 1}, disks); diff != "" {
		t.Errorf("disks, of which disk %d has volume %s (-want +got):\n%s", first, volume, diff)
	}
	if staged != 1 {
		t.Errorf("%d volumes are staged, want 1", staged)
	}
	want := map[string]int{"ok": 1, "paused": 0, "disconnected": 0, "network_error": 0, "connecting": 0, "reconnecting": 0}
	if diff := cmp.Diff(want, mappings); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}

	r.must(n.Volume.UnmountVolume(ctx, volume, staging))
	r.must(r.sim.MkdirAll(`C:\elsewhere`))
	simtest.Mount(t, r.sim, `C:\elsewhere`, string(volume))
	if staged, err := n.StagedVolumes(ctx); staged != 0 || err != nil {
		t.Errorf("%d volumes are staged (%v), want none: one is mounted elsewhere", staged, err)
	}
}
