// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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

// write does to a disk what a pod of another process does: it brings it online, partitions
// and formats it, and writes a file. It returns the file's path.
func write(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) string {
	t.Helper()
	const mount = simtest.Kubelet + `\other`
	simtest.Must(t, sim.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskOffline | win.DiskReadOnly}))
	simtest.Partition(t, sim, n, 1)
	sim.Settle()
	name := sim.VolumesOfDisk(n)[0]
	simtest.Must(t, sim.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}))
	simtest.Mount(t, sim, mount, name)
	simtest.Must(t, sim.WriteFile(mount+`\file`, []byte("data")))
	return mount + `\file`
}

// Somebody uses the disk at each call of PartitionDisk in turn. Their data stay. The two
// writes themselves are left out: Windows has no call that looks at a disk and changes it
// in one step.
func TestPartitionDiskBesideSomebodyElse(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		sim, ops := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{Offline: true})
		var file, during string
		before(sim, func(c winsim.Call) {
			if c.Name != "IOCTL_DISK_CREATE_DISK" && c.Name != "IOCTL_DISK_SET_DRIVE_LAYOUT_EX" {
				during, file = c.Name, write(t, sim, n)
			}
		})
		err := ops.PartitionDisk(t.Context(), n)
		sim.OnCall(nil)
		if file != "" {
			if data, readErr := sim.ReadFile(file); string(data) != "data" {
				t.Errorf("before %s: the data are gone (%v); the error is %v", during, readErr, err)
			}
			if got := sim.VolumesOfDisk(n); len(got) != 1 {
				t.Errorf("before %s: the disk has the volumes %q; the error is %v", during, got, err)
			}
		}
		if err != nil && !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("before %s: %v", during, err)
		}
	})
}

// The disk is pulled out while its lock is waited for, and another one gets its number.
func TestAnotherDiskGetsTheNumberWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		g := groupsOf(t, sim, nodeops.Options{})
		locker, ops := g.Locks, g.Disks
		n := attach(t, sim, winsim.DiskSpec{Offline: true})
		right, err := locker.LockDisk(t.Context(), n)
		simtest.Must(t, err)
		ended := make(chan error, 2)
		go func() { ended <- ops.PartitionDisk(t.Context(), n) }()
		go func() { ended <- ops.SetDiskState(t.Context(), n, true) }()
		synctest.Wait()
		simtest.Must(t, sim.DetachDisk(n))
		attach(t, sim, winsim.DiskSpec{SizeBytes: gibibyte, Offline: true})
		right.Release()
		for range 2 {
			simtest.WantError(t, <-ended, csiproxy.ErrNotFound)
		}
		if infos := sim.Disks(); layoutOf(t, sim, n).Style != win.StyleRAW ||
			infos[len(infos)-1].Attributes != win.DiskOffline {
			t.Error("the other disk was changed")
		}
	})
}

// A second caller waits for the first one, however long that takes, and finds the work
// done.
func TestOnePartitionChangeOfADiskAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		run  func(ctx context.Context, ops *nodeops.Disks, n csiproxy.DiskNumber) error
	}{
		"PartitionDisk": {"IOCTL_DISK_CREATE_DISK",
			func(ctx context.Context, ops *nodeops.Disks, n csiproxy.DiskNumber) error {
				return ops.PartitionDisk(ctx, n)
			}},
		"SetDiskState": {"IOCTL_DISK_SET_DISK_ATTRIBUTES", func(ctx context.Context, ops *nodeops.Disks, n csiproxy.DiskNumber) error {
			return ops.SetDiskState(ctx, n, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, ops := newDiskNode(t)
				n := attach(t, sim, winsim.DiskSpec{Offline: name == "SetDiskState"})
				counted := simtest.Counted(sim, c.call)
				simtest.Must(t, sim.Delay(winsim.Match{Call: c.call}, time.Minute))
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						simtest.WantError(t, c.run(t.Context(), ops, n), nil)
					})
				}
				wg.Wait()
				simtest.Want(t, "calls of "+c.call, counted()[0], 1)
			})
		})
	}
}

