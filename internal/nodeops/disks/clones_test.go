// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// clone attaches an offline disk with the contents of disk n, as a snapshot of it has.
func clone(t *testing.T, sim *winsim.System, n disk.Number) disk.Number {
	t.Helper()
	copied, err := sim.CloneDisk(n, winsim.DiskSpec{Offline: true, ReadOnly: true})
	simtest.Must(t, err)
	sim.Settle()
	return copied
}

func TestClones(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, sim *winsim.System, n disk.Number){
		"GPT": func(t *testing.T, sim *winsim.System, n disk.Number) { simtest.Partition(t, sim, n, 1) },
		"MBR": func(t *testing.T, sim *winsim.System, n disk.Number) { plant(t, sim, n, 0, mbr(7)) },
	} {
		t.Run(name, func(t *testing.T) {
			sim, ops := newNode(t)
			original := attach(t, sim, winsim.DiskSpec{})
			prepare(t, sim, original)
			sim.Settle()
			copied := clone(t, sim, original)
			before := layoutOf(t, sim, copied)
			for call, err := range map[string]error{
				"SetDiskState":  ops.SetDiskState(t.Context(), copied, true),
				"PartitionDisk": ops.PartitionDisk(t.Context(), copied),
			} {
				if !errors.Is(err, csiproxy.ErrFailedPrecondition) ||
					!strings.Contains(err.Error(), fmt.Sprintf("copy of disk %d", original)) {
					t.Errorf("%s: %v", call, err)
				}
			}
			copies := sim.Disks()
			for _, selector := range []storage.Selector{{}, {SerialNumber: copies[len(copies)-1].Spec.Serial}} {
				described, err := ops.Describe(t.Context(), selector)
				simtest.Must(t, err)
				for _, d := range described {
					want := map[disk.Number]string{copied: fmt.Sprintf("it is a copy of disk %d, which is online", original)}[d.Number]
					if d.OfflineReason != want {
						t.Errorf("for %v, disk %d is offline since %q, want %q", selector, d.Number, d.OfflineReason, want)
					}
				}
			}
			if writes(sim) != 0 && name == "MBR" {
				t.Error("it was written to")
			}

			ops = disks.New(sim, disks.Options{NewIDsForClones: true})
			sim.OnCall(func(c winsim.Call) {
				if a := sim.Disks()[copied].Attributes; c.Name == win.IoctlDiskSetDriveLayoutEx.String() && a&win.DiskOffline == 0 {
					t.Error("it is online with the ids of its original")
				}
			})
			simtest.Must(t, ops.PartitionDisk(t.Context(), copied))
			sim.OnCall(nil)
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
			// A disk without a twin keeps its ids.
			simtest.Must(t, ops.SetDiskState(t.Context(), copied, false))
			simtest.Must(t, ops.SetDiskState(t.Context(), copied, true))
			if got := layoutOf(t, sim, copied); got.DiskID != after.DiskID || got.Signature != after.Signature {
				t.Error("it has got other ids once more")
			}
		})
	}
}

// A copy whose original doesn't answer is refused soon, whether or not that is known to have the
// same ids. Nobody writes to it, and once the original answers it gets new ids.
func TestCopyOfADiskThatDoesNotAnswer(t *testing.T) {
	for name, spoil := range map[string]func(sim *winsim.System, m winsim.Match) error{
		"sick":   func(sim *winsim.System, m winsim.Match) error { return sim.Fail(m, win.ErrorIODevice) },
		"silent": func(sim *winsim.System, m winsim.Match) error { return sim.DelayUncancellable(m, time.Hour) },
	} {
		for _, hidden := range []bool{false, true} {
			for _, known := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, table hidden %t, ids known %t", name, hidden, known), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
						original := attach(t, sim, winsim.DiskSpec{})
						simtest.Partition(t, sim, original, 1)
						sim.Settle()
						copied := clone(t, sim, original)
						before := layoutOf(t, sim, copied)
						ops := disks.New(sim, disks.Options{})
						mayBe := "it may be a copy of"
						if known {
							_, err := ops.ListDiskIDs(t.Context()) // which tells the numbers
							simtest.Must(t, err)
							mayBe += " disk " + original.String()
							simtest.WantError(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
						}
						simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayoutRAW: hidden}))
						simtest.Must(t, spoil(sim, winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(original)}))
						begin, online := time.Now(), 0
						sim.OnCall(func(c winsim.Call) {
							if c.Name == win.IoctlDiskSetDiskAttributes.String() {
								online++
							}
						})
						err := ops.SetDiskState(t.Context(), copied, true)
						sim.OnCall(nil)
						simtest.WantError(t, err, csiproxy.ErrUnavailable)
						if took := time.Since(begin); took > 2*time.Second || !strings.Contains(fmt.Sprint(err), mayBe) {
							t.Errorf("after %v: %v", took, err)
						}
						if known && !hidden && online != 0 {
							t.Error("it was brought online though its original is known")
						}
						described, listErr := ops.Describe(t.Context(), storage.Selector{SerialNumber: sim.Disks()[2].Spec.Serial})
						i := slices.IndexFunc(described, func(d storage.Disk) bool { return d.Number == copied })
						if known && !hidden && (i < 0 || !strings.Contains(described[i].OfflineReason, mayBe)) {
							t.Errorf("it is listed as %+v, %v", described, listErr)
						}
						sim.ResetRules()
						simtest.Must(t, sim.SetSettings(winsim.Settings{}))
						if after := layoutOf(t, sim, copied); !slices.Equal(after.Encode(), before.Encode()) {
							t.Error("it was written to")
						}
						synctest.Wait()
						simtest.Must(t, disks.New(sim, disks.Options{NewIDsForClones: true}).SetDiskState(t.Context(), copied, true))
					})
				})
			}
		}
	}
}

