// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// All that a disk tells is described, and what it refuses to tell hides nothing else.
func TestDescribeDisk(t *testing.T) {
	const place = "Integrated : Adapter 1 : Port 2 : Target 3 : LUN 4"
	scsi := func(adapter byte) *win.SCSIAddress {
		return &win.SCSIAddress{PortNumber: adapter, PathID: 2, TargetID: 3, LUN: 4}
	}
	address := func(adapter byte) *csiproxy.SCSIAddress {
		return &csiproxy.SCSIAddress{Adapter: adapter, Port: 2, Target: 3, LUN: 4}
	}
	id := func(codeSet win.CodeSet, kind win.IdentifierType, id string) win.Identifier {
		return win.Identifier{CodeSet: codeSet, Type: kind, ID: []byte(id)}
	}
	eui16 := "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
	const eui16Text = "000102030405060708090a0b0c0d0e0f"
	gpt := func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { simtest.Partition(t, sim, n, 1) }
	sim, ops := newDiskNode(t)
	var wanted []csiproxy.Disk
	for _, c := range []struct {
		spec    winsim.DiskSpec
		prepare func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber)
		want    csiproxy.Disk
	}{
		{winsim.DiskSpec{Serial: " a ", VendorID: "Vendor ", ProductID: " Product", BusType: 10,
			Location: place, SCSI: scsi(1),
			Page83: []win.Identifier{
				id(win.CodeSetASCII, 0, "vendor \x00"), id(win.CodeSetUTF8, 1, "t10 "), id(win.CodeSetBinary, 2, eui16),
				id(win.CodeSetBinary, 3, "\x60\xAB"), id(win.CodeSetUTF8, 8, "iqn"), id(win.CodeSetBinary, 4, "\x01"),
				{CodeSet: win.CodeSetBinary, Type: 3, Association: win.AssociationPort, ID: []byte{1}},
			}}, gpt, csiproxy.Disk{
			SerialNumber: "a", Vendor: "Vendor", Product: "Product", Bus: csiproxy.BusSAS, Online: true,
			Location: csiproxy.Location{SCSI: address(1), Text: place},
			Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierVendorSpecific, Text: "vendor"}, {Kind: csiproxy.IdentifierT10, Text: "t10"},
				{Kind: csiproxy.IdentifierEUI64, Text: eui16Text}, {Kind: csiproxy.IdentifierNAA, Text: "60ab"},
				{Kind: csiproxy.IdentifierSCSIName, Text: "iqn"}, {Kind: csiproxy.IdentifierOther, Text: "01"}},
			Style: csiproxy.PartitionStyleGPT, DiskID: "of the table", Partitions: []csiproxy.Partition{{Number: 1, OffsetBytes: 16 << 20,
				SizeBytes: gibibyte, Data: true, VolumeID: "of the partition", FileSystem: csiproxy.NoFileSystem}},
		}},
		{winsim.DiskSpec{BusType: win.BusTypeNVMe, SCSI: scsi(2), Location: place, VendorID: "NVMe", ProductID: "p",
			Page83: []win.Identifier{id(win.CodeSetBinary, 2, eui16)},
			NVMe:   &hardware.NVMe{Controller: "b", Namespace: 5, NGUID: [16]byte([]byte(eui16)), EUI64: [8]byte{1, 2}}},
			nil, csiproxy.Disk{
				SerialNumber: "0001_0203_0405_0607_0809_0A0B_0C0D_0E0F.", Vendor: "NVMe", Product: "p",
				Bus: csiproxy.BusNVMe, Online: true, Style: csiproxy.PartitionStyleRAW,
				Location: csiproxy.Location{SCSI: address(2), Text: place, NVMeNamespace: 5},
				Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierNGUID, Text: eui16Text},
					{Kind: csiproxy.IdentifierEUI64, Text: "0102000000000000"}},
			}},
		{winsim.DiskSpec{Serial: "c", BusType: 99, Page83Error: winerr.ErrorInvalidFunction, VendorID: "v", ProductID: "p",
			LocationError: winerr.ErrorInvalidFunction, SCSIAddressError: winerr.ErrorInvalidFunction, Offline: true, ReadOnly: true},
			func(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) { plant(t, sim, n, 0, mbr(7)) }, csiproxy.Disk{
				SerialNumber: "c", Vendor: "v", Product: "p", Bus: "bus type 99", ReadOnly: true,
				OfflineReason: "reason unknown, often the SAN policy or an administrator", Style: csiproxy.PartitionStyleMBR, DiskID: "44332211",
				Partitions: []csiproxy.Partition{{Number: 1, OffsetBytes: 1 << 20, SizeBytes: gibibyte / 2, Data: true}},
			}},
	} {
		n := attach(t, sim, c.spec)
		if c.prepare != nil {
			c.prepare(t, sim, n)
		}
		sim.Settle()
		c.want.Number, c.want.SizeBytes = n, 10*gibibyte
		if c.want.Style == csiproxy.PartitionStyleGPT {
			c.want.DiskID = layoutOf(t, sim, n).DiskID.String()
			c.want.Partitions[0].VolumeID = csiproxy.VolumeID(sim.VolumesOfDisk(n)[0])
		}
		wanted = append(wanted, c.want)
	}
	simtest.Must(t, ops.Rescan(t.Context()))
	for range 2 { // the second time, some is remembered
		got, err := ops.Describe(t.Context(), csiproxy.Selector{})
		simtest.Must(t, err)
		if diff := cmp.Diff(wanted, got[1:]); diff != "" || !strings.Contains(got[0].SystemReason, `C:\Windows`) {
			t.Errorf("the disk of Windows is so since %q; the others -want +got:\n%s", got[0].SystemReason, diff)
		}
	}
	for _, want := range wanted {
		for _, selector := range []csiproxy.Selector{{Identifier: "x"}, {AzureLUN: new(uint32)}, {SerialNumber: "x"}} {
			h, err := opendisk.Open(t.Context(), sim, want.Number, win.AccessNone)
			simtest.Must(t, err)
			got, err := ops.HardwareOf(t.Context(), h, selector)
			simtest.Must(t, err)
			h.Close()
			hasIdentifiers := len(got.Identifiers) > 0 || len(want.Identifiers) == 0
			location := csiproxy.Location{}
			if selector.Identifier != "" || selector.AzureLUN != nil {
				location = csiproxy.Location{SCSI: want.SCSI, NVMeNamespace: want.NVMeNamespace}
			}
			if selector.AzureLUN != nil { // Azure's controllers are told by the text
				location = want.Location
			}
			if diff := cmp.Diff(location, got.Location); diff != "" || got.SerialNumber != want.SerialNumber ||
				selector.Identifier != "" && !hasIdentifiers {
				t.Errorf("for %v: %+v, location -want +got:\n%s", selector, got.Identifiers, diff)
			}
		}
	}
}