// A disk that was staged read-only goes offline before its volumes are asked where they are mounted. It
// doesn't become writable.
func TestStagedDiskGoesOffline(t *testing.T) {
	for _, hidden := range hidden { // Windows may not show its table then, and so no volumes
		synctest.Test(t, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: hidden}))
			n := formattedDisk(t, sim, winsim.DiskSpec{})
			simtest.Mount(t, sim, simtest.Kubelet+`\mnt`, sim.VolumesOfDisk(n)[0])
			setAttributes(t, sim, n, win.DiskReadOnly)
			sim.OnCall(func(c winsim.Call) {
				if c.Name == win.CallVolumeNameForMountPoint && strings.Contains(c.Object, `Harddisk1\`) ||
					hidden != settings.OfflineShown && c.Name == win.IoctlDiskGetDriveLayoutEx.String() {
					sim.OnCall(nil)
					setAttributes(t, sim, n, diskBlocking)
				}
			})
			simtest.WantError(t, ops.SetDiskState(t.Context(), n, true), csiproxy.ErrUnavailable)
			simtest.Want(t, "its attributes", sim.Disks()[1].Attributes, diskBlocking)
		})
	}
}

// A disk doesn't go offline under a volume that is mounted in an allowed directory, be it beside
// others, or of a volume that is arriving.
func TestMountedDiskStaysOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: time.Second})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		n := formattedDisk(t, sim, winsim.DiskSpec{})
		for _, path := range []string{`C:\data`, simtest.Kubelet + `\mnt`} {
			simtest.Mount(t, sim, path, sim.VolumesOfDisk(n)[0])
		}
		simtest.WantError(t, ops.SetDiskState(t.Context(), n, false), csiproxy.ErrFailedPrecondition)
		setAttributes(t, sim, n, win.DiskOffline)
		setAttributes(t, sim, n, 0)
		simtest.WantError(t, ops.SetDiskState(t.Context(), n, false), csiproxy.ErrFailedPrecondition)
		simtest.Want(t, "its attributes", sim.Disks()[1].Attributes, 0)
	})
}

// Windows is told of each change of a disk before the call returns, apart from its end: WSL, which takes
// disks offline, doesn't, and an error there would report a failure of what is done.
func TestPropertiesAreUpdated(t *testing.T) {
	changes := []string{"IOCTL_DISK_CREATE_DISK", "IOCTL_DISK_SET_DRIVE_LAYOUT_EX", "IOCTL_DISK_SET_DISK_ATTRIBUTES"}
	sim := simtest.Open(t, winsim.Delays{})
	ops := groupsOf(t, sim, nodeops.Options{}).Disks
	raw := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
	original := formattedDisk(t, sim, winsim.DiskSpec{})
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"PartitionDisk", func() error { return ops.PartitionDisk(t.Context(), raw) }, "AAU CU LU"},
		{"offline", func() error { return ops.SetDiskState(t.Context(), original, false) }, "A"},
	} {
		var mu sync.Mutex // disks are asked at the same time
		var got string
		sim.OnCall(func(c winsim.Call) {
			mu.Lock()
			defer mu.Unlock()
			if i := slices.Index(changes, c.Name); i >= 0 {
				got += string("CLA"[i])
			} else if c.Name == "IOCTL_DISK_UPDATE_PROPERTIES" {
				got += "U"
			}
		})
		err := c.do()
		sim.OnCall(nil)
		if err != nil || got != strings.ReplaceAll(c.want, " ", "") {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

// A table that Windows refuses to write is written again only on the disk that was found blank, as long as it is.
func TestTableIsWrittenAgainOnABlankDiskOnly(t *testing.T) {
	for name, code := range map[string]win.IoctlCode{"table": win.IoctlDiskCreateDisk, "partitions": win.IoctlDiskSetDriveLayoutEx} {
		for _, meanwhile := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				sim, _ := newDiskNode(t)
				n := attach(t, sim, winsim.DiskSpec{})
				refused := false
				ops := groupsOf(t, simtest.Controlled{System: sim, Answer: func(_ string, asked win.IoctlCode, _ []byte,
					do func() (int, error)) (int, error) {
					if asked != code || refused {
						return do()
					}
					refused = true
					if meanwhile {
						simtest.Partition(t, sim, n, 2)
					}
					return 0, winerr.ErrorNotReady
				}}, nodeops.Options{}).Disks
				err := ops.PartitionDisk(t.Context(), n)
				if !refused {
					t.Fatalf("%s: it wasn't refused", name)
				}
				if !meanwhile {
					simtest.WantErrorOf(t, name, err, nil)
					return
				}
				simtest.WantErrorOf(t, name, err, csiproxy.ErrUnavailable)
				sim.Settle()
				simtest.Want(t, name+": volumes of somebody else", len(sim.VolumesOfDisk(n)), 2)
			})
		}
	}
}
