// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/published"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

func TestListDiskIDs(t *testing.T) {
	sim, ops := newDiskNode(t)
	ascii := func(s string) win.Identifier {
		return win.Identifier{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte(s)}
	}
	binary := win.Identifier{CodeSet: win.CodeSetBinary, Type: 3, ID: []byte{0x60, 0xAB, 0x01}}
	port := win.Identifier{CodeSet: win.CodeSetASCII, Association: win.AssociationPort, ID: []byte("port")}
	utf8 := win.Identifier{CodeSet: win.CodeSetUTF8, ID: []byte("utf8")}
	want := map[csiproxy.DiskNumber]published.DiskIDs{}
	for _, c := range []struct {
		spec winsim.DiskSpec
		want published.DiskIDs
	}{
		{winsim.DiskSpec{Serial: "  vol 1  ", Page83: []win.Identifier{ascii("Google  pvc-1 ")}},
			published.DiskIDs{Page83: "Google  pvc-1 ", SerialNumber: "vol 1"}},
		{winsim.DiskSpec{Serial: "s2", Page83: []win.Identifier{port, utf8, binary, ascii("later")}, Offline: true},
			published.DiskIDs{Page83: "60ab01", SerialNumber: "s2"}},
		{winsim.DiskSpec{Serial: "s3", Page83: []win.Identifier{port}}, published.DiskIDs{SerialNumber: "s3"}},
		{winsim.DiskSpec{Serial: "s4", Page83Error: winerr.ErrorInvalidFunction}, published.DiskIDs{SerialNumber: "s4"}},
		{winsim.DiskSpec{Serial: "s5", Page83Error: winerr.ErrorIODevice}, published.DiskIDs{SerialNumber: "s5"}},
		// over 4096 bytes
		{winsim.DiskSpec{Serial: "s6", Page83: slices.Repeat([]win.Identifier{port}, 300)}, published.DiskIDs{SerialNumber: "s6"}},
	} {
		want[attach(t, sim, c.spec)] = c.want
	}
	if _, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte, Serial: "path", MultipathMember: true}); err != nil {
		t.Fatal(err)
	}
	got, err := ops.ListDiskIDs(t.Context())
	simtest.Must(t, err)
	if _, ok := got[0]; !ok {
		t.Error("the system disk is missing")
	}
	delete(got, 0)
	simtest.Want(t, "ids", got, want)

	if n, err := ops.FindDiskByPage83(t.Context(), "60ab01"); err != nil || want[n].SerialNumber != "s2" {
		t.Errorf("FindDiskByPage83 gave %d, %v", n, err)
	}
	if _, err := ops.FindDiskByPage83(t.Context(), "60AB01"); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("FindDiskByPage83 of an unknown one gave %v", err)
	}
	if _, err := ops.FindDiskByPage83(t.Context(), ""); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("FindDiskByPage83 of nothing gave %v", err)
	}
}

// A disk that doesn't answer hides nothing of the one that has its number by now, whichever of the two is
// asked first.
func TestListDiskIDsOfOneNumber(t *testing.T) {
	for _, silentFirst := range []bool{false, true} {
		sim, ops := newDiskNode(t)
		one, two := csiproxy.DiskNumber(1), csiproxy.DiskNumber(2)
		// The interface goes by the place.
		first, second := &win.SCSIAddress{PortNumber: 4}, &win.SCSIAddress{PortNumber: 5}
		before := []winsim.DiskSpec{{Serial: "b", Number: &two, SCSI: first}, {Serial: "a", Number: &one, SCSI: second}}
		again := []winsim.DiskSpec{{Serial: "b", Number: &one, SCSI: first}, {Serial: "a", Number: &two, SCSI: second}}
		if silentFirst {
			slices.Reverse(before)
			slices.Reverse(again)
		}
		for _, spec := range before {
			attach(t, sim, spec)
		}
		_, err := ops.ListDiskIDs(t.Context())
		simtest.Must(t, err)
		simtest.Must(t, sim.DetachDisk(one))
		simtest.Must(t, sim.DetachDisk(two))
		for _, spec := range again {
			attach(t, sim, spec)
		}
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(two)}, winerr.ErrorIODevice))
		if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 2 || ids[one].SerialNumber != "b" {
			t.Errorf("%v, %v", ids, err)
		}
	}
}

// nvmePlace is the location text of an NVMe disk: that of its controller.
const nvmePlace = "Integrated : Bus 12606208 : Device 0 : Function 0 : Adapter 0"

// scratchSpace is the location text of a container's scratch space on Windows Server 2019.
const scratchSpace = `C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows\snapshots\136\sandbox.vhdx`

