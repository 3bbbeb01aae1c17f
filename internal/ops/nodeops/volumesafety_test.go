// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Somebody formats the volume and writes to it at each call of FormatVolume in turn, also
// while a format that is refused for a moment is tried again. The data stay. The format
// itself is left out: Windows has no call that looks at a volume and formats it in one
// step.
func TestFormatVolumeBesideSomebodyElse(t *testing.T) {
	for _, refusals := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			for at, more := 0, true; more && !t.Failed(); at++ {
				n := newVolumeNode(t)
				_, id := n.attach(winsim.DiskSpec{})
				if refusals > 0 {
					n.do(n.sim.Fail(winsim.Match{Call: win.CallFormatVolume, Count: refusals}, winerr.ErrorGenFailure))
				}
				formats := 0
				var during string
				calls, busy := 0, false
				const mount = kubelet + `\other`
				n.sim.OnCall(func(c winsim.Call) {
					if busy {
						return
					}
					if c.Name == win.CallFormatVolume {
						formats++
					}
					last := c.Name == win.CallFormatVolume && formats > refusals
					if calls++; calls-1 != at || last {
						return
					}
					busy = true
					defer func() { busy = false }()
					if n.sim.FormatVolume(t.Context(), string(id), win.FormatOptions{FileSystem: "NTFS"}) != nil {
						return // ours has the volume open, or it is a refusal's turn
					}
					simtest.Mount(t, n.sim, mount, string(id))
					n.do(n.sim.WriteFile(mount+`\file`, []byte("data")))
					during = c.Name
				})
				err := n.volumes.FormatVolume(t.Context(), id)
				n.sim.OnCall(nil)
				if during != "" {
					if data, readErr := n.sim.ReadFile(mount + `\file`); string(data) != "data" {
						t.Errorf("%d refusals, before call %d, %s: the data are gone (%v); the error is %v", refusals, at, during,
							readErr, err)
					}
				}
				more = at < calls
			}
		})
	}
}

// Where Windows doesn't tell the volume of a partition, all volumes are looked through. One
// of another kind of device may have the same numbers.
func TestListVolumesWithSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		a, idA := n.attach(winsim.DiskSpec{})
		b, idB := n.attach(winsim.DiskSpec{})
		n.do(n.sim.Fail(winsim.Match{Call: win.CallVolumeNameForMountPoint, Object: "GLOBALROOT"}, winerr.ErrorInvalidName))
		for _, c := range []struct {
			number          csiproxy.DiskNumber
			id, masquerades csiproxy.VolumeID
		}{{a, idA, idB}, {b, idB, idA}} {
			ops := groupsOf(t, masquerade(n.sim, c.masquerades, c.number), nodeops.Options{}).Volumes
			if ids, err := ops.ListVolumesOnDisk(t.Context(), c.number, 0); err != nil || len(ids) != 1 || ids[0] != c.id {
				t.Errorf("disk %d has %q, want %q; %v", c.number, ids, c.id, err)
			}
		}
	})
}

// masquerade is a node on which a volume is that of a CD drive with the number of a disk.
func masquerade(sim *winsim.System, id csiproxy.VolumeID, number csiproxy.DiskNumber) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(path string, code win.IoctlCode, out []byte,
		do func() (int, error)) (int, error) {
		if path != win.VolumePath(string(id)) || code != win.IoctlStorageGetDeviceNumber {
			return do()
		}
		return copy(out, win.DeviceNumber{DeviceType: 2, DeviceNumber: number, PartitionNumber: 2}.Encode()), nil
	}}
}

