// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

const gibibyte = 1 << 30

func newDiskNode(t *testing.T) (*winsim.System, *nodeops.Disks) {
	sim := simtest.Open(t, winsim.Delays{})
	return sim, groupsOf(t, sim, nodeops.Options{}).Disks
}

func attach(t *testing.T, sim *winsim.System, spec winsim.DiskSpec) csiproxy.DiskNumber {
	t.Helper()
	return simtest.Attach(t, sim, spec)
}

func layoutOf(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) *win.DriveLayout {
	t.Helper()
	h, err := opendisk.Open(t.Context(), sim, n, win.AccessNone)
	simtest.Must(t, err)
	defer h.Close()
	layout, err := h.Layout(t.Context())
	simtest.Must(t, err)
	return layout
}

func writes(sim *winsim.System) int {
	calls := sim.Calls()
	return calls["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"] + calls["IOCTL_DISK_CREATE_DISK"] +
		calls["IOCTL_DISK_SET_DISK_ATTRIBUTES"]
}

type part struct {
	Type        winid.GUID
	Start, End  int64
	Attributes  uint64
	Name        string
	HasUniqueID bool
}

func parts(l *win.DriveLayout) (p []part) {
	for _, e := range l.Partitions {
		p = append(p, part{e.Type, e.StartingOffset, e.End(), e.Attributes, e.Name, !e.ID.IsZero()})
	}
	return p
}

// The places are those that Windows' own tools choose on disks of 16 GiB or more.
func TestPartitionDisk(t *testing.T) {
	for _, c := range []struct {
		name       string
		sectorSize uint32
		automatic  bool // CREATE_DISK makes the reserved partition
		usable     int64
	}{
		{"512-byte sectors", 512, false, 34 * 512},
		{"4096-byte sectors", 4096, false, 6 * 4096},
		{"automatic reserved partition", 512, true, 34 * 512},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim, ops := newDiskNode(t)
			simtest.Must(t, sim.SetSettings(winsim.Settings{AutomaticMSR: c.automatic}))
			n := attach(t, sim, winsim.DiskSpec{SectorSize: c.sectorSize})
			simtest.Must(t, ops.PartitionDisk(t.Context(), n))
			layout := layoutOf(t, sim, n)
			want := []part{
				{win.PartitionTypeMicrosoftReserved, c.usable, 16 << 20, 0, "Microsoft reserved partition", true},
				{win.PartitionTypeBasicData, 16 << 20, 10*gibibyte - 1<<20, win.GPTAttributeNoDriveLetter, "Basic data partition",
					true},
			}
			simtest.Want(t, "partitions", parts(layout), want)
			if volumes := sim.VolumesOfDisk(n); len(volumes) != 1 {
				t.Errorf("the volumes are %q right after the call", volumes)
			}

			before := writes(sim)
			if err := ops.PartitionDisk(t.Context(), n); err != nil {
				t.Fatalf("the second time: %v", err)
			}
			if diff := cmp.Diff(layout, layoutOf(t, sim, n)); diff != "" || writes(sim) != before {
				t.Errorf("the second time wrote to the disk:\n%s", diff)
			}
		})
	}
}

func TestPartitionDiskOffline(t *testing.T) {
	t.Run("a raw disk is brought online", func(t *testing.T) {
		sim, ops := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
		if online, err := ops.GetDiskState(t.Context(), n); err != nil || !online {
			t.Errorf("online is %v, %v", online, err)
		}
		simtest.Want(t, "volumes of the disk", len(sim.VolumesOfDisk(n)), 1)
	})
	// Whether it shows its table or has to go online for that.
	for _, hidden := range hidden {
		t.Run(fmt.Sprint("a partitioned disk stays as it is", hidden), func(t *testing.T) {
			sim, ops := newDiskNode(t)
			n := attach(t, sim, winsim.DiskSpec{})
			simtest.Must(t, errors.Join(ops.PartitionDisk(t.Context(), n), ops.SetDiskState(t.Context(), n, false)))
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: hidden}))
			before := writes(sim)
			simtest.Must(t, ops.PartitionDisk(t.Context(), n))
			if online, err := ops.GetDiskState(t.Context(), n); err != nil || online ||
				hidden == settings.OfflineShown && writes(sim) != before {
				t.Errorf("online is %v, %v; %d writes", online, err, writes(sim)-before)
			}
		})
	}
}

func TestPartitionDiskRefusesForeignData(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{})
	plant(t, sim, n, 0, "XFSB")
	err := ops.PartitionDisk(t.Context(), n)
	simtest.WantErrorOf(t, "a disk with XFS", err, csiproxy.ErrFailedPrecondition, "XFS")
	simtest.Want(t, "style of the disk", layoutOf(t, sim, n).Style, win.StyleRAW)
	simtest.WantErrorOf(t, "with AllowRecognizedData",
		groupsOf(t, sim, nodeops.Options{AllowRecognizedData: true}).Disks.PartitionDisk(t.Context(), n), nil)
}

func TestPartitionDiskTakesLeftovers(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{})
	plant(t, sim, n, 0, strings.Repeat("leftovers of a recycled disk ", 1000))
	simtest.WantError(t, ops.PartitionDisk(t.Context(), n), nil)
}

func plant(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber, offset int64, s string) {
	t.Helper()
	simtest.Must(t, sim.WriteImage(n, []byte(s), offset))
}

// mbr is a boot sector with one partition, or none if kind is 0.
func mbr(kind byte) string {
	b := make([]byte, 512)
	b[510], b[511] = 0x55, 0xAA
	if kind != 0 {
		copy(b[446:], []byte{0, 0, 0, 0, kind, 0, 0, 0, 0, 8, 0, 0, 0, 0, 16, 0}) // from 1 MiB, 512 MiB
	}
	copy(b[440:], "\x11\x22\x33\x44")
	return string(b)
}