func TestListDiskLocations(t *testing.T) {
	sim, ops := newDiskNode(t)
	want := map[csiproxy.DiskNumber]published.DiskLocation{}
	for _, c := range []struct {
		spec winsim.DiskSpec
		want published.DiskLocation
	}{
		{winsim.DiskSpec{Location: "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 1 : Port 0 : Target 0 : " +
			"LUN 12"}, published.DiskLocation{Adapter: "1", Bus: "0", Target: "0", LUNID: "12"}},
		{winsim.DiskSpec{Location: "PCI Slot 3 : Adapter 0 : Port 0 : Target 1 : LUN 0"},
			published.DiskLocation{Adapter: "0", Target: "1", LUNID: "0"}},
		// Azure's data disk with LUN 2 has the NVMe namespace 4, which Windows presents as LUN 3.
		{winsim.DiskSpec{
			Location: nvmePlace, BusType: win.BusTypeNVMe, VendorID: "NVMe", ProductID: "MSFT NVMe Accele",
			SCSI: &win.SCSIAddress{PortNumber: 7, LUN: 3},
		}, published.DiskLocation{Adapter: "7", Target: "0", LUNID: "2"}},
		{winsim.DiskSpec{
			Location: nvmePlace, BusType: win.BusTypeNVMe, VendorID: "NVMe", ProductID: "Virtual_Disk NVM",
			SCSI: &win.SCSIAddress{PortNumber: 7, LUN: 1},
		}, published.DiskLocation{Adapter: "7", Target: "0", LUNID: "0"}},
		{winsim.DiskSpec{
			LocationError: winerr.ErrorNotSupported,
			SCSI:          &win.SCSIAddress{PortNumber: 4, PathID: 9, TargetID: 5, LUN: 255},
		}, published.DiskLocation{Adapter: "4", Target: "5", LUNID: "255"}},
		// A text of no known form, as VMware's, or one in UTF-16 that ends after its first character.
		{winsim.DiskSpec{Location: "SCSI0", SCSI: &win.SCSIAddress{PortNumber: 9, LUN: 3}},
			published.DiskLocation{Adapter: "9", Target: "0", LUNID: "3"}},
		{winsim.DiskSpec{Location: "I", SCSI: &win.SCSIAddress{PortNumber: 9, LUN: 4}},
			published.DiskLocation{Adapter: "9", Target: "0", LUNID: "4"}},
	} {
		want[attach(t, sim, c.spec)] = c.want
	}
	none := []csiproxy.DiskNumber{
		attach(t, sim, winsim.DiskSpec{LocationError: winerr.ErrorInvalidFunction, SCSIAddressError: winerr.ErrorInvalidFunction}),
		attach(t, sim, winsim.DiskSpec{Location: nvmePlace, BusType: win.BusTypeNVMe, ProductID: "Amazon Elastic B"}),
		attach(t, sim, winsim.DiskSpec{Location: nvmePlace, BusType: win.BusTypeNVMe, ProductID: "MSFT NVMe Accele",
			SCSI: &win.SCSIAddress{PortNumber: 8}}),
		// The scratch space of a container, which has a LUN that a data disk has, too.
		attach(t, sim, winsim.DiskSpec{Location: scratchSpace, BusType: win.BusTypeFileBackedVirtual,
			SCSI: &win.SCSIAddress{PortNumber: 5, LUN: 12}}),
		attach(t, sim, winsim.DiskSpec{Location: scratchSpace, SCSI: &win.SCSIAddress{PortNumber: 5, LUN: 13}}),
		attach(t, sim, winsim.DiskSpec{LocationError: winerr.ErrorNotSupported, BusType: win.BusTypeFileBackedVirtual,
			SCSI: &win.SCSIAddress{PortNumber: 5, LUN: 14}}),
		// Azure's temporary disk on a machine of generation 1.
		attach(t, sim, winsim.DiskSpec{Location: "PCI Slot 0 : Adapter 1 : Channel 1 : Device 0", BusType: win.BusTypeSAS,
			SCSI: &win.SCSIAddress{PortNumber: 6}}),
		attach(t, sim, winsim.DiskSpec{LocationError: winerr.ErrorNotSupported, BusType: win.BusTypeATA,
			SCSI: &win.SCSIAddress{PortNumber: 7}}),
		attach(t, sim, winsim.DiskSpec{Location: "Integrated : Adapter 0 : Port 0", BusType: 11,
			SCSI: &win.SCSIAddress{PortNumber: 9, LUN: 5}}),
		// Azure's temporary disk on a machine of generation 2.
		attach(t, sim, winsim.DiskSpec{SCSI: &win.SCSIAddress{LUN: 1},
			Location: "Integrated : Bus 0 : Device 63667 : Function 30746 : Adapter 0 : Port 0 : Target 0 : LUN 1"}),
		attach(t, sim, winsim.DiskSpec{LocationError: winerr.ErrorNotSupported, BusType: win.BusTypeATAPI,
			SCSI: &win.SCSIAddress{PortNumber: 7, PathID: 1}}),
	}
	got, err := ops.ListDiskLocations(t.Context())
	simtest.Must(t, err)
	for _, n := range none {
		if l, ok := got[n]; ok {
			t.Errorf("disk %d, which has no location of use, is listed: %+v", n, l)
		}
	}
	simtest.Want(t, "locations", got, want)
}