// What a sick disk doesn't tell is its error, and isn't shown as if there were none.
func TestDescribeASickDisk(t *testing.T) {
	for call, of := range map[string]string{
		"IOCTL_DISK_GET_DRIVE_GEOMETRY_EX": "disk", "IOCTL_DISK_GET_DISK_ATTRIBUTES": "disk",
		"IOCTL_DISK_GET_DRIVE_LAYOUT_EX": "disk", "GetVolumeNameForVolumeMountPointW": "partition",
		"GetVolumePathNamesForVolumeNameW": "partition", "GetVolumeInformationW": "partition",
	} {
		for _, errno := range []winerr.Errno{winerr.ErrorIODevice, winerr.ErrorDeviceNotConnected} {
			sim, ops := newDiskNode(t)
			n := formattedDisk(t, sim, winsim.DiskSpec{Serial: "sick"})
			object := win.PhysicalDrive(n)
			switch call {
			case "GetVolumeNameForVolumeMountPointW":
				object = "Harddisk1"
			case "GetVolumePathNamesForVolumeNameW", "GetVolumeInformationW":
				object = sim.VolumesOfDisk(n)[0]
			}
			simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: object}, errno))
			all, err := ops.Describe(t.Context(), csiproxy.Selector{SerialNumber: "sick"})
			simtest.Must(t, err)
			var got []csiproxy.Disk
			for _, d := range all {
				if d.Number == n {
					got = append(got, d)
				}
			}
			left := errno == winerr.ErrorDeviceNotConnected && call != "GetVolumeNameForVolumeMountPointW"
			switch {
			case left && len(got) != 0:
				t.Errorf("%s says that it has left, and it is %+v", call, got)
			case left:
			case len(got) != 1:
				t.Errorf("%s fails: the disks are %+v", call, all)
			case of == "disk" && !strings.Contains(got[0].Error, "1117"):
				t.Errorf("%s fails: its error is %q", call, got[0].Error)
			case of == "partition" && got[0].Partitions[0].Error == "":
				t.Errorf("%s fails: its partitions are %+v", call, got[0].Partitions)
			}
		}
	}
}

