// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// clone attaches an offline disk with the contents of disk n, as a snapshot of it has.
func clone(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) csiproxy.DiskNumber {
	t.Helper()
	copied, err := sim.CloneDisk(n, winsim.DiskSpec{Offline: true, ReadOnly: true})
	simtest.Must(t, err)
	sim.Settle()
	return copied
}

// original attaches a disk with a volume that is online.
func original(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
	t.Helper()
	n := attach(t, sim, winsim.DiskSpec{})
	simtest.Partition(t, sim, n, 1)
	sim.Settle()
	return n
}

// A copy beside its original goes online, with the ids that Windows gives it and with what it holds.
// Until then it is said whose copy it is.
func TestClones(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber){
		"GPT": func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { simtest.Partition(t, sim, n, 1) },
		"MBR": func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { plant(t, sim, n, 0, mbr(7)) },
	} {
		t.Run(name, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			original := attach(t, sim, winsim.DiskSpec{})
			prepare(t, sim, original)
			sim.Settle()
			copied := clone(t, sim, original)
			before, originals := layoutOf(t, sim, copied), layoutOf(t, sim, original)
			copies := sim.Disks()
			for _, selector := range []csiproxy.Selector{{}, {SerialNumber: copies[len(copies)-1].Spec.Serial}} {
				described, err := ops.Describe(t.Context(), selector)
				simtest.Must(t, err)
				for _, d := range described {
					want := map[csiproxy.DiskNumber]string{copied: fmt.Sprintf("it is a copy of disk %d, which is online", original)}[d.Number]
					if d.OfflineReason != want {
						t.Errorf("for %v, disk %d is offline since %q, want %q", selector, d.Number, d.OfflineReason, want)
					}
				}
			}
			simtest.Must(t, ops.PartitionDisk(t.Context(), copied))
			simtest.Must(t, ops.SetDiskState(t.Context(), copied, true))
			after := layoutOf(t, sim, copied)
			if len(after.Partitions) != len(before.Partitions) ||
				after.Partitions[0].StartingOffset != before.Partitions[0].StartingOffset {
				t.Errorf("its partitions are %+v, were %+v", after.Partitions, before.Partitions)
			}
			if after.DiskID == before.DiskID && after.Signature == before.Signature {
				t.Error("it has its old ids")
			}
			if len(sim.VolumesOfDisk(copied)) != 1 || len(sim.VolumesOfDisk(original)) != 1 {
				t.Error("not both have a volume")
			}
			if now := layoutOf(t, sim, original); !slices.Equal(now.Encode(), originals.Encode()) {
				t.Error("the table of the original has changed")
			}
			// A disk without a twin keeps its ids.
			simtest.Must(t, ops.SetDiskState(t.Context(), copied, false))
			simtest.Must(t, ops.SetDiskState(t.Context(), copied, true))
			if got := layoutOf(t, sim, copied); got.DiskID != after.DiskID || got.Signature != after.Signature {
				t.Error("it has got other ids once more")
			}
		})
	}
}

// With RefuseClones, a copy that shows its table stays offline, and nothing is written to it.
func TestRefusedClones(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	original := original(t, sim)
	copied := clone(t, sim, original)
	ops, before := groupsOf(t, sim, nodeops.Options{RefuseClones: true}).Disks, writes(sim)
	for call, err := range map[string]error{
		"SetDiskState":  ops.SetDiskState(t.Context(), copied, true),
		"PartitionDisk": ops.PartitionDisk(t.Context(), copied),
	} {
		if !errors.Is(err, csiproxy.ErrFailedPrecondition) ||
			!strings.Contains(err.Error(), fmt.Sprintf("copy of disk %d", original)) {
			t.Errorf("%s: %v", call, err)
		}
	}
	simtest.Want(t, "writes", writes(sim), before)
	simtest.Must(t, sim.DetachDisk(original))
	simtest.Must(t, ops.SetDiskState(t.Context(), copied, true))
}

// hidden are the ways in which Windows may answer for the table of an offline disk.
var hidden = []settings.OfflineLayout{settings.OfflineShown, settings.OfflineBlank, settings.OfflineNotReady}

