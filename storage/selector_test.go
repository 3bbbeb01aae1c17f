// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
)

// What the field's drivers look for, and disks as they say of themselves there.
func TestSelectorOfEachCloud(t *testing.T) {
	const uuid = "0f2f0fd4-4d35-4e6a-9c1d-5a1c2b3d4e5f"
	lun := func(lun uint8) storage.Location {
		return storage.Location{SCSI: &storage.SCSIAddress{Adapter: 1, LUN: lun}}
	}
	namespace := func(id uint32) storage.Location {
		return storage.Location{SCSI: &storage.SCSIAddress{LUN: uint8(id - 1)}, NVMeNamespace: id}
	}
	target := iscsi.IQN("iqn.2010-10.org.openstack:volume-1")
	for name, test := range map[string]struct {
		selector storage.Selector
		disk     storage.Disk
		others   []storage.Disk
	}{
		"EBS on Nitro": {
			storage.Selector{SerialNumber: "vol-0abc1234def567890"},
			storage.Disk{Bus: storage.BusNVMe, SerialNumber: "vol0abc1234def567890_00000001.", Product: "Amazon Elastic B",
				Location: namespace(1)},
			[]storage.Disk{
				{Bus: storage.BusNVMe, SerialNumber: "vol0abc1234def56789_00000001."},
				{Bus: storage.BusNVMe, SerialNumber: "vol0abc1234def567890f_00000001."},
				{Bus: storage.BusNVMe, SerialNumber: "AWS1234_00000001."}, {},
			},
		},
		"EBS on Xen": {
			storage.Selector{SerialNumber: "vol-0abc1234def567890"},
			storage.Disk{Bus: storage.BusSCSI, SerialNumber: "vol0abc1234def567890", Vendor: "AMAZON", Product: "PVDISK",
				Location: lun(0)},
			[]storage.Disk{{Bus: storage.BusSCSI, SerialNumber: "vol0abc1234def567891"}},
		},
		"Azure by SCSI": {
			storage.Selector{LUN: pointer(uint32(3)), Vendor: "Msft", Product: "Virtual Disk"},
			storage.Disk{Bus: storage.BusSAS, Vendor: "Msft    ", Product: "Virtual Disk", Location: lun(3)},
			[]storage.Disk{
				{Vendor: "Msft", Product: "Virtual Disk", Location: lun(2)}, {Vendor: "Msft", Product: "Virtual Disk"},
				{Vendor: "QEMU", Product: "HARDDISK", Location: lun(3)}, {Location: lun(3)},
				{Bus: storage.BusFile, Vendor: "Msft", Product: "Virtual Disk", Location: lun(3)},
			},
		},
		"Azure's LUN, by SCSI": {
			storage.Selector{AzureLUN: pointer(uint32(1))},
			storage.Disk{Bus: storage.BusSAS, Vendor: "Msft", Product: "Virtual Disk", Location: lun(1)},
			[]storage.Disk{
				{Vendor: "Msft", Product: "Virtual Disk", Location: storage.Location{SCSI: &storage.SCSIAddress{LUN: 1}}},
				{Vendor: "Msft", Product: "Virtual Disk", Location: storage.Location{SCSI: lun(1).SCSI,
					Text: "Integrated : Bus 0 : Device 63667 : Function 30746 : Adapter 1 : Port 0 : Target 0 : LUN 1"}},
				{Vendor: "Msft", Product: "Virtual Disk", Location: lun(3)}, {Vendor: "Msft", Product: "Virtual Disk"},
				{Vendor: "QEMU", Product: "Virtual Disk", Location: lun(1)}, {Vendor: "Msft", Product: "Other", Location: lun(1)},
				{Bus: storage.BusFile, Vendor: "Msft", Product: "Virtual Disk", Location: lun(1)},
			},
		},
		"Azure's LUN, by SCSI, on a controller of data disks that is the first adapter": {
			storage.Selector{AzureLUN: pointer(uint32(1))},
			storage.Disk{Bus: storage.BusSAS, Vendor: "Msft", Product: "Virtual Disk", Location: storage.Location{
				SCSI: &storage.SCSIAddress{LUN: 1},
				Text: "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 0 : Port 0 : Target 0 : LUN 1"}}, nil,
		},
		"Azure's LUN, by NVMe": {
			storage.Selector{AzureLUN: pointer(uint32(3))},
			storage.Disk{Bus: storage.BusNVMe, Vendor: "NVMe", Product: "MSFT NVMe Accele", Location: namespace(5)},
			[]storage.Disk{
				{Bus: storage.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(4)},
				{Bus: storage.BusNVMe, Product: "Microsoft NVMe D", Location: namespace(5)},
				{Bus: storage.BusNVMe, Vendor: "Msft", Product: "Virtual Disk", Location: namespace(4)},
			},
		},
		"Azure's LUN, by NVMe, as Windows names the disk": {
			storage.Selector{AzureLUN: pointer(uint32(0))},
			storage.Disk{Bus: storage.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk NVMe Premium", Location: namespace(2)},
			[]storage.Disk{
				{Bus: storage.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk NVMe Premium", Location: namespace(1)},
				{Bus: storage.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk", Location: namespace(2)},
			},
		},
		"a file's LUN, with its adapter": {
			storage.Selector{Adapter: pointer(uint32(1)), LUN: pointer(uint32(3))},
			storage.Disk{Bus: storage.BusFile, Location: lun(3)}, []storage.Disk{{Bus: storage.BusFile, Location: lun(2)}},
		},
		"a controller's LUN": {
			storage.Selector{Adapter: pointer(uint32(1)), Port: pointer(uint32(0)), LUN: pointer(uint32(3))},
			storage.Disk{Location: lun(3)},
			[]storage.Disk{
				{Location: lun(2)}, {Location: storage.Location{SCSI: &storage.SCSIAddress{Adapter: 2, LUN: 3}}}, {},
				{Location: storage.Location{SCSI: &storage.SCSIAddress{Adapter: 1, Port: 1, LUN: 3}}},
				{Location: storage.Location{SCSI: &storage.SCSIAddress{Adapter: 1, LUN: 3}, NVMeNamespace: 4}},
			},
		},
		"a controller's namespace": {
			storage.Selector{Adapter: pointer(uint32(0)), NVMeNamespace: 2},
			storage.Disk{Location: namespace(2)},
			[]storage.Disk{{Location: namespace(1)}, {Location: lun(1)}},
		},
		"Azure by NVMe, by its namespace": {
			storage.Selector{NVMeNamespace: 5, Product: "MSFT NVMe Accelerator"},
			storage.Disk{Bus: storage.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(5)},
			[]storage.Disk{{Bus: storage.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(3)},
				{Product: "MSFT NVMe Accele", Location: lun(5)}},
		},
		"GCE by SCSI": {
			storage.Selector{Identifier: "pvc-6a1c2d3e"},
			storage.Disk{Identifiers: []storage.Identifier{{Kind: storage.NAA, Text: "6001"},
				{Kind: storage.T10, Text: "Google  pvc-6a1c2d3e"}}},
			[]storage.Disk{
				{Identifiers: []storage.Identifier{{Kind: storage.T10, Text: "Google  pvc-6a1c2d3e0"}}},
				{Identifiers: []storage.Identifier{{Kind: storage.SCSIName, Text: "Google  pvc-6a1c2d3e"}}}, {},
			},
		},
		"GCE by SCSI, with the vendor": {
			storage.Selector{Identifier: "Google  pvc-6a1c2d3e"},
			storage.Disk{Identifiers: []storage.Identifier{{Kind: storage.T10, Text: "Google  pvc-6a1c2d3e"}}},
			[]storage.Disk{{Identifiers: []storage.Identifier{{Kind: storage.T10, Text: "Other   pvc-6a1c2d3e"}}}},
		},
		"GCE by NVMe": {
			storage.Selector{SerialNumber: "pvc-6a1c2d3e"},
			storage.Disk{Bus: storage.BusNVMe, SerialNumber: "pvc-6a1c2d3e_00000003.", Location: namespace(3)},
			[]storage.Disk{{Bus: storage.BusNVMe, SerialNumber: "pvc-6a1c2d3e_x."}, {Bus: storage.BusNVMe, SerialNumber: "pvc"},
				{SerialNumber: "pvc-6a1c2d3e_00000003."}},
		},
		"vSphere": {
			storage.Selector{Identifier: "6000C29f-0123-4567-89ab-cdef01234567"},
			storage.Disk{Identifiers: []storage.Identifier{{Kind: storage.NAA, Text: "6000c29f0123456789abcdef01234567"}}},
			[]storage.Disk{{Identifiers: []storage.Identifier{{Kind: storage.NAA, Text: "6000c29f0123456789abcdef01234568"}}}},
		},
		"iSCSI": {
			storage.Selector{ISCSI: &storage.ISCSISelector{Portal: iscsi.Portal{Address: "10.0.0.1"}, IQN: target, LUN: 2}},
			storage.Disk{Bus: storage.BusISCSI, ISCSI: &storage.ISCSILUN{IQN: "IQN.2010-10.org.openstack:volume-1", LUN: 2}},
			[]storage.Disk{{ISCSI: &storage.ISCSILUN{IQN: target, LUN: 1}},
				{ISCSI: &storage.ISCSILUN{IQN: target + "0", LUN: 2}}, {Location: lun(2)}},
		},
		"Cinder by virtio": {
			storage.Selector{SerialNumber: uuid},
			storage.Disk{Bus: storage.BusSCSI, SerialNumber: uuid[:20]},
			[]storage.Disk{{SerialNumber: uuid[:19]}, {SerialNumber: uuid[:19] + "0"}, {SerialNumber: uuid[1:21]}},
		},
		"Cinder by virtio-scsi": {
			storage.Selector{SerialNumber: uuid},
			storage.Disk{Bus: storage.BusSAS, SerialNumber: uuid, Vendor: "QEMU"},
			[]storage.Disk{{SerialNumber: uuid + "0"}},
		},
		"a number": {
			storage.Selector{Number: pointer(disk.Number(2))},
			storage.Disk{Number: 2},
			[]storage.Disk{{}, {Number: 20}},
		},
	} {
		if err := test.selector.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.selector.Matches(test.disk) {
			t.Errorf("%s: %v doesn't match", name, test.selector)
		}
		for _, other := range test.others {
			if test.selector.Matches(other) {
				t.Errorf("%s: %v matches %+v", name, test.selector, other)
			}
		}
		if !(storage.Selector{}).Matches(test.disk) {
			t.Errorf("%s: the zero value doesn't match", name)
		}
	}
}

// The namespace of the disk of Windows, less two, is no LUN.
func TestAzureLUNOfWindowsDisk(t *testing.T) {
	d := storage.Disk{Product: "MSFT NVMe Accele", Location: storage.Location{NVMeNamespace: 1}}
	if lun, ok := d.AzureLUN(); ok || (storage.Selector{AzureLUN: &lun}).Matches(d) {
		t.Errorf("it has the LUN %d", lun)
	}
}

// All fields that are set must match.
func TestSelectorMatchesAll(t *testing.T) {
	d := storage.Disk{Number: 3, SerialNumber: "a", Vendor: "v", Product: "p"}
	s := storage.Selector{Number: pointer(disk.Number(3)), SerialNumber: "A", Vendor: "V", Product: "P"}
	if !s.Matches(d) {
		t.Error("no match")
	}
	for _, change := range []func(*storage.Disk){
		func(d *storage.Disk) { d.Number = 4 }, func(d *storage.Disk) { d.SerialNumber = "b" },
		func(d *storage.Disk) { d.Vendor = "w" }, func(d *storage.Disk) { d.Product = "q" },
	} {
		other := d
		change(&other)
		if s.Matches(other) {
			t.Errorf("%+v matches", other)
		}
	}
}

func TestSelectorThatMeansNoDisk(t *testing.T) {
	for _, s := range []storage.Selector{
		{SerialNumber: "\x00"}, {Identifier: "a\nb"}, {Vendor: "\xff"}, {Product: strings.Repeat("x", 256)},
		{SerialNumber: "  "}, {Identifier: "---"}, // they would match disks that say nothing
		{LUN: new(uint32)}, {NVMeNamespace: 1}, {LUN: new(uint32), NVMeNamespace: 1},
		{Port: new(uint32)}, {Port: new(uint32), LUN: new(uint32), Vendor: "v"},
		{ISCSI: &storage.ISCSISelector{IQN: "iqn.2026-01.a:b"}},
		{ISCSI: &storage.ISCSISelector{Portal: iscsi.Portal{Address: "10.0.0.1"}, IQN: "target"}},
	} {
		if err := s.Validate(); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestSelectorInWords(t *testing.T) {
	for want, s := range map[string]storage.Selector{
		`any property`:            {},
		`the serial number "vol"`: {SerialNumber: "vol"},
		`the LUN 3, the vendor "Msft" and the product "Virtual Disk"`: {LUN: pointer(uint32(3)), Vendor: "Msft",
			Product: "Virtual Disk"},
		`the adapter 1, the port 0 and the LUN 3 of Azure`: {Adapter: pointer(uint32(1)), Port: new(uint32),
			AzureLUN: pointer(uint32(3))},
		`the iSCSI LUN 2 of target "iqn.a"`: {ISCSI: &storage.ISCSISelector{IQN: "iqn.a", LUN: 2}},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func pointer[T any](v T) *T { return &v }