// A disk gets another number while a call waits for its lock. The call then works under
// the lock of the new number.
func TestFormatVolumeOfARenumberedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		locker, ops := n.locks, n.volumes
		number, id := n.attach(winsim.DiskSpec{Serial: "ours"})
		simtest.Attach(t, n.sim, winsim.DiskSpec{})
		lockedVolume, err := locker.LockDisk(t.Context(), number)
		n.do(err)
		next, err := locker.LockDisk(t.Context(), number+1)
		n.do(err)
		ended := make(chan error, 1)
		go func() { ended <- ops.FormatVolume(t.Context(), id) }()
		synctest.Wait()
		n.do(n.sim.DetachDisk(number))
		n.do(n.sim.DetachDisk(number + 1))
		simtest.Attach(t, n.sim, winsim.DiskSpec{})
		if got := simtest.Attach(t, n.sim, winsim.DiskSpec{SizeBytes: gibibyte, Serial: "ours"}); got != number+1 {
			t.Fatalf("it has the number %d now", got)
		}
		n.sim.Settle()
		lockedVolume.Release()
		synctest.Wait()
		if got := n.sim.Calls()[win.CallFormatVolume]; got != 0 || len(ended) != 0 {
			t.Errorf("it was formatted under the lock of another disk: %d", got)
		}
		next.Release()
		n.do(<-ended)
	})
}

// A second caller waits for the first one, however long that takes.
func TestOneVolumeChangeOfADiskAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		_, id := n.attach(winsim.DiskSpec{})
		n.do(n.sim.Delay(winsim.Match{Call: win.CallFormatVolume}, time.Minute))
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = n.volumes.FormatVolume(t.Context(), id) })
		}
		wg.Wait()
		n.sim.ResetRules()
		succeeded := 0
		for _, err := range errs {
			if err == nil {
				succeeded++
			} else if !errors.Is(err, csiproxy.ErrFailedPrecondition) {
				t.Error(err)
			}
		}
		if got := n.sim.Calls()[win.CallFormatVolume]; succeeded != 1 || got != 1 {
			t.Errorf("%d succeeded with %d formats", succeeded, got)
		}

		number, id := n.formatted(winsim.DiskSpec{})
		n.do(n.sim.GrowDisk(number, 20*gibibyte))
		n.do(n.sim.Delay(winsim.Match{Call: "IOCTL_DISK_GROW_PARTITION"}, time.Minute))
		counted := simtest.Counted(n.sim, "IOCTL_DISK_GROW_PARTITION")
		for range errs {
			wg.Go(func() {
				simtest.WantError(t, n.volumes.ResizeVolume(t.Context(), id, 0), nil)
			})
		}
		wg.Wait()
		simtest.Want(t, "growths", counted()[0], 1)
	})
}

// A format that Windows refuses is repeated, unless it can't succeed.
func TestFormatVolumeRetries(t *testing.T) {
	for errno, want := range map[winerr.Errno]int{
		winerr.ErrorGenFailure: 3, winerr.ErrorSemTimeout: 3, winerr.ErrorRetry: 3, winerr.ErrorAccessDenied: 3, winerr.ErrorWriteProtect: 3,
		winerr.ErrorNotReady: 3, winerr.ErrorBusy: 3, winerr.ErrorNotSupported: 1, winerr.ErrorInvalidParameter: 3,
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newVolumeNode(t)
			_, id := n.attach(winsim.DiskSpec{})
			n.do(n.sim.Fail(winsim.Match{Call: win.CallFormatVolume, Count: 2}, errno))
			err := n.volumes.FormatVolume(t.Context(), id)
			if got := n.sim.Calls()[win.CallFormatVolume]; got != want || (err == nil) != (want == 3) {
				t.Errorf("error %d: %d attempts, %v", errno, got, err)
			}
		})
	}
}

// Right after partitioning, Windows takes a volume for read-only. If the disk itself is, waiting doesn't help.
func TestFormatVolumeOfAReadOnlyDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		number, id := n.attach(winsim.DiskSpec{})
		n.do(n.sim.SetDiskAttributes(number, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
		begun := time.Now()
		err := n.volumes.FormatVolume(t.Context(), id)
		simtest.WantError(t, err, winerr.ErrorWriteProtect, "the disk itself is read-only")
		if waited := time.Since(begun); waited > time.Second || n.sim.Calls()[win.CallFormatVolume] != 1 {
			t.Errorf("the caller learns it after %v and %d formats", waited, n.sim.Calls()[win.CallFormatVolume])
		}
	})
}

