// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

func TestPartitionDiskLeavesARefusedDiskAsItWas(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber){
		"foreign data":       func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { plant(t, sim, n, 0, "XFSB") },
		"empty MBR":          func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { plant(t, sim, n, 0, mbr(0)) },
		"foreign partitions": func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { plant(t, sim, n, 0, mbr(0x83)) },
		// What Windows shows of an offline disk isn't documented: it may show data only
		// when the disk is online.
		"data that show online only": func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) {
			var done atomic.Bool // disks are asked at the same time
			sim.OnCall(func(c winsim.Call) {
				if c.Name == "IOCTL_DISK_UPDATE_PROPERTIES" && !done.Swap(true) {
					plant(t, sim, n, 0, "XFSB")
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			n := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
			prepare(t, sim, n)
			before := sim.Calls()["IOCTL_DISK_CREATE_DISK"]
			simtest.WantError(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
			infos := sim.Disks()
			simtest.Want(t, "attributes of the disk", infos[len(infos)-1].Attributes, win.DiskOffline|win.DiskReadOnly)
			simtest.Want(t, "writes to it", sim.Calls()["IOCTL_DISK_CREATE_DISK"], before)
		})
	}
	t.Run("too small", func(t *testing.T) {
		sim, ops := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{SizeBytes: 17 << 20, Offline: true})
		simtest.WantError(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
		simtest.Want(t, "attributes of the disk", sim.Disks()[1].Attributes, win.DiskOffline)
		simtest.Want(t, "writes to it", sim.Calls()["IOCTL_DISK_CREATE_DISK"], 0)
	})
}

// A disk that has gone online to be looked at goes back only if it is refused, or if the caller gives up. An
// error of Windows may pass, so then it stays online for the next attempt.
func TestPartitionDiskPutsBack(t *testing.T) {
	for errno, back := range map[winerr.Errno]bool{0: true, winerr.ErrorIODevice: false, winerr.ErrorAccessDenied: false} {
		sim, ops := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var looked atomic.Bool
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallRead && sim.Disks()[1].Attributes == 0 && !looked.Swap(true) {
				if errno == 0 {
					cancel()
				} else {
					simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallRead, Count: 1}, errno))
				}
			}
		})
		err := ops.PartitionDisk(ctx, n)
		sim.OnCall(nil)
		if want := map[bool]win.DiskAttributes{true: diskBlocking}[back]; err == nil || sim.Disks()[1].Attributes != want {
			t.Errorf("error %d: its attributes are %d, want %d; %v", errno, sim.Disks()[1].Attributes, want, err)
		}
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
	}
}

// A table with partitions for which Windows has no volume isn't a success: the caller
// would find no volume.
func TestPartitionDiskRefusesForeignPartitions(t *testing.T) {
	linux, _ := winid.ParseGUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
	for name, p := range map[string]win.Partition{
		"Linux":  {Type: linux},
		"hidden": {Type: win.PartitionTypeBasicData, Attributes: win.GPTAttributeHidden},
	} {
		sim, ops := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{})
		simtest.Partition(t, sim, n, 0)
		h, err := win.OpenDevice(t.Context(), sim, win.PhysicalDrive(n), win.GenericRead|win.GenericWrite)
		simtest.Must(t, err)
		p.Style, p.ID, p.StartingOffset, p.Length = win.StyleGPT, winid.NewGUID(), 1<<20, gibibyte
		simtest.Must(t, h.SetLayout(t.Context(), &win.DriveLayout{Style: win.StyleGPT, Partitions: []win.Partition{p}}))
		h.Close()
		simtest.WantErrorOf(t, name, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
	}
}

// Windows may take a disk offline again when it handles its arrival.
func TestPartitionDiskBringsTheDiskOnlineAgain(t *testing.T) {
	for times, want := range map[int]error{1: nil, 3: nil, 1 << 30: csiproxy.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 200 * time.Millisecond})
			ops := groupsOf(t, sim, nodeops.Options{}).Disks
			n := attach(t, sim, winsim.DiskSpec{Offline: true})
			var looks atomic.Int64
			sim.OnCall(func(c winsim.Call) {
				// After the table was written, at each look for the volume.
				if c.Name == win.CallVolumeNameForMountPoint && strings.Contains(c.Object, "Harddisk") &&
					looks.Add(1) <= int64(times) {
					simtest.Must(t, sim.SetDiskAttributes(n,
						win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
				}
			})
			err := ops.PartitionDisk(t.Context(), n)
			simtest.WantError(t, err, want)
			if err == nil && len(sim.VolumesOfDisk(n)) != 1 {
				t.Errorf("offline %d times: it has no volume", times)
			}
		})
	}
}

