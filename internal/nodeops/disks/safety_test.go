// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// write does to a disk what a pod of another process does: it brings it online, partitions
// and formats it, and writes a file. It returns the file's path.
func write(t *testing.T, sim *winsim.System, n disk.Number) string {
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
// in one step. See the next test.
func TestPartitionDiskBesideSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, more := 0, true; more && !t.Failed(); at++ {
			sim, ops := newNode(t)
			n := attach(t, sim, winsim.DiskSpec{Offline: true})
			var file, during string
			calls, busy := 0, false
			sim.OnCall(func(c winsim.Call) {
				if busy {
					return
				}
				if calls++; calls-1 != at || c.Name == "IOCTL_DISK_CREATE_DISK" || c.Name == "IOCTL_DISK_SET_DRIVE_LAYOUT_EX" {
					return
				}
				busy, during = true, c.Name
				file = write(t, sim, n)
				busy = false
			})
			err := ops.PartitionDisk(operation.Inline(t.Context()), n)
			sim.OnCall(nil)
			if file != "" {
				if data, readErr := sim.ReadFile(file); string(data) != "data" {
					t.Errorf("before call %d, %s: the data are gone (%v); the error is %v", at, during, readErr, err)
				}
				if got := sim.VolumesOfDisk(n); len(got) != 1 {
					t.Errorf("before call %d, %s: the disk has the volumes %q; the error is %v", at, during, got, err)
				}
			}
			if err != nil && !errors.Is(err, csiproxy.ErrUnavailable) {
				t.Errorf("before call %d, %s: %v", at, during, err)
			}
			more = at < calls
		}
	})
}

// Another process that uses the same library partitions the disk at each call of
// PartitionDisk in turn, also at the writes. What it has put on the disk stays.
func TestPartitionDiskBesideAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		succeeded := 0
		for at, more := 0, true; more && !t.Failed(); at++ {
			sim, ops := newNode(t)
			other := disks.New(sim, disks.Options{})
			n := attach(t, sim, winsim.DiskSpec{Offline: true})
			calls, busy := 0, false
			const file = simtest.Kubelet + `\other\file`
			written := false
			sim.OnCall(func(c winsim.Call) {
				if busy {
					return
				}
				if calls++; calls-1 != at {
					return
				}
				busy = true
				defer func() { busy = false }()
				if err := other.PartitionDisk(operation.Inline(t.Context()), n); err != nil {
					simtest.WantKind(t, err, csiproxy.ErrUnavailable)
					return
				}
				name := sim.VolumesOfDisk(n)[0]
				if sim.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}) != nil {
					return // the first process has the volume open, and then is done with it
				}
				simtest.Mount(t, sim, simtest.Kubelet+`\other`, name)
				simtest.Must(t, sim.WriteFile(file, []byte("data")))
				written = true
			})
			err := ops.PartitionDisk(operation.Inline(t.Context()), n)
			sim.OnCall(nil)
			if err != nil && !errors.Is(err, csiproxy.ErrUnavailable) {
				t.Errorf("call %d: %v", at, err)
			}
			if written {
				succeeded++
				if data, err := sim.ReadFile(file); string(data) != "data" {
					t.Errorf("call %d: the data of the other process are gone: %v", at, err)
				}
			}
			more = at < calls
		}
		if succeeded == 0 {
			t.Error("the other process never succeeded, so this shows nothing")
		}
	})
}

// Each change of a disk waits until no other process changes it, gives up in the end, and
// leaves nothing in Windows' directory.
func TestChangesExcludeOtherProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		spec winsim.DiskSpec
		run  func(ctx context.Context, ops *disks.Disks, n disk.Number) error
	}{
		"PartitionDisk": {winsim.DiskSpec{},
			func(ctx context.Context, ops *disks.Disks, n disk.Number) error { return ops.PartitionDisk(ctx, n) }},
		"offline": {winsim.DiskSpec{}, func(ctx context.Context, ops *disks.Disks, n disk.Number) error {
			return ops.SetDiskState(ctx, n, false)
		}},
		"new ids": {winsim.DiskSpec{Offline: true}, func(ctx context.Context, ops *disks.Disks, n disk.Number) error {
			return ops.SetDiskState(ctx, n, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := simtest.Open(t, winsim.Delays{})
				ops := disks.New(sim, disks.Options{NewIDsForClones: true})
				n := attach(t, sim, c.spec)
				if name == "new ids" {
					original := attach(t, sim, winsim.DiskSpec{})
					simtest.Partition(t, sim, original, 1)
					n = clone(t, sim, original)
				}
				_, right, err := use.Default(sim).Disk(t.Context(), n) // of another process
				simtest.Must(t, err)
				before := sim.Calls()["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"]
				begun, attributes := time.Now(), sim.Disks()[n].Attributes
				simtest.WantKind(t, c.run(t.Context(), ops, n), csiproxy.ErrUnavailable)
				if took := time.Since(begun); took < 10*time.Second || sim.Calls()["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"] != before ||
					sim.Disks()[n].Attributes&win.DiskOffline != attributes&win.DiskOffline {
					t.Errorf("it was changed, or wasn't waited for: %v", took)
				}
				right.Release()
				simtest.Must(t, c.run(t.Context(), ops, n))
				entries, err := sim.ReadDir(`C:\Windows`)
				simtest.Must(t, err)
				for _, e := range entries {
					if strings.Contains(e.Name, "csi-proxy") {
						t.Errorf("%s is left", e.Name)
					}
				}
			})
		})
	}
}