func TestPartitionDiskOnMBR(t *testing.T) {
	sim, ops := newDiskNode(t)
	with, without := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
	plant(t, sim, with, 0, mbr(7))
	plant(t, sim, without, 0, mbr(0))
	simtest.Must(t, ops.Rescan(t.Context()))
	simtest.WantErrorOf(t, "with a partition", ops.PartitionDisk(t.Context(), with), nil)
	simtest.WantErrorOf(t, "without partitions", ops.PartitionDisk(t.Context(), without), csiproxy.ErrFailedPrecondition)
}

func TestPartitionDiskTooSmall(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{SizeBytes: 17 << 20})
	simtest.WantErrorOf(t, "17 MiB", ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
	simtest.Partition(t, sim, n, 0)
	simtest.WantErrorOf(t, "17 MiB with a GPT", ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
}

// A volume that automatic mounting has left offline is brought online, and taken offline before only if that has no effect, as
// public code does. One that is online isn't even opened: somebody may be using it.
func TestPartitionDiskWithoutAutomount(t *testing.T) {
	online, offline := win.IoctlVolumeOnline.String(), win.IoctlVolumeOffline.String()
	for name, c := range map[string]struct {
		settings winsim.Settings
		ignored  int // how often IOCTL_VOLUME_ONLINE has no effect
		want     []string
	}{
		"off":                        {winsim.Settings{NoAutomount: true}, 0, []string{online}},
		"off, at the second attempt": {winsim.Settings{NoAutomount: true}, 1, []string{online, offline, online}},
		"a moment after the name":    {winsim.Settings{NamedBeforeOnline: true}, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			sim, _ := newDiskNode(t)
			simtest.Must(t, sim.SetSettings(c.settings))
			var told []string
			ops := groupsOf(t, simtest.Controlled{System: sim, Answer: func(_ string, code win.IoctlCode, _ []byte,
				do func() (int, error)) (int, error) {
				if code == win.IoctlVolumeOnline || code == win.IoctlVolumeOffline {
					told = append(told, code.String())
				}
				if code == win.IoctlVolumeOnline && c.ignored > 0 {
					c.ignored--
					return 0, nil
				}
				return do()
			}}, nodeops.Options{}).Disks
			n := attach(t, sim, winsim.DiskSpec{})
			for _, want := range [][]string{c.want, nil} {
				told = nil
				simtest.Must(t, ops.PartitionDisk(t.Context(), n))
				simtest.Want(t, name+": calls", told, want)
			}
			simtest.WantErrorOf(t, name+": its volume can't be used",
				sim.FormatVolume(t.Context(), sim.VolumesOfDisk(n)[0], win.FormatOptions{FileSystem: "NTFS"}), nil)
		})
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: time.Hour})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		n := attach(t, sim, winsim.DiskSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		simtest.WantError(t, ops.PartitionDisk(ctx, n), context.DeadlineExceeded)
	})
}

func TestUnknownDisk(t *testing.T) {
	_, ops := newDiskNode(t)
	ctx := t.Context()
	const n = 77
	_, statsErr := ops.GetDiskStats(ctx, n)
	_, stateErr := ops.GetDiskState(ctx, n)
	for name, err := range map[string]error{
		"PartitionDisk": ops.PartitionDisk(ctx, n), "SetDiskState": ops.SetDiskState(ctx, n, true),
		"GetDiskStats": statsErr, "GetDiskState": stateErr,
	} {
		if !errors.Is(err, csiproxy.ErrNotFound) || !strings.HasPrefix(err.Error(), name+" disk 77: ") {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

func TestSetDiskState(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
	for _, online := range []bool{true, true, false, false, true} {
		simtest.Must(t, ops.SetDiskState(t.Context(), n, online))
		if got, err := ops.GetDiskState(t.Context(), n); err != nil || got != online {
			t.Fatalf("the state is %v, %v after it was set to %v", got, err, online)
		}
	}
	// A disk that went online is writable.
	simtest.WantError(t, ops.PartitionDisk(t.Context(), n), nil)
	if err := ops.SetDiskState(t.Context(), 0, false); err == nil {
		t.Error("the disk of Windows itself went offline")
	}
}

func TestSetDiskStateReturnsWhenVolumesAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: 100 * time.Millisecond})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		n := attach(t, sim, winsim.DiskSpec{})
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
		for _, online := range []bool{false, true} {
			simtest.Must(t, ops.SetDiskState(t.Context(), n, online))
			if got := len(sim.VolumesOfDisk(n)) == 1; got != online {
				t.Errorf("online %v: the volume is there: %v", online, got)
			}
		}
	})
}

func TestGoingOfflineFlushesVolumes(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{})
	simtest.Must(t, ops.PartitionDisk(t.Context(), n))
	before := sim.Calls()["FlushFileBuffers"]
	simtest.Must(t, ops.SetDiskState(t.Context(), n, false))
	simtest.Want(t, "flushed volumes", sim.Calls()["FlushFileBuffers"]-before, 1)
}

// A disk that has just arrived may refuse for a moment.
func TestSetDiskStateRetriesOnAFreshDisk(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{Offline: true})
	simtest.Must(t, sim.Fail(winsim.Match{Call: "IOCTL_DISK_SET_DISK_ATTRIBUTES", Count: 2}, winerr.ErrorWriteProtect))
	simtest.WantError(t, ops.SetDiskState(t.Context(), n, true), nil)
}