// A copy that Windows keeps offline is refused soon, whether or not its table shows, and at
// whichever call Windows takes it offline. It is brought online once more at most, and its ids stay.
func TestCloneThatWindowsKeepsOffline(t *testing.T) {
	for _, hidden := range hidden {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64 // disks are asked at the same time
			for at := int64(0); (at == 0 || at < calls.Load()) && !t.Failed(); at++ {
				sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
				original := original(t, sim)
				copied := clone(t, sim, original)
				before := layoutOf(t, sim, copied)
				simtest.Must(t, sim.SetSettings(winsim.Settings{ClonesStayOffline: true, OfflineLayout: hidden}))
				calls.Store(0)
				written := -1                  // how often the disk was written to when Windows found out
				sim.OnCall(func(winsim.Call) { // Windows finds out at any moment
					if calls.Add(1)-1 == at && sim.Disks()[copied].Attributes&win.DiskOffline == 0 {
						simtest.Must(t, sim.SetOfflineReason(copied, win.OfflineCollision))
						written = writes(sim)
					}
				})
				begin := time.Now()
				err := groupsOf(t, sim, nodeops.Options{}).Disks.SetDiskState(t.Context(), copied, true)
				sim.OnCall(nil)
				simtest.WantError(t, err, csiproxy.ErrFailedPrecondition)
				if took := time.Since(begin); took > time.Second || !strings.Contains(fmt.Sprint(err), "it is a copy of") {
					t.Errorf("table %d, found out at call %d, after %v: %v", hidden, at, took, err)
				}
				if written >= 0 && writes(sim) > written+3 { // the third write puts it back
					t.Errorf("table %d, found out at call %d: the copy is brought online %d times more", hidden, at,
						writes(sim)-written)
				}
				simtest.Must(t, sim.SetSettings(winsim.Settings{ClonesStayOffline: true}))
				if after := layoutOf(t, sim, copied); !slices.Equal(after.Encode(), before.Encode()) {
					t.Error("it was written to")
				}
			}
		})
	}
}

// If Windows takes a copy offline before its table shows, nobody knows that it is one. The error says that it may be.
func TestCloneWhoseTableNeverShows(t *testing.T) {
	for _, hidden := range []settings.OfflineLayout{settings.OfflineBlank, settings.OfflineNotReady} {
		synctest.Test(t, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			copied := clone(t, sim, original(t, sim))
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: hidden}))
			sim.OnCall(func(winsim.Call) {
				if sim.Disks()[copied].Attributes&win.DiskOffline == 0 {
					simtest.Must(t, sim.SetOfflineReason(copied, win.OfflineCollision))
				}
			})
			err := ops.SetDiskState(t.Context(), copied, true)
			simtest.WantErrorOf(t, "a copy that is never seen online", err, csiproxy.ErrUnavailable, "check whether it is a copy of")
		})
	}
}

// Windows may take a copy offline that is writable already, and give it new ids only when it goes online
// once more.
func TestCloneThatGetsItsIDsLate(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Millisecond} { // at once, or while its volumes are awaited
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: late})
			copied := clone(t, sim, original(t, sim))
			before := layoutOf(t, sim, copied)
			simtest.Must(t, sim.SetSettings(winsim.Settings{ClonesStayOffline: true}))
			changes := 0
			sim.OnCall(func(c winsim.Call) {
				if c.Name == win.IoctlDiskSetDiskAttributes.String() {
					if changes++; changes == 3 { // writable, online, online again
						simtest.Must(t, sim.SetSettings(winsim.Settings{}))
					}
				}
			})
			simtest.Must(t, groupsOf(t, sim, nodeops.Options{}).Disks.SetDiskState(t.Context(), copied, true))
			if after := layoutOf(t, sim, copied); after.DiskID == before.DiskID || len(sim.VolumesOfDisk(copied)) != 1 {
				t.Errorf("its table is %+v", after)
			}
		})
	}
}

// A disk that doesn't answer keeps no other offline: not where it might be the other's original, nor where Windows
// takes the other offline again for another reason.
func TestDiskThatDoesNotAnswerBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, again := range []bool{false, true} {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineAfterArrival: again}))
			sick, n := attach(t, sim, winsim.DiskSpec{}), original(t, sim)
			setAttributes(t, sim, n, win.DiskOffline)
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(sick),
				Fires: map[bool]winsim.Fires{true: winsim.MustNotFire}[again]}, winerr.ErrorIODevice))
			simtest.Must(t, groupsOf(t, sim, nodeops.Options{RefuseClones: !again}).Disks.SetDiskState(t.Context(), n, true))
		}
	})
}