// A mount that Windows refuses at first succeeds in the same call.
func TestMountVolumeRetries(t *testing.T) {
	for _, errno := range []winerr.Errno{winerr.ErrorNotReady, winerr.ErrorAccessDenied, winerr.ErrorBusy} {
		synctest.Test(t, func(t *testing.T) {
			n := newVolumeNode(t)
			_, id := n.formatted(winsim.DiskSpec{})
			n.do(n.sim.Fail(winsim.Match{Call: win.CallSetVolumeMountPoint, Count: 3}, errno))
			n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
			if got := n.sim.Calls()[win.CallSetVolumeMountPoint]; got != 4 {
				t.Errorf("error %d: %d attempts", errno, got)
			}
		})
	}
}

// lateList is a node whose storage management doesn't find the new volume before its second update.
type lateList struct {
	*winsim.System
	updates, formats int
}

func (l *lateList) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	l.formats++
	if o.UpdateList {
		l.updates++
	}
	if l.updates < 2 {
		return winerr.ErrorRetry
	}
	return l.System.FormatVolume(ctx, volume, o)
}

// If the update of Windows' list of volumes came before the volume did, it is made again: not with each
// attempt, since it asks all disks.
func TestFormatVolumeUpdatesTheListAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		_, id := n.attach(winsim.DiskSpec{})
		late := &lateList{System: n.sim}
		n.do(groupsOf(t, late, nodeops.Options{}).Volumes.FormatVolume(t.Context(), id))
		if late.updates != 2 || late.formats < 10 {
			t.Errorf("%d updates in %d attempts", late.updates, late.formats)
		}
	})
}

// A format that has failed half-way leaves content. It isn't tried again, and the caller learns that.
func TestFormatVolumeThatFailsHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		_, id := n.attach(winsim.DiskSpec{})
		n.do(n.sim.Fail(winsim.Match{Call: win.CallFormatVolume, Skip: 1, Count: 1}, winerr.ErrorGenFailure))
		n.sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallFormatVolume {
				n.sim.OnCall(nil)
				n.do(n.sim.FormatVolume(t.Context(), string(id), win.FormatOptions{FileSystem: "NTFS"}))
			}
		})
		begun := time.Now()
		err := n.volumes.FormatVolume(t.Context(), id)
		simtest.WantError(t, err, csiproxy.ErrUnavailable, "the format has failed")
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the caller learns it after %v, in which nothing could change", waited)
		}
	})
}

// Another disk with the same contents takes the place of the volume's while a format that was
// refused for a moment is to be tried again. It isn't formatted.
func TestFormatVolumeOfADiskSwappedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		number, id := n.attach(winsim.DiskSpec{})
		n.do(n.sim.Fail(winsim.Match{Call: win.CallFormatVolume, Count: 1}, winerr.ErrorGenFailure))
		formats := 0
		n.sim.OnCall(func(c winsim.Call) {
			if c.Name != win.CallFormatVolume {
				return
			}
			if formats++; formats == 1 {
				n.do(n.sim.SwapDisk(number, winsim.DiskSpec{Serial: "clone"}, true))
			}
		})
		err := n.volumes.FormatVolume(t.Context(), id)
		n.sim.OnCall(nil)
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Want(t, "formats", formats, 1)
	})
}

// moved is a node on which a volume lies on another disk than it did, from when it is told.
func moved(sim *winsim.System, id csiproxy.VolumeID, now *bool) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(path string, code win.IoctlCode, out []byte,
		do func() (int, error)) (int, error) {
		size, err := do()
		if err == nil && path == win.VolumePath(string(id)) && code == win.IoctlVolumeGetVolumeDiskExtents && *now {
			out[8]++ // the number of the first extent's disk
		}
		return size, err
	}}
}