// An NVMe disk without a SCSI address, as under Server 2025's native driver, has no LUN: a guess could
// mean another disk.
func TestNVMeWithoutSCSI(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{ProductID: "MSFT NVMe Accele", SCSIAddressError: winerr.ErrorInvalidFunction,
		NVMe: &hardware.NVMe{Controller: "azure", Namespace: 12}})
	locations, err := ops.ListDiskLocations(t.Context())
	simtest.Must(t, err)
	if at, listed := locations[n]; listed {
		t.Errorf("it is listed at %+v", at)
	}
	described, err := ops.Describe(t.Context(), csiproxy.Selector{Number: &n})
	simtest.Must(t, err)
	simtest.Want(t, "location", described[0].Location, csiproxy.Location{Text: described[0].Location.Text})
}

func TestRescan(t *testing.T) {
	sim, ops := newDiskNode(t)
	grown, removed := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
	if _, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte, Serial: "new", NeedsRescan: true}); err != nil {
		t.Fatal(err)
	}
	simtest.Must(t, errors.Join(sim.GrowDisk(grown, 20*gibibyte), sim.DetachDisk(removed)))
	if stats, err := ops.GetDiskStats(t.Context(), grown); err != nil || stats.SizeBytes != 10*gibibyte {
		t.Errorf("before: %+v, %v", stats, err)
	}
	simtest.Must(t, ops.Rescan(t.Context()))
	ids, err := ops.ListDiskIDs(t.Context())
	simtest.Must(t, err)
	found := false
	for _, id := range ids {
		found = found || id.SerialNumber == "new"
	}
	if !found {
		t.Error("the new disk isn't seen")
	}
	if stats, err := ops.GetDiskStats(t.Context(), grown); err != nil || stats.SizeBytes != 20*gibibyte {
		t.Errorf("after: %+v, %v", stats, err)
	}
}

func TestRescanWaitsForArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{DiskArrival: 20 * time.Millisecond})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		if _, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte, NeedsRescan: true}); err != nil {
			t.Fatal(err)
		}
		simtest.Must(t, ops.Rescan(t.Context()))
		if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 2 {
			t.Errorf("after the rescan: %v, %v", ids, err)
		}
	})
}

func TestRescanPassesOverASickDisk(t *testing.T) {
	sim, ops := newDiskNode(t)
	sick, grown := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
	simtest.Must(t, sim.GrowDisk(grown, 20*gibibyte))
	simtest.Must(t,
		sim.Fail(winsim.Match{Call: "IOCTL_DISK_UPDATE_DRIVE_SIZE", Object: win.PhysicalDrive(sick)},
			winerr.ErrorIODevice))
	simtest.Must(t, ops.Rescan(t.Context()))
	if stats, err := ops.GetDiskStats(t.Context(), grown); err != nil || stats.SizeBytes != 20*gibibyte {
		t.Errorf("the healthy disk: %+v, %v", stats, err)
	}
}

// A disk that says that it has left while it is asked isn't listed with a part of what it is, which
// could be taken for another disk.
func TestDiskThatLeavesIsNotListedInPart(t *testing.T) {
	for _, bus := range []win.BusType{win.BusTypeSAS, win.BusTypeNVMe} {
		sim, _ := newDiskNode(t)
		n := attach(t, sim, winsim.DiskSpec{BusType: bus, Serial: "vol-1"})
		// What is known of the disk, as two texts; "" if it isn't listed, or with an error.
		listed := func() (texts [2]string) {
			ops := groupsOf(t, sim, nodeops.Options{}).Disks
			locations, err := ops.ListDiskLocations(t.Context())
			simtest.Must(t, err)
			if location, ok := locations[n]; ok {
				texts[0] = fmt.Sprint(location)
			}
			all, err := ops.Hardware(t.Context(), csiproxy.Selector{})
			simtest.Must(t, err)
			for _, d := range all {
				if d.Number == n && d.Error == "" {
					texts[1] = fmt.Sprint(d, *d.Location.SCSI)
				}
			}
			return texts
		}
		whole := listed()
		for _, call := range []string{win.IoctlStorageQueryProperty.String(), win.IoctlScsiGetAddress.String()} {
			for skip, fired := 0, true; fired; skip++ {
				hits, err := sim.AddRule(winsim.Match{Call: call, Object: win.PhysicalDrive(n), Skip: skip, Count: 1,
					Fires: winsim.MayFire}, winsim.Effect{Fail: winerr.ErrorDeviceNotConnected})
				simtest.Must(t, err)
				for i, got := range listed() {
					if got != "" && got != whole[i] {
						t.Errorf("without %d of %s: %s, want %s", skip, call, got, whole[i])
					}
				}
				fired = hits() > 0
				sim.ResetRules()
			}
		}
	}
}