// At each call in turn, the disk is pulled out and another one gets its number. That one
// stays as it is.
func TestAnotherDiskGetsTheNumber(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, ops *disks.Disks, n disk.Number) error{
		"PartitionDisk": func(ctx context.Context, ops *disks.Disks,
			n disk.Number) error {
			return ops.PartitionDisk(ctx, n)
		},
		"online": func(ctx context.Context, ops *disks.Disks, n disk.Number) error {
			return ops.SetDiskState(ctx, n, true)
		},
		"offline": func(ctx context.Context, ops *disks.Disks, n disk.Number) error {
			return ops.SetDiskState(ctx, n, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for at, more := 1, true; more && !t.Failed(); at++ {
					sim, ops := newNode(t)
					n := attach(t, sim, winsim.DiskSpec{Offline: name != "offline"})
					stranger := winsim.DiskSpec{SizeBytes: gibibyte, Offline: name != "offline"}
					swapped := false
					simtest.BeforeCalls(sim, func(i int, _ winsim.Call) {
						if i == at {
							simtest.Must(t, sim.DetachDisk(n))
							if got := attach(t, sim, stranger); got != n {
								t.Fatalf("the other disk got the number %d", got)
							}
							swapped = true
						}
					})
					err := run(operation.Inline(t.Context()), ops, n)
					sim.OnCall(nil)
					if more = swapped; !swapped {
						break
					}
					infos := sim.Disks()
					if got := infos[len(infos)-1].Attributes&win.DiskOffline != 0; got != stranger.Offline {
						t.Errorf("call %d: the other disk is offline: %v; %v", at, got, err)
					}
					if style := layoutOf(t, sim, n).Style; style != win.StyleRAW {
						t.Errorf("call %d: the other disk has partition style %d; %v", at, style, err)
					}
				}
			})
		})
	}
}

// The disk is pulled out while its lock is waited for, and another one gets its number.
func TestAnotherDiskGetsTheNumberWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		owner := use.Default(sim)
		ops := disks.New(sim, disks.Options{Owner: owner})
		n := attach(t, sim, winsim.DiskSpec{Offline: true})
		_, right, err := owner.Disk(t.Context(), n)
		simtest.Must(t, err)
		ended := make(chan error, 2)
		go func() { ended <- ops.PartitionDisk(t.Context(), n) }()
		go func() { ended <- ops.SetDiskState(t.Context(), n, true) }()
		synctest.Wait()
		simtest.Must(t, sim.DetachDisk(n))
		attach(t, sim, winsim.DiskSpec{SizeBytes: gibibyte, Offline: true})
		right.Release()
		for range 2 {
			simtest.WantKind(t, <-ended, csiproxy.ErrNotFound)
		}
		if infos := sim.Disks(); layoutOf(t, sim, n).Style != win.StyleRAW ||
			infos[len(infos)-1].Attributes != win.DiskOffline {
			t.Error("the other disk was changed")
		}
	})
}