// Once its partition is grown, a volume with the same name lies at the same place of another
// disk. Its file system isn't grown.
func TestResizeVolumeThatHasMoved(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	now := false
	n.sim.OnCall(func(c winsim.Call) { now = now || c.Name == win.IoctlDiskGrowPartition.String() })
	extends := simtest.Counted(n.sim, win.FsctlExtendVolume.String())
	err := groupsOf(t, moved(n.sim, id, &now), nodeops.Options{}).Volumes.ResizeVolume(t.Context(), id, 0)
	n.sim.OnCall(nil)
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	if got := extends()[0]; !now || got != 0 {
		t.Errorf("the partition is grown: %v; the file system was grown %d times", now, got)
	}
}

// Before a format that was refused for a moment is tried again, a volume with the same name lies at
// the same place of another disk. It isn't formatted.
func TestFormatVolumeThatHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		_, id := n.attach(winsim.DiskSpec{})
		n.do(n.sim.Fail(winsim.Match{Call: win.CallFormatVolume, Count: 1}, winerr.ErrorGenFailure))
		now := false
		n.sim.OnCall(func(c winsim.Call) { now = now || c.Name == win.CallFormatVolume })
		formats := simtest.Counted(n.sim, win.CallFormatVolume)
		err := groupsOf(t, moved(n.sim, id, &now), nodeops.Options{}).Volumes.FormatVolume(t.Context(), id)
		n.sim.OnCall(nil)
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Want(t, "formats", formats()[0], 1)
	})
}

// Volumes of a disk that Windows runs from are neither presented to a pod nor changed.
func TestSystemVolumes(t *testing.T) {
	n := newVolumeNode(t)
	number, pages := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.SetVolumeMountPoint(t.Context(), `P:\`, string(pages)))
	n.do(n.sim.WriteFile(`P:\pagefile.sys`, nil))
	n.do(n.sim.SetRegistryStrings(win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\P:\pagefile.sys`))
	windows := csiproxy.VolumeID(n.sim.VolumesOfDisk(0)[0])
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	for id, why := range map[csiproxy.VolumeID]string{windows: `C:\Windows`, pages: `P:\pagefile.sys`} {
		for name, err := range map[string]error{
			"MountVolume":  n.volumes.MountVolume(t.Context(), id, volumeStaging),
			"FormatVolume": n.volumes.FormatVolume(t.Context(), id),
			"ResizeVolume": n.volumes.ResizeVolume(t.Context(), id, 0),
		} {
			simtest.WantErrorOf(t, fmt.Sprintf("%s of %s", name, why), err, csiproxy.ErrFailedPrecondition, why)
		}
	}
	_, data := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.Fail(winsim.Match{Call: win.CallRegistryStrings}, winerr.ErrorAccessDenied))
	for name, err := range map[string]error{
		"MountVolume":  n.volumes.MountVolume(t.Context(), data, volumeStaging),
		"FormatVolume": n.volumes.FormatVolume(t.Context(), data),
		"ResizeVolume": n.volumes.ResizeVolume(t.Context(), data, 0),
	} {
		simtest.WantErrorOf(t, name+" while the registry can't be read", err, csiproxy.ErrUnavailable)
	}
	n.sim.ResetRules()

	n.do(n.volumes.MountVolume(t.Context(), data, volumeStaging))
}

// A partition whose volume hasn't arrived may be the one that is meant.
func TestDataVolumeOfDiskCountsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		number := n.twoPartitions()
		n.sim.Settle()
		n.do(n.sim.Fail(winsim.Match{Call: win.CallVolumeNameForMountPoint, Object: "Partition2",
			Fires: winsim.MustNotFire}, winerr.ErrorFileNotFound))
		n.do(n.sim.Fail(winsim.Match{Call: win.CallFindVolumes, Fires: winsim.MustNotFire}, winerr.ErrorNotSupported))
		_, err := n.volumes.DataVolumeOfDisk(t.Context(), number)
		simtest.WantError(t, err, csiproxy.ErrFailedPrecondition)
	})
}