// lists are the calls that list disks: each gives what it tells of each disk as a text.
var lists = map[string]func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error){
	"ListDiskIDs": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error) {
		return texts(ops.ListDiskIDs(ctx))
	},
	"ListDiskLocations": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error) {
		return texts(ops.ListDiskLocations(ctx))
	},
	"Hardware": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error) {
		return textsOf(ops.Hardware(ctx, csiproxy.Selector{}))
	},
	"Hardware by identifier": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error) {
		return textsOf(ops.Hardware(ctx, csiproxy.Selector{Identifier: "0102"})) // which no disk has, so all are listed
	},
	"Describe": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]string, error) {
		return textsOf(ops.Describe(ctx, csiproxy.Selector{}))
	},
}

func texts[T any](all map[csiproxy.DiskNumber]T, err error) (map[csiproxy.DiskNumber]string, error) {
	texts := map[csiproxy.DiskNumber]string{}
	for n, one := range all {
		text, _ := json.Marshal(one)
		texts[n] = string(text)
	}
	return texts, err
}

func textsOf(all []csiproxy.Disk, err error) (map[csiproxy.DiskNumber]string, error) {
	disks := map[csiproxy.DiskNumber]csiproxy.Disk{}
	for _, d := range all {
		disks[d.Number] = d
	}
	return texts(disks, err)
}

// A disk may be pulled between any two calls: it is listed as a whole, with an error, or not at all, and
// the others are as they were. So they are for who gives up, or he gets an error.
func TestListsSurviveARemoval(t *testing.T) {
	nvme := winsim.DiskSpec{BusType: win.BusTypeNVMe, ProductID: "MSFT NVMe Accele",
		NVMe: &hardware.NVMe{Controller: "c", Namespace: 2, EUI64: [8]byte{1, 2}}}
	for name, list := range lists {
		for _, c := range []struct {
			spec    winsim.DiskSpec
			givenUp bool
		}{{}, {spec: nvme}, {givenUp: true}} {
			for at, more := 0, true; more && !t.Failed(); at++ {
				sim, ops := newDiskNode(t)
				attach(t, sim, winsim.DiskSpec{})
				leaves := formattedDisk(t, sim, c.spec)
				before, err := list(t.Context(), ops)
				if err != nil || before[leaves] == "" {
					t.Fatalf("%s is %v, %v", name, before, err)
				}
				ops = groupsOf(t, sim, nodeops.Options{}).Disks // which remembers nothing
				var happened atomic.Bool
				ctx, cancel := context.WithCancel(t.Context())
				simtest.BeforeCalls(sim, func(i int, _ winsim.Call) {
					if i != at {
						return
					}
					if happened.Store(true); c.givenUp {
						cancel()
					} else {
						simtest.Must(t, sim.DetachDisk(leaves))
					}
				})
				after, err := list(ctx, ops)
				cancel()
				sim.OnCall(nil)
				more = happened.Load()
				if c.givenUp && errors.Is(err, context.Canceled) {
					continue
				}
				if !c.givenUp && (after[leaves] == "" || strings.Contains(after[leaves], `"error":`)) {
					delete(before, leaves)
					delete(after, leaves)
				}
				if diff := cmp.Diff(before, after); diff != "" || err != nil {
					t.Errorf("%s, given up %t, at call %d: %v; -want +got:\n%s", name, c.givenUp, at, err, diff)
				}
			}
		}
	}
}

// A list of disks has a few of the mount points of a volume, however many there are: watchers keep lists.
func TestDiskWithManyMountPoints(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	n, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	volume, number := simtest.Volume(t, sim)
	mounted := 0
	for _, step := range []struct{ mounted, listed int }{{64, 64}, {65, 64}, {100, 64}} {
		for i := mounted; i < step.mounted; i++ {
			simtest.Mount(t, sim, fmt.Sprintf(`%s\m%d`, simtest.Kubelet, i), volume)
		}
		mounted = step.mounted
		all, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{Number: &number})
		simtest.Must(t, err)
		for _, p := range all[0].Partitions {
			if string(p.VolumeID) == volume && (len(p.Paths) != step.listed || (p.Error != "") != (step.mounted > step.listed)) {
				t.Errorf("%d of %d are listed: %q", len(p.Paths), step.mounted, p.Error)
			}
		}
	}
}