// A second caller waits for the first one, however long that takes, and finds the work
// done.
func TestOneChangeOfADiskAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		run  func(ctx context.Context, ops *disks.Disks, n disk.Number) error
	}{
		"PartitionDisk": {"IOCTL_DISK_CREATE_DISK",
			func(ctx context.Context, ops *disks.Disks, n disk.Number) error { return ops.PartitionDisk(ctx, n) }},
		"SetDiskState": {"IOCTL_DISK_SET_DISK_ATTRIBUTES", func(ctx context.Context, ops *disks.Disks, n disk.Number) error {
			return ops.SetDiskState(ctx, n, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, ops := newNode(t)
				n := attach(t, sim, winsim.DiskSpec{Offline: name == "SetDiskState"})
				counted := simtest.Counted(sim, c.call)
				simtest.Must(t, sim.Delay(winsim.Match{Call: c.call}, time.Minute))
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if err := c.run(t.Context(), ops, n); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if got := counted(); got[0] != 1 {
					t.Errorf("%s was called %d times", c.call, got[0])
				}
			})
		})
	}
}

func TestPartitionDiskLeavesARefusedDiskAsItWas(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, sim *winsim.System, n disk.Number){
		"foreign data":       func(t *testing.T, sim *winsim.System, n disk.Number) { plant(t, sim, n, 0, "XFSB") },
		"empty MBR":          func(t *testing.T, sim *winsim.System, n disk.Number) { plant(t, sim, n, 0, mbr(0)) },
		"foreign partitions": func(t *testing.T, sim *winsim.System, n disk.Number) { plant(t, sim, n, 0, mbr(0x83)) },
		// What Windows shows of an offline disk isn't documented: it may show data only
		// when the disk is online.
		"data that show online only": func(t *testing.T, sim *winsim.System, n disk.Number) {
			done := false
			sim.OnCall(func(c winsim.Call) {
				if c.Name == "IOCTL_DISK_UPDATE_PROPERTIES" && !done {
					done = true
					plant(t, sim, n, 0, "XFSB")
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim, ops := newNode(t)
			n := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
			prepare(t, sim, n)
			before := sim.Calls()["IOCTL_DISK_CREATE_DISK"]
			simtest.WantKind(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
			infos := sim.Disks()
			if got := infos[len(infos)-1].Attributes; got != win.DiskOffline|win.DiskReadOnly {
				t.Errorf("the disk has attributes %d", got)
			}
			if sim.Calls()["IOCTL_DISK_CREATE_DISK"] != before {
				t.Error("it was written to")
			}
		})
	}
	t.Run("too small", func(t *testing.T) {
		sim, ops := newNode(t)
		n := attach(t, sim, winsim.DiskSpec{SizeBytes: 17 << 20, Offline: true})
		simtest.WantKind(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
		if writes(sim) != 0 {
			t.Error("it was written to")
		}
	})
}

// A table with partitions for which Windows has no volume isn't a success: the caller
// would find no volume.
func TestPartitionDiskRefusesForeignPartitions(t *testing.T) {
	linux, _ := win.ParseGUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
	for name, p := range map[string]win.Partition{
		"Linux":  {Type: linux},
		"hidden": {Type: win.PartitionTypeBasicData, Attributes: win.GPTAttributeHidden},
	} {
		sim, ops := newNode(t)
		n := attach(t, sim, winsim.DiskSpec{})
		simtest.Partition(t, sim, n, 0)
		h, err := device.Open(t.Context(), sim, win.PhysicalDrive(n), win.GenericRead|win.GenericWrite)
		simtest.Must(t, err)
		p.Style, p.ID, p.StartingOffset, p.Length = win.StyleGPT, win.NewGUID(), 1<<20, gibibyte
		simtest.Must(t, h.SetLayout(t.Context(), &win.DriveLayout{Style: win.StyleGPT, Partitions: []win.Partition{p}}))
		h.Close()
		if err := ops.PartitionDisk(t.Context(), n); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Windows may take a disk offline again when it handles its arrival.
func TestPartitionDiskBringsTheDiskOnlineAgain(t *testing.T) {
	for times, want := range map[int]error{1: nil, 3: nil, 1 << 30: csiproxy.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 200 * time.Millisecond})
			ops := disks.New(sim, disks.Options{})
			n := attach(t, sim, winsim.DiskSpec{Offline: true})
			left := times
			sim.OnCall(func(c winsim.Call) {
				// After the table was written, at each look for the volume.
				if c.Name == win.CallVolumeNameForMountPoint && strings.Contains(c.Object, "Harddisk") && left > 0 {
					left--
					simtest.Must(t, sim.SetDiskAttributes(n,
						win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
				}
			})
			err := ops.PartitionDisk(t.Context(), n)
			simtest.WantKind(t, err, want)
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
			sim, ops := newNode(t)
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
			if err := disks.New(sim, disks.Options{AllowRecognizedData: true}).PartitionDisk(t.Context(), n); err != nil {
				t.Errorf("with AllowRecognizedData: %v", err)
			}
		})
	}
}

// Nothing is done to a disk that Windows runs from, and none has a location. If that can't
// be found out, nothing is done to any disk.
func TestSystemDisks(t *testing.T) {
	sim, ops := newNode(t)
	data, pages, dump := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{}),
		attach(t, sim, winsim.DiskSpec{})
	for n, letter := range map[disk.Number]string{pages: "P", dump: "Q"} {
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
		simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), letter+`:\`, sim.VolumesOfDisk(n)[0]))
	}
	// At run time, after the disks were looked at.
	simtest.Must(t, sim.SetRegistryStrings(win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\C:\pagefile.sys`, `\??\P:\pagefile.sys`))
	simtest.Must(t, sim.SetRegistryStrings(win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `Q:\dump.sys`))
	for n, why := range map[disk.Number]string{0: `C:\Windows`, pages: `page file P:\pagefile.sys`, dump: `crash dump file Q:\dump.sys`} {
		for name, err := range map[string]error{
			"PartitionDisk": ops.PartitionDisk(t.Context(), n), "online": ops.SetDiskState(t.Context(), n, true),
			"offline": ops.SetDiskState(t.Context(), n, false),
		} {
			if !errors.Is(err, csiproxy.ErrFailedPrecondition) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s of disk %d: %v", name, n, err)
			}
		}
	}
	locations, err := ops.ListDiskLocations(t.Context())
	if _, ok := locations[data]; err != nil || !ok || len(locations) != 1 {
		t.Errorf("the locations are %v, %v", locations, err)
	}
	if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 4 {
		t.Errorf("the ids are %v, %v", ids, err)
	}

	for _, call := range []string{win.CallSystemWindowsDirectory, win.CallRegistryStrings} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: call}, win.ErrorAccessDenied))
		before := writes(sim)
		simtest.WantKind(t, ops.PartitionDisk(t.Context(), data), csiproxy.ErrUnavailable)
		simtest.WantKind(t, ops.SetDiskState(t.Context(), data, false), csiproxy.ErrUnavailable)
		_, err := ops.ListDiskLocations(t.Context())
		simtest.WantKind(t, err, csiproxy.ErrUnavailable)
		if writes(sim) != before {
			t.Errorf("%s fails: a disk was changed", call)
		}
		sim.ResetRules()
	}
	simtest.Must(t, ops.PartitionDisk(t.Context(), data))
}

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
			if writes(sim) != 0 && name == "MBR" {
				t.Error("it was written to")
			}

			ops = disks.New(sim, disks.Options{NewIDsForClones: true})
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
						if known {
							simtest.WantKind(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
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
						simtest.WantKind(t, err, csiproxy.ErrUnavailable)
						if took := time.Since(begin); took > 2*time.Second || !strings.Contains(fmt.Sprint(err), "it may be a copy of") {
							t.Errorf("after %v: %v", took, err)
						}
						if known && !hidden && online != 0 {
							t.Error("it was brought online though its original is known")
						}
						described, listErr := ops.Describe(t.Context(), storage.Selector{SerialNumber: sim.Disks()[2].Spec.Serial})
						i := slices.IndexFunc(described, func(d storage.Disk) bool { return d.Number == copied })
						if known && !hidden && (i < 0 || !strings.Contains(described[i].OfflineReason, "it may be a copy of")) {
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
		simtest.WantKind(t, ops.SetDiskState(t.Context(), another, true), csiproxy.ErrFailedPrecondition)
		simtest.Must(t, giving.SetDiskState(t.Context(), another, true))

		h, err := device.Open(t.Context(), sim, win.PhysicalDrive(other), win.GenericRead|win.GenericWrite)
		simtest.Must(t, err)
		defer h.Close()
		simtest.Must(t, h.SetLayout(t.Context(), ids))
		begin := time.Now()
		simtest.WantKind(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		simtest.Must(t, giving.SetDiskState(t.Context(), copied, true))

		simtest.Must(t, giving.SetDiskState(t.Context(), other, false))
		simtest.Must(t, giving.SetDiskState(t.Context(), other, true))
		if now := layoutOf(t, sim, other); now.DiskID != ids.DiskID {
			t.Error("the original has other ids, though its copy has new ones")
		}
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
			simtest.WantKind(t, ops.SetDiskState(t.Context(), copied, true), csiproxy.ErrFailedPrecondition)
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
		for _, newIDs := range []bool{false, true} {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
			original := attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			sim.Settle()
			copied := clone(t, sim, original)
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayoutRAW: true}))
			begin := time.Now()
			err := disks.New(sim, disks.Options{NewIDsForClones: newIDs}).SetDiskState(t.Context(), copied, true)
			simtest.WantKind(t, err, csiproxy.ErrFailedPrecondition)
			if took := time.Since(begin); took > time.Second || !strings.Contains(fmt.Sprint(err), "it is a copy of") {
				t.Errorf("after %v: %v", took, err)
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
				simtest.WantKind(t, ops.SetDiskState(t.Context(), n, true), csiproxy.ErrUnavailable)
			}
			simtest.Must(t, ops.SetDiskState(t.Context(), n, true))
		}
	})
}