// Somebody makes a partition behind the volume while it grows: it grows up to that.
func TestResizeVolumeBesideANewPartition(t *testing.T) {
	n := newVolumeNode(t)
	number := simtest.Attach(t, n.sim, winsim.DiskSpec{})
	simtest.Partition(t, n.sim, number, 1)
	n.sim.Settle()
	id := n.sim.VolumesOfDisk(number)[0]
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	h, err := win.OpenDevice(t.Context(), n.sim, win.PhysicalDrive(number), win.GenericRead|win.GenericWrite)
	n.do(err)
	defer h.Close()
	planned := 0
	n.sim.OnCall(func(c winsim.Call) {
		switch {
		case c.Name == win.IoctlDiskGetDriveLayoutEx.String():
			planned++
		case c.Name == win.IoctlVolumeGetVolumeDiskExtents.String() && planned > 0: // it looks whether the volume is the same
			n.sim.OnCall(nil)
			layout, err := h.Layout(t.Context())
			n.do(err)
			layout.Partitions = append(layout.Partitions, win.Partition{
				Style: win.StyleGPT, StartingOffset: 5 * gibibyte, Length: gibibyte, Number: 2,
				Type: win.PartitionTypeBasicData, ID: winid.NewGUID(), RewritePartition: true,
			})
			n.do(h.SetLayout(t.Context(), layout))
		}
	})
	n.do(n.volumes.ResizeVolume(t.Context(), csiproxy.VolumeID(id), 0))
	layout, err := h.Layout(t.Context())
	n.do(err)
	if len(layout.Partitions) != 2 || layout.Partitions[0].Length != 5*gibibyte-dataOffset {
		t.Errorf("the partitions are %+v", layout.Partitions)
	}
}

// Asked for more than there is, but for no more than the disk has, a volume grows as far
// as it can. It never becomes larger than what is asked.
func TestResizeVolumeSizes(t *testing.T) {
	const disk20 = 20 * gibibyte
	most := int64(disk20 - dataOffset - mebibyte)
	for _, c := range []struct {
		asked, least, most int64
		kind               error
	}{
		{1583867904, 0, 0, nil}, // below what it has: nothing is done
		{15*gibibyte + 12345, 15*gibibyte - 20*mebibyte, 15*gibibyte + 12345, nil},
		{15*gibibyte + mebibyte - 1, 15*gibibyte - mebibyte, 15*gibibyte + mebibyte - 1, nil},
		{disk20 - 5*mebibyte, most - mebibyte, most, nil},
		{disk20, most - mebibyte, most, nil},
		{disk20 + 20*mebibyte, most - mebibyte, most, nil},
		{disk20 + 20*mebibyte + 1, 0, 0, csiproxy.ErrFailedPrecondition},
	} {
		n := newVolumeNode(t)
		number, id := n.formatted(winsim.DiskSpec{})
		before := size(n, id)
		n.do(n.sim.GrowDisk(number, disk20))
		err := n.volumes.ResizeVolume(t.Context(), id, c.asked)
		if c.kind == nil {
			simtest.WantError(t, err, nil)
		} else {
			simtest.WantError(t, err, c.kind, fmt.Sprint(c.asked), fmt.Sprint(int64(disk20)))
		}
		got := size(n, id)
		if c.most == 0 && got != before || c.most > 0 && (got < c.least || got > c.most) {
			t.Errorf("asked for %d: it has %d, before %d", c.asked, got, before)
		}
	}
}

// exFAT is a node with volumes whose file system can't grow.
type exFAT struct{ *winsim.System }

func (e exFAT) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	info, err := e.System.VolumeInformation(ctx, root)
	info.FileSystem = "exFAT"
	return info, err
}

// GCE's driver calls ResizeVolume(0) after each mount.
func TestResizeVolumeThatCannotGrow(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	ops := groupsOf(t, exFAT{n.sim}, nodeops.Options{}).Volumes
	n.do(ops.ResizeVolume(t.Context(), id, 0))
	simtest.WantError(t, ops.ResizeVolume(t.Context(), id, 15*gibibyte), csiproxy.ErrUnimplemented)
	simtest.Want(t, "growths", n.sim.Calls()["IOCTL_DISK_GROW_PARTITION"]+n.sim.Calls()["FSCTL_EXTEND_VOLUME"], 0)
}