// A disk that gets the ids of a copy right after it was asked for its own is found once Windows has
// taken the copy offline again. One that had them and got others is no original any more.
func TestIDsThatChangedAMomentAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
		other, original := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
		simtest.Partition(t, sim, other, 1)
		simtest.Partition(t, sim, original, 1)
		copied, another := clone(t, sim, original), clone(t, sim, other)
		ids := layoutOf(t, sim, copied)
		simtest.Must(t, sim.DetachDisk(original))
		ops, giving := disks.New(sim, disks.Options{}), disks.New(sim, disks.Options{NewIDsForClones: true})
		// Both ask the other disk.
		simtest.WantError(t, ops.SetDiskState(t.Context(), another, true), csiproxy.ErrFailedPrecondition)
		simtest.Must(t, giving.SetDiskState(t.Context(), another, true))

		h, err := device.Open(t.Context(), sim, win.PhysicalDrive(other), win.GenericRead|win.GenericWrite)
		simtest.Must(t, err)
		defer h.Close()
		simtest.Must(t, h.SetLayout(t.Context(), ids))
		begin := time.Now()
		simtest.WantError(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		simtest.Must(t, giving.SetDiskState(t.Context(), copied, true))

		simtest.Must(t, giving.SetDiskState(t.Context(), other, false))
		simtest.Must(t, giving.SetDiskState(t.Context(), other, true))
		simtest.Want(t, "the id of the original", layoutOf(t, sim, other).DiskID, ids.DiskID)
	})
}

// An error of the moment hides no original: its copy isn't brought online.
func TestOriginalWithAnErrorOfTheMoment(t *testing.T) {
	for _, call := range []string{
		win.CallOpen, win.IoctlDiskGetDriveLayoutEx.String(), win.IoctlDiskGetDiskAttributes.String(),
		win.IoctlStorageGetDeviceNumber.String(),
	} {
		for _, errno := range []win.Errno{win.ErrorIODevice, win.ErrorDeviceNotConnected} {
			sim, ops := newNode(t)
			original := attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			sim.Settle()
			copied := clone(t, sim, original)
			before := writes(sim)
			simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: win.PhysicalDrive(original), Count: 1}, errno))
			simtest.WantError(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
			if writes(sim) != before {
				t.Errorf("error %d of %s: the copy was brought online", errno, call)
			}
		}
	}
}

// A disk that Windows doesn't show the table of can't be told from a copy before it is online, nor
// be given new ids after.
func TestCopyWithAHiddenTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, calls := 0, 1; at < calls && !t.Failed(); at++ {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
			original := attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			sim.Settle()
			copied := clone(t, sim, original)
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayoutRAW: true}))
			calls = 0
			before := -1                   // how often the disk was written to when Windows found out
			sim.OnCall(func(winsim.Call) { // Windows finds out at any moment
				if calls++; calls-1 == at && sim.Disks()[copied].Attributes&win.DiskOffline == 0 {
					simtest.Must(t, sim.SetOfflineReason(copied, win.OfflineCollision))
					before = writes(sim)
				}
			})
			begin := time.Now()
			ops := disks.New(sim, disks.Options{NewIDsForClones: at%2 == 0})
			err := ops.SetDiskState(operation.Inline(t.Context()), copied, true)
			sim.OnCall(nil)
			simtest.WantError(t, err, csiproxy.ErrFailedPrecondition)
			if took := time.Since(begin); took > time.Second || !strings.Contains(fmt.Sprint(err), "it is a copy of") {
				t.Errorf("after %v: %v", took, err)
			}
			if before >= 0 && writes(sim) != before {
				t.Errorf("found out at call %d: the copy is brought online again", at)
			}
		}
	})
}