// Somebody makes a partition on a copy at each call that gives it new ids. It stays.
func TestCloneIsPartitionedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, more := 0, true; more && !t.Failed(); at++ {
			sim := simtest.Open(t, winsim.Delays{})
			original := attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			copied := clone(t, sim, original)
			calls, made := 0, 0
			sim.OnCall(func(c winsim.Call) {
				if calls++; calls-1 == at && c.Name != win.IoctlDiskSetDriveLayoutEx.String() {
					made = addPartition(t, sim, copied)
				}
			})
			err := disks.New(sim, disks.Options{NewIDsForClones: true}).SetDiskState(operation.Inline(t.Context()), copied, true)
			sim.OnCall(nil)
			more = at < calls
			if got := len(layoutOf(t, sim, copied).Partitions); made != 0 && got != made {
				t.Errorf("call %d: of %d partitions there are %d; %v", at, made, got, err)
			}
		}
	})
}

// Another disk comes in the place of the clone, under the handle that is open: it is found out
// before each change, as soon as can be.
func TestCloneIsSwappedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, more := 0, true; more && !t.Failed(); at++ {
			sim := simtest.Open(t, winsim.Delays{})
			original := attach(t, sim, winsim.DiskSpec{})
			simtest.Partition(t, sim, original, 1)
			copied := clone(t, sim, original)
			calls, since := 0, -1
			changes := []string{win.IoctlDiskSetDiskAttributes.String(), win.IoctlDiskSetDriveLayoutEx.String()}
			sim.OnCall(func(c winsim.Call) {
				if since >= 0 {
					// Between the look at the disk and the change there is one at what is to be changed.
					if since++; since > 1 && slices.Contains(changes, c.Name) {
						t.Errorf("%s is call %d after the one, %d, before which the disk has become another one", c.Name, since, at)
					}
				}
				if calls++; calls-1 == at && calls > 3 { // it is open, and has said what it is
					simtest.Must(t, sim.SwapDisk(copied, winsim.DiskSpec{Serial: "stranger", Page83: []win.Identifier{}}, true))
					since = 0
				}
			})
			// it may be done already
			_ = disks.New(sim, disks.Options{NewIDsForClones: true}).SetDiskState(operation.Inline(t.Context()), copied, true)
			sim.OnCall(nil)
			more = at < calls
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

// deaf is a node that accepts a control call and does nothing.
type deaf struct {
	*winsim.System
	code win.IoctlCode
}

func (s deaf) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	return deafDevice{d, s.code}, nil
}

type deafDevice struct {
	win.Device
	code win.IoctlCode
}

func (d deafDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if code == d.code {
		return 0, nil
	}
	return d.Device.Control(ctx, code, in, out)
}

// That Windows accepts a call doesn't mean that it has done what was asked.
func TestAcceptedButNotDone(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	offline, raw := attach(t, sim, winsim.DiskSpec{Offline: true}), attach(t, sim, winsim.DiskSpec{})
	ops := disks.New(deaf{sim, win.IoctlDiskSetDiskAttributes}, disks.Options{})
	simtest.WantKind(t, ops.SetDiskState(t.Context(), offline, true), csiproxy.ErrUnavailable)
	simtest.WantKind(t, ops.PartitionDisk(t.Context(), offline), csiproxy.ErrUnavailable)
	ops = disks.New(deaf{sim, win.IoctlDiskCreateDisk}, disks.Options{})
	if err := ops.PartitionDisk(t.Context(), raw); err == nil || !strings.Contains(err.Error(), "partition style 2") {
		t.Errorf("got %v", err)
	}
	if writes(sim) != 0 {
		t.Error("it was written to")
	}
}
