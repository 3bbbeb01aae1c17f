// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
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
	simtest.Want(t, fmt.Sprintf("disks, of which disk %d has volume %s", first, volume), disks,
		map[string]int{"online": 2, "offline": 1})
	simtest.Want(t, "staged volumes", staged, 1)
	want := map[string]int{"ok": 1, "paused": 0, "disconnected": 0, "network_error": 0, "connecting": 0, "reconnecting": 0}
	simtest.Want(t, "mappings", mappings, want)

	r.must(r.sim.MkdirAll(simtest.Kubelet + `\pods`))
	r.must(n.Filesystem.CreateSymlink(ctx, staging, simtest.Kubelet+`\pods\pod`))
	r.must(r.sim.Symlink(simtest.Kubelet+`\pods\outside`, `C:\Windows`, true))
	of := func(pod string) string { return simtest.Kubelet + `\pods\` + pod + `\volumes\kubernetes.io~csi\pv` }
	for _, pod := range []string{"known", "forgotten"} {
		r.must(r.sim.MkdirAll(of(pod)))
		r.must(n.Filesystem.CreateSymlink(ctx, staging, of(pod)+`\mount`))
	}
	r.must(r.sim.WriteFile(of("known")+`\vol_data.json`, []byte("{}")))
	lost := []string{of("forgotten") + `\mount`}
	if links, forgotten, err := n.Links(ctx); links != 0 || !slices.Equal(forgotten, lost) || err != nil {
		t.Errorf("%d links lead to nothing (%v), want none; kubelet has forgotten %q", links, err, forgotten)
	}
	r.must(n.Volume.UnmountVolume(ctx, volume, staging))
	r.must(r.sim.Symlink(simtest.Kubelet+`\pods\dangling`, simtest.Kubelet+`\nothing`, true))
	if links, forgotten, err := n.Links(ctx); links != 4 || len(forgotten) != 0 || err != nil {
		t.Errorf("%d links lead to nothing (%v), want 4; kubelet has forgotten %q, which keep no volume", links, err, forgotten)
	}
	r.must(r.sim.Fail(winsim.Match{Call: "NtQueryDirectoryFile", Count: 1}, winerr.ErrorAccessDenied))
	if links, _, err := n.Links(ctx); err == nil {
		t.Errorf("%d links lead to nothing, though a directory can't be read", links)
	}
	r.must(r.sim.MkdirAll(`C:\elsewhere`))
	simtest.Mount(t, r.sim, `C:\elsewhere`, string(volume))
	if staged, err := n.StagedVolumes(ctx); staged != 0 || err != nil {
		t.Errorf("%d volumes are staged (%v), want none: one is mounted elsewhere", staged, err)
	}
	r.must(r.sim.Fail(winsim.Match{Call: win.CallVolumePathNames, Object: string(volume), Count: 1}, winerr.ErrorMoreData))
	if staged, err := n.StagedVolumes(ctx); staged != 0 || err != nil {
		t.Errorf("%d volumes are staged (%v), want none: one has too many mount points", staged, err)
	}
}

// Volumes that hang don't keep the others from being counted.
func TestStagedVolumesBesideHangingVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		disk := r.attach(winsim.DiskSpec{SizeBytes: 64 << 30, Serial: "hangs"})
		simtest.Partition(t, r.sim, disk, 20)
		r.sim.Settle()
		for _, volume := range r.sim.VolumesOfDisk(disk) {
			r.must(r.sim.DelayUncancellable(winsim.Match{Call: win.CallVolumePathNames, Object: volume}, 24*time.Hour))
		}
		r.mounted()
		n := r.process()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // as the metrics do
			staged, err := n.StagedVolumes(ctx)
			cancel()
			r.must(err)
			simtest.Want(t, "staged volumes", staged, 1)
			time.Sleep(5 * time.Minute)
		}
		r.must(r.sim.CheckRules())
		r.sim.ResetRules()
		time.Sleep(48 * time.Hour)
	})
}