// A disk that doesn't answer keeps others offline for one call at most, also where Windows takes
// them offline again for another reason.
func TestDiskThatDoesNotAnswerBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, again := range []bool{false, true} {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineAfterArrival: again}))
			sick, original := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			n, err := sim.CloneDisk(original, winsim.DiskSpec{Offline: true})
			simtest.Must(t, err)
			simtest.Must(t, sim.DetachDisk(original))
			sim.Settle()
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(sick)}, win.ErrorIODevice))
			ops := disks.New(sim, disks.Options{})
			if again {
				simtest.WantError(t, ops.SetDiskState(t.Context(), n, true), csiproxy.ErrUnavailable)
			}
			simtest.Must(t, ops.SetDiskState(t.Context(), n, true))
		}
	})
}

// The original of a copy leaves, or stops to answer, right before the copy gets new ids. It keeps
// those that it has.
func TestOriginalLeavesMeanwhile(t *testing.T) {
	for want, leave := range map[error]func(sim *winsim.System, n disk.Number) error{
		nil: (*winsim.System).DetachDisk,
		csiproxy.ErrUnavailable: func(sim *winsim.System, n disk.Number) error {
			return sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(n)}, win.ErrorIODevice)
		},
	} {
		sim := simtest.Open(t, winsim.Delays{})
		original := attach(t, sim, winsim.DiskSpec{})
		simtest.Partition(t, sim, original, 1)
		copied := clone(t, sim, original)
		before := layoutOf(t, sim, copied)
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.IoctlDiskSetDiskAttributes.String() {
				sim.OnCall(nil)
				simtest.Must(t, leave(sim, original))
			}
		})
		ops := disks.New(sim, disks.Options{NewIDsForClones: true})
		simtest.WantError(t, ops.SetDiskState(t.Context(), copied, true), want)
		if after := layoutOf(t, sim, copied); !slices.Equal(after.Encode(), before.Encode()) {
			t.Errorf("it has got new ids; want %v", want)
		}
	}
}

// Somebody makes a partition on a copy at each call that gives it new ids. It stays.
func TestCloneIsPartitionedMeanwhile(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		sim := simtest.Open(t, winsim.Delays{})
		original := attach(t, sim, winsim.DiskSpec{})
		simtest.Partition(t, sim, original, 1)
		copied := clone(t, sim, original)
		made := 0
		before(sim, func(c winsim.Call) {
			if c.Name != win.IoctlDiskSetDriveLayoutEx.String() {
				made = addPartition(t, sim, copied)
			}
		})
		err := disks.New(sim, disks.Options{NewIDsForClones: true}).SetDiskState(operation.Inline(t.Context()), copied, true)
		sim.OnCall(nil)
		if got := len(layoutOf(t, sim, copied).Partitions); made != 0 && got != made {
			t.Errorf("of %d partitions there are %d; %v", made, got, err)
		}
	})
}

// addPartition does what another program does: it makes one more partition behind those of a
// disk, and returns how many there are; 0 if it may not write to the disk.
func addPartition(t *testing.T, sim *winsim.System, n disk.Number) int {
	t.Helper()
	h, err := device.Open(t.Context(), sim, win.PhysicalDrive(n), win.GenericRead|win.GenericWrite)
	simtest.Must(t, err)
	defer h.Close()
	layout, err := h.Layout(t.Context())
	simtest.Must(t, err)
	last := &layout.Partitions[len(layout.Partitions)-1]
	more := *last
	last.Length = gibibyte
	more.StartingOffset, more.Length, more.ID, more.Number = last.End(), gibibyte, win.NewGUID(), last.Number+1
	last.RewritePartition, more.RewritePartition = true, true
	layout.Partitions = append(layout.Partitions, more)
	if err := h.SetLayout(t.Context(), layout); err != nil {
		return 0
	}
	return len(layout.Partitions)
}
