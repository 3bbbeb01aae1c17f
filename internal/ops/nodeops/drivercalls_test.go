// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// lifeOfDriver are the operations of a volume's life, and how many more calls to Windows each makes at most for a driver
// that has operations of its own. Each call that opens a volume or takes its name costs five more: the door opens the volume,
// asks where it lies, opens that disk, asks what it is, and asks again where the volume lies. An opened disk costs one more.
var lifeOfDriver = []struct {
	name  string
	extra int
	do    func(tb testing.TB, ops nodeops.Operations, d *tenant) error
}{
	{"StageVolume", 53, stageOf},
	{"StageVolume-again", 25, stageOf},
	{"PathExists", 0, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
		return second(ops.Filesystem.PathExists(tb.Context(), d.staging))
	}},
	{"PublishVolume", 11, publishOf},
	{"GetVolume", 24, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
		return second(ops.Storage.GetVolume(tb.Context(), d.staging))
	}},
	{"ListVolumes", 27, func(tb testing.TB, ops nodeops.Operations, _ *tenant) error {
		return second(ops.Storage.ListVolumes(tb.Context()))
	}},
	{"ListDisks", 0, func(tb testing.TB, ops nodeops.Operations, _ *tenant) error {
		return second(ops.Storage.ListDisks(tb.Context(), csiproxy.Selector{}))
	}},
	{"ListDiskIDs", 0, func(tb testing.TB, ops nodeops.Operations, _ *tenant) error {
		return second(ops.Disk.ListDiskIDs(tb.Context()))
	}},
	{"UnpublishVolume", 2, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
		return ops.Storage.UnpublishVolume(tb.Context(), d.target)
	}},
	{"UnstageVolume", 32, unstageOf},
	{"StageVolume-of-an-offline-disk", 36, stageOf},
	{"UnstageVolume-again", 32, unstageOf},
}

func stageOf(tb testing.TB, ops nodeops.Operations, d *tenant) error {
	return second(ops.Storage.StageVolume(tb.Context(), csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging}))
}

func publishOf(tb testing.TB, ops nodeops.Operations, d *tenant) error {
	return ops.Storage.PublishVolume(tb.Context(), d.staging, d.target)
}

func unstageOf(tb testing.TB, ops nodeops.Operations, d *tenant) error {
	return second(ops.Storage.UnstageVolume(tb.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging}))
}

// callsOfLife returns how many calls to Windows each operation makes: the driver's own, or those of a node without
// drivers. Volumes have always come before the next call: otherwise StageVolume asks for one once more.
func callsOfLife(tb testing.TB, own bool) map[string]int {
	w := newTenants(tb)
	d := w.own[red]
	ops := d.Operations
	if !own {
		ops = w.process().Operations
	}
	w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial})
	w.sim.Settle()
	w.sim.OnCall(func(winsim.Call) { w.sim.Settle() })
	calls := make(map[string]int)
	for _, operation := range lifeOfDriver {
		calls[operation.name] = w.calls(func() { w.must(operation.do(tb, ops, d)) })
	}
	return calls
}

// A driver's operations cost little more than the node's.
func TestCallsOfDriver(t *testing.T) {
	var node, own map[string]int
	synctest.Test(t, func(t *testing.T) {
		node, own = callsOfLife(t, false), callsOfLife(t, true)
	})
	for _, operation := range lifeOfDriver {
		if n, most := own[operation.name], node[operation.name]+operation.extra; n > most {
			t.Errorf("%s makes %d calls for a driver, and %d at most so far", operation.name, n, most)
		}
	}
}

func BenchmarkCallsOfDriver(b *testing.B) {
	for name, own := range map[string]bool{"node": false, "driver": true} {
		b.Run(name, func(b *testing.B) {
			var calls map[string]int
			for b.Loop() {
				calls = callsOfLife(b, own)
			}
			for _, operation := range lifeOfDriver {
				b.ReportMetric(float64(calls[operation.name]), operation.name+"-calls")
			}
		})
	}
}

// When a disk leaves in the middle of a call, and a copy of it that is another driver's comes, that stays as it is:
// also if the handles, by which the door knows the disk, lead to the copy.
func TestAnothersCopyAtEachCall(t *testing.T) {
	// The last questions before a change, after that of what the disk is.
	between := map[string]int64{
		win.IoctlDiskSetDiskAttributes.String(): 0, win.IoctlDiskCreateDisk.String(): 1,
		win.IoctlDiskSetDriveLayoutEx.String(): 1,
		win.IoctlDiskGrowPartition.String():    2, win.CallFormatVolume: 0, win.FsctlExtendVolume.String(): 0,
		win.CallSetVolumeMountPoint: 0, win.CallRepairVolume: 1,
	}
	for name, c := range map[string]struct {
		staged bool
		do     func(tb testing.TB, ops nodeops.Operations, d *tenant) error
	}{
		"StageVolume": {false, stageOf}, "StageVolume again": {true, stageOf}, "UnstageVolume": {true, unstageOf},
		"PublishVolume": {true, publishOf},
		"FormatVolume": {true, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
			return ops.Volume.FormatVolume(tb.Context(), d.volume)
		}},
		"MountVolume": {true, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
			return ops.Volume.MountVolume(tb.Context(), d.volume, d.staging+"-new")
		}},
		"CheckVolume": {true, func(tb testing.TB, ops nodeops.Operations, d *tenant) error {
			return second(ops.Storage.CheckVolume(tb.Context(), csiproxy.CheckVolumeRequest{StagingPath: d.staging, SpotFix: true}))
		}},
	} {
		if simtest.Sampled() && name != "StageVolume" && name != "MountVolume" {
			continue
		}
		for _, keepHandles := range []bool{false, true} {
			t.Run(fmt.Sprint(name, keepHandles), func(t *testing.T) {
				simtest.AtEachCall(t, func(t *testing.T, before func(sys *winsim.System, f func(winsim.Call))) {
					w := newTenants(t)
					d := w.own[red]
					n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial})
					w.sim.Settle()
					if c.staged {
						w.must(stageOf(t, d.Operations, d))
						d.volume = csiproxy.VolumeID(w.sim.VolumesOfDisk(n)[0])
					}
					before(w.sim, func(winsim.Call) {
						w.sim.OnCall(nil)
						w.must(w.sim.SwapDisk(n, winsim.DiskSpec{VendorID: w.own[blue].vendor, Serial: "copy"}, keepHandles))
						var since atomic.Int64
						w.sim.OnCall(func(c winsim.Call) {
							i := since.Add(1)
							most, ok := between[c.Name]
							if keepHandles && c.Name == win.CallFormatVolume {
								most++ // the door's last question is about the volume
							}
							if ok && i > most {
								t.Errorf("%s on %q is call %d after the disk has become another driver's", c.Name, c.Object, i)
							}
						})
					})
					_ = c.do(t, d.Operations, d) // it may find out, or be done already
					w.sim.OnCall(nil)
				})
			})
		}
	}
}