// A volume on a dynamic disk begins where a partition begins, too, but isn't that
// partition.
func TestResizeVolumeOnADynamicDisk(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	ops := groupsOf(t, dynamic(n.sim), nodeops.Options{}).Volumes
	simtest.WantError(t, ops.ResizeVolume(t.Context(), id, 0), csiproxy.ErrFailedPrecondition)
	simtest.Want(t, "growths", n.sim.Calls()["IOCTL_DISK_GROW_PARTITION"], 0)
}

// dynamic is a node whose data partitions are those of dynamic disks (LDM).
func dynamic(sim *winsim.System) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(_ string, code win.IoctlCode, out []byte,
		do func() (int, error)) (int, error) {
		size, err := do()
		if code != win.IoctlDiskGetDriveLayoutEx || err != nil {
			return size, err
		}
		layout, err := win.DecodeDriveLayout(out[:size])
		if err != nil {
			return 0, err
		}
		ldm, _ := winid.ParseGUID("af9b60a0-1431-4f62-bc68-3311714a69ad")
		for i := range layout.Partitions {
			layout.Partitions[i].Type = ldm
		}
		return copy(out, layout.Encode()), nil
	}}
}

// A volume that is spread over parts of disks isn't changed: the lock of one disk isn't that of all.
func TestSpreadVolume(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.attach(winsim.DiskSpec{})
	ops := groupsOf(t, spread(n.sim, win.VolumePath(string(id))), nodeops.Options{}).Volumes
	for name, change := range map[string]func() error{
		"format": func() error { return ops.FormatVolume(t.Context(), id) },
		"resize": func() error { return ops.ResizeVolume(t.Context(), id, 0) },
		"mount":  func() error { return ops.MountVolume(t.Context(), id, kubelet+`\mount`) },
		"disk":   func() error { _, err := ops.GetDiskNumberFromVolumeID(t.Context(), id); return err },
	} {
		err := change()
		simtest.WantError(t, err, csiproxy.ErrFailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), "2 parts of disks") {
			t.Errorf("%s: %v", name, err)
		}
	}
	simtest.Want(t, "formats", n.sim.Calls()[win.CallFormatVolume], 0)
}

// spread is a node on which the volume at a path also lies on a part of a second disk.
func spread(sim *winsim.System, path string) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(at string, code win.IoctlCode, out []byte,
		do func() (int, error)) (int, error) {
		if at != path || code != win.IoctlVolumeGetVolumeDiskExtents {
			return do()
		}
		size, err := do()
		if err != nil {
			return size, err
		}
		extents, err := win.DecodeDiskExtents(out[:size])
		if err != nil {
			return 0, err
		}
		answer := win.EncodeDiskExtents(append(extents, win.DiskExtent{DiskNumber: 0, Length: 1 << 20}))
		if len(out) < len(answer) {
			return 0, winerr.ErrorMoreData
		}
		return copy(out, answer), nil
	}}
}

// NTFS keeps the last sector of its partition for itself. With clusters of one sector that
// is a cluster, for which a growth isn't worth a call.
func TestResizeVolumeOfAFullPartition(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.formatted(winsim.DiskSpec{SectorSize: 4096})
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	simtest.Want(t, "growths of the file system", n.sim.Calls()["FSCTL_EXTEND_VOLUME"], 0)
}

// The file system may learn of the new end of its partition a moment later.
func TestGrowthThatIsKnownLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		number, id := n.attach(winsim.DiskSpec{SizeBytes: 1 << 30})
		n.do(n.volumes.FormatVolume(t.Context(), id))
		n.do(n.sim.GrowDisk(number, 2<<30))
		n.do(n.sim.Fail(winsim.Match{Call: win.FsctlExtendVolume.String(), Count: 2}, winerr.ErrorInvalidParameter))
		n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
		stats, err := n.volumes.GetVolumeStats(t.Context(), id)
		if err != nil || stats.SizeBytes < 2<<30-20<<20 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}