// What is left of a partition table, or of what it had, is somebody's data.
func TestPartitionDiskRefusesADamagedTable(t *testing.T) {
	const size = 10 * gibibyte
	ntfs := "\xeb\x52\x90NTFS    "
	for name, c := range map[string]struct {
		sectorSize uint32
		damage     map[int64]int // bytes to clear, by offset
		plant      map[int64]string
		want       string
	}{
		"no protective MBR":   {512, map[int64]int{0: 512}, nil, "sector 1)"},
		"4096":                {4096, map[int64]int{0: 4096}, nil, "sector 1)"},
		"only the copy":       {512, map[int64]int{0: 34 * 512}, nil, fmt.Sprintf("sector %d)", size/512-1)},
		"two damaged headers": {512, map[int64]int{512 + 16: 4, size - 512 + 16: 4}, nil, "sector 1)"},
		"1 MiB": {512, map[int64]int{0: 1 << 20, size - 1<<20: 1 << 20}, map[int64]string{1 << 20: ntfs},
			"sector 2048)"},
		"16 MiB": {512, map[int64]int{0: 1 << 20, size - 1<<20: 1 << 20}, map[int64]string{16 << 20: ntfs}, "sector 32768)"},
		"32 MiB": {512, map[int64]int{0: 1 << 20, size - 1<<20: 1 << 20}, map[int64]string{32 << 20: "\xeb\x58\x90-FVE-FS-"},
			"sector 65536)"},
		"129 MiB": {4096, map[int64]int{0: 1 << 20, size - 1<<20: 1 << 20}, map[int64]string{129 << 20: ntfs},
			"sector 33024)"},
	} {
		t.Run(name, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			n := attach(t, sim, winsim.DiskSpec{SectorSize: c.sectorSize})
			simtest.Partition(t, sim, n, 1)
			for offset, length := range c.damage {
				plant(t, sim, n, offset, strings.Repeat("\x00", length))
			}
			for offset, s := range c.plant {
				plant(t, sim, n, offset, s)
			}
			err := ops.PartitionDisk(t.Context(), n)
			if !errors.Is(err, csiproxy.ErrFailedPrecondition) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			simtest.WantErrorOf(t, "with AllowRecognizedData",
				groupsOf(t, sim, nodeops.Options{AllowRecognizedData: true}).Disks.PartitionDisk(t.Context(), n), nil)
		})
	}
}

// Nothing is done to a disk that Windows runs from, and none has a location. If that can't
// be found out, nothing is done to any disk.
func TestSystemDisks(t *testing.T) {
	sim, ops := newDiskNode(t)
	data, pages, dump := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{}),
		attach(t, sim, winsim.DiskSpec{})
	for n, letter := range map[csiproxy.DiskNumber]string{pages: "P", dump: "Q"} {
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
		simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), letter+`:\`, sim.VolumesOfDisk(n)[0]))
	}
	// At run time, after the disks were looked at.
	simtest.Must(t, sim.SetRegistryStrings(win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\C:\pagefile.sys`, `\??\P:\pagefile.sys`))
	simtest.Must(t, sim.SetRegistryStrings(win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `Q:\dump.sys`))
	for n, why := range map[csiproxy.DiskNumber]string{0: `C:\Windows`, pages: `page file P:\pagefile.sys`, dump: `crash dump file Q:\dump.sys`} {
		for name, err := range map[string]error{
			"PartitionDisk": ops.PartitionDisk(t.Context(), n), "online": ops.SetDiskState(t.Context(), n, true),
			"offline": ops.SetDiskState(t.Context(), n, false),
		} {
			simtest.WantErrorOf(t, fmt.Sprintf("%s of disk %d", name, n), err, csiproxy.ErrFailedPrecondition, why)
		}
	}
	locations, err := ops.ListDiskLocations(t.Context())
	if _, ok := locations[data]; err != nil || !ok || len(locations) != 1 {
		t.Errorf("the locations are %v, %v", locations, err)
	}
	if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 4 {
		t.Errorf("the ids are %v, %v", ids, err)
	}

	for call, kind := range map[string]error{
		win.CallSystemWindowsDirectory: csiproxy.ErrPermissionDenied, // which has the lock file, too
		win.CallRegistryStrings:        csiproxy.ErrUnavailable,
	} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: call}, winerr.ErrorAccessDenied))
		before := writes(sim)
		simtest.WantError(t, ops.PartitionDisk(t.Context(), data), kind)
		simtest.WantError(t, ops.SetDiskState(t.Context(), data, false), kind)
		_, err := ops.ListDiskLocations(t.Context())
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Want(t, "writes when "+call+" fails", writes(sim), before)
		sim.ResetRules()
	}
	simtest.Must(t, ops.PartitionDisk(t.Context(), data))
}

// deaf is a node that accepts a control call and does nothing.
func deaf(sim *winsim.System, to win.IoctlCode) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(_ string, code win.IoctlCode, _ []byte,
		do func() (int, error)) (int, error) {
		if code == to {
			return 0, nil
		}
		return do()
	}}
}

// That Windows accepts a call doesn't mean that it has done what was asked.
func TestAcceptedButNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		offline, raw := attach(t, sim, winsim.DiskSpec{Offline: true}), attach(t, sim, winsim.DiskSpec{})
		ops := groupsOf(t, deaf(sim, win.IoctlDiskSetDiskAttributes), nodeops.Options{}).Disks
		simtest.WantError(t, ops.SetDiskState(t.Context(), offline, true), csiproxy.ErrUnavailable)
		simtest.WantError(t, ops.PartitionDisk(t.Context(), offline), csiproxy.ErrUnavailable)
		ops = groupsOf(t, deaf(sim, win.IoctlDiskCreateDisk), nodeops.Options{}).Disks
		if err := ops.PartitionDisk(t.Context(), raw); err == nil || !strings.Contains(err.Error(), "partition style 2") {
			t.Errorf("got %v", err)
		}
		simtest.Want(t, "writes to it", writes(sim), 0)
	})
}
