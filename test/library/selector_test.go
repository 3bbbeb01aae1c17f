// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// What the field's drivers look for, and disks as they say of themselves there.
func TestSelectorOfEachCloud(t *testing.T) {
	const uuid = "0f2f0fd4-4d35-4e6a-9c1d-5a1c2b3d4e5f"
	lun := func(lun uint8) csiproxy.Location {
		return csiproxy.Location{SCSI: &csiproxy.SCSIAddress{Adapter: 1, LUN: lun}}
	}
	namespace := func(id uint32) csiproxy.Location {
		return csiproxy.Location{SCSI: &csiproxy.SCSIAddress{LUN: uint8(id - 1)}, NVMeNamespace: id}
	}
	target := csiproxy.IQN("iqn.2010-10.org.openstack:volume-1")
	for name, test := range map[string]struct {
		selector csiproxy.Selector
		disk     csiproxy.Disk
		others   []csiproxy.Disk
	}{
		"EBS on Nitro": {
			csiproxy.Selector{SerialNumber: "vol-0abc1234def567890"},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, SerialNumber: "vol0abc1234def567890_00000001.", Product: "Amazon Elastic B",
				Location: namespace(1)},
			[]csiproxy.Disk{
				{Bus: csiproxy.BusNVMe, SerialNumber: "vol0abc1234def56789_00000001."},
				{Bus: csiproxy.BusNVMe, SerialNumber: "vol0abc1234def567890f_00000001."},
				{Bus: csiproxy.BusNVMe, SerialNumber: "AWS1234_00000001."}, {},
			},
		},
		"EBS on Xen": {
			csiproxy.Selector{SerialNumber: "vol-0abc1234def567890"},
			csiproxy.Disk{Bus: csiproxy.BusSCSI, SerialNumber: "vol0abc1234def567890", Vendor: "AWS", Product: "PVDISK",
				Location: lun(0)},
			[]csiproxy.Disk{{Bus: csiproxy.BusSCSI, SerialNumber: "vol0abc1234def567891"}},
		},
		"Azure by SCSI": {
			csiproxy.Selector{LUN: pointer(uint32(3)), Vendor: "Msft", Product: "Virtual Disk"},
			csiproxy.Disk{Bus: csiproxy.BusSAS, Vendor: "Msft    ", Product: "Virtual Disk", Location: lun(3)},
			[]csiproxy.Disk{
				{Vendor: "Msft", Product: "Virtual Disk", Location: lun(2)}, {Vendor: "Msft", Product: "Virtual Disk"},
				{Vendor: "QEMU", Product: "HARDDISK", Location: lun(3)}, {Location: lun(3)},
				{Bus: csiproxy.BusFile, Vendor: "Msft", Product: "Virtual Disk", Location: lun(3)},
			},
		},
		"Azure's LUN, by SCSI": {
			csiproxy.Selector{AzureLUN: pointer(uint32(1))},
			csiproxy.Disk{Bus: csiproxy.BusSAS, Vendor: "Msft", Product: "Virtual Disk", Location: lun(1)},
			[]csiproxy.Disk{
				{Vendor: "Msft", Product: "Virtual Disk", Location: csiproxy.Location{SCSI: &csiproxy.SCSIAddress{LUN: 1}}},
				{Vendor: "Msft", Product: "Virtual Disk", Location: csiproxy.Location{SCSI: lun(1).SCSI,
					Text: "Integrated : Bus 0 : Device 63667 : Function 30746 : Adapter 1 : Port 0 : Target 0 : LUN 1"}},
				{Vendor: "Msft", Product: "Virtual Disk", Location: lun(3)}, {Vendor: "Msft", Product: "Virtual Disk"},
				{Vendor: "QEMU", Product: "Virtual Disk", Location: lun(1)}, {Vendor: "Msft", Product: "Other", Location: lun(1)},
				{Bus: csiproxy.BusFile, Vendor: "Msft", Product: "Virtual Disk", Location: lun(1)},
			},
		},
		"Azure's LUN, by SCSI, on a controller of data disks that is the first adapter": {
			csiproxy.Selector{AzureLUN: pointer(uint32(1))},
			csiproxy.Disk{Bus: csiproxy.BusSAS, Vendor: "Msft", Product: "Virtual Disk", Location: csiproxy.Location{
				SCSI: &csiproxy.SCSIAddress{LUN: 1},
				Text: "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 0 : Port 0 : Target 0 : LUN 1"}}, nil,
		},
		"Azure's LUN, by NVMe": {
			csiproxy.Selector{AzureLUN: pointer(uint32(3))},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, Vendor: "NVMe", Product: "MSFT NVMe Accele", Location: namespace(5)},
			[]csiproxy.Disk{
				{Bus: csiproxy.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(4)},
				{Bus: csiproxy.BusNVMe, Product: "Microsoft NVMe D", Location: namespace(5)},
				{Bus: csiproxy.BusNVMe, Vendor: "Msft", Product: "Virtual Disk", Location: namespace(4)},
			},
		},
		"Azure's LUN, by NVMe, as Windows names the disk": {
			csiproxy.Selector{AzureLUN: pointer(uint32(0))},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk NVMe Premium", Location: namespace(2)},
			[]csiproxy.Disk{
				{Bus: csiproxy.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk NVMe Premium", Location: namespace(1)},
				{Bus: csiproxy.BusNVMe, Vendor: "NVMe", Product: "Virtual_Disk", Location: namespace(2)},
			},
		},
		"a file's LUN, with its adapter": {
			csiproxy.Selector{Adapter: pointer(uint32(1)), LUN: pointer(uint32(3))},
			csiproxy.Disk{Bus: csiproxy.BusFile, Location: lun(3)}, []csiproxy.Disk{{Bus: csiproxy.BusFile, Location: lun(2)}},
		},
		"a controller's LUN": {
			csiproxy.Selector{Adapter: pointer(uint32(1)), Port: pointer(uint32(0)), LUN: pointer(uint32(3))},
			csiproxy.Disk{Location: lun(3)},
			[]csiproxy.Disk{
				{Location: lun(2)}, {Location: csiproxy.Location{SCSI: &csiproxy.SCSIAddress{Adapter: 2, LUN: 3}}}, {},
				{Location: csiproxy.Location{SCSI: &csiproxy.SCSIAddress{Adapter: 1, Port: 1, LUN: 3}}},
				{Location: csiproxy.Location{SCSI: &csiproxy.SCSIAddress{Adapter: 1, LUN: 3}, NVMeNamespace: 4}},
			},
		},
		"a controller's namespace": {
			csiproxy.Selector{Adapter: pointer(uint32(0)), NVMeNamespace: 2},
			csiproxy.Disk{Location: namespace(2)},
			[]csiproxy.Disk{{Location: namespace(1)}, {Location: lun(1)}},
		},
		"Azure by NVMe, by its namespace": {
			csiproxy.Selector{NVMeNamespace: 5, Product: "MSFT NVMe Accelerator"},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(5)},
			[]csiproxy.Disk{{Bus: csiproxy.BusNVMe, Product: "MSFT NVMe Accele", Location: namespace(3)},
				{Product: "MSFT NVMe Accele", Location: lun(5)}},
		},
		"GCE by SCSI": {
			csiproxy.Selector{Identifier: "pvc-6a1c2d3e"},
			csiproxy.Disk{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierNAA, Text: "6001"},
				{Kind: csiproxy.IdentifierT10, Text: "Google  pvc-6a1c2d3e"}}},
			[]csiproxy.Disk{
				{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierT10, Text: "Google  pvc-6a1c2d3e0"}}},
				{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierSCSIName, Text: "Google  pvc-6a1c2d3e"}}}, {},
			},
		},
		"GCE by SCSI, with the vendor": {
			csiproxy.Selector{Identifier: "Google  pvc-6a1c2d3e"},
			csiproxy.Disk{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierT10, Text: "Google  pvc-6a1c2d3e"}}},
			[]csiproxy.Disk{{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierT10, Text: "Other   pvc-6a1c2d3e"}}}},
		},
		"GCE by NVMe": {
			csiproxy.Selector{Identifier: "eui.10cc9636b6e3ce3b"},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, SerialNumber: "10CC_9636_B6E3_CE3B_0000_0000_0000_0000."},
			[]csiproxy.Disk{
				{Bus: csiproxy.BusNVMe, SerialNumber: "10CC_9636_B6E3_CE3B_0000_0000_0000_0001."},
				{Bus: csiproxy.BusNVMe, SerialNumber: "10CC_9636_B6E3_CE3C_0000_0000_0000_0000."},
				{SerialNumber: "10CC_9636_B6E3_CE3B_0000_0000_0000_0000."},
				{Bus: csiproxy.BusNVMe, Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierEUI64, Text: "10cc9636b6e3ce3"}}},
			},
		},
		"GCE by NVMe, in page 83": {
			csiproxy.Selector{Identifier: "10CC_9636_B6E3_CE3B_0000_0000_0000_0000."},
			csiproxy.Disk{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierSCSIName, Text: "eui.10CC9636B6E3CE3B0000000000000000"}}},
			[]csiproxy.Disk{{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierNGUID, Text: "00000000000000000000000000000000"}}}, {}},
		},
		"an EUI of zeros": {
			csiproxy.Selector{Identifier: "eui.0000000000000001"},
			csiproxy.Disk{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierEUI64, Text: "0000000000000001"}}},
			[]csiproxy.Disk{{Bus: csiproxy.BusNVMe, SerialNumber: "0000_0000_0000_0000."}, {Bus: csiproxy.BusNVMe}},
		},
		"by NVMe, the controller's serial number": {
			csiproxy.Selector{SerialNumber: "pvc-6a1c2d3e"},
			csiproxy.Disk{Bus: csiproxy.BusNVMe, SerialNumber: "pvc-6a1c2d3e_00000003.", Location: namespace(3)},
			[]csiproxy.Disk{{Bus: csiproxy.BusNVMe, SerialNumber: "pvc-6a1c2d3e_x."}, {Bus: csiproxy.BusNVMe, SerialNumber: "pvc"},
				{SerialNumber: "pvc-6a1c2d3e_00000003."}},
		},
		"vSphere": {
			csiproxy.Selector{Identifier: "6000C29f-0123-4567-89ab-cdef01234567"},
			csiproxy.Disk{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierNAA, Text: "6000c29f0123456789abcdef01234567"}}},
			[]csiproxy.Disk{{Identifiers: []csiproxy.Identifier{{Kind: csiproxy.IdentifierNAA, Text: "6000c29f0123456789abcdef01234568"}}}},
		},
		"iSCSI": {
			csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: csiproxy.ISCSIPortal{Address: "10.0.0.1"}, IQN: target, LUN: 2}},
			csiproxy.Disk{Bus: csiproxy.BusISCSI, ISCSI: &csiproxy.ISCSILUN{IQN: "IQN.2010-10.org.openstack:volume-1", LUN: 2}},
			[]csiproxy.Disk{{ISCSI: &csiproxy.ISCSILUN{IQN: target, LUN: 1}},
				{ISCSI: &csiproxy.ISCSILUN{IQN: target + "0", LUN: 2}}, {Location: lun(2)}},
		},
		"Cinder by virtio": {
			csiproxy.Selector{SerialNumber: uuid},
			csiproxy.Disk{Bus: csiproxy.BusSCSI, SerialNumber: uuid[:20]},
			[]csiproxy.Disk{{SerialNumber: uuid[:19]}, {SerialNumber: uuid[:19] + "0"}, {SerialNumber: uuid[1:21]}},
		},
		"Cinder by virtio-scsi": {
			csiproxy.Selector{SerialNumber: uuid},
			csiproxy.Disk{Bus: csiproxy.BusSAS, SerialNumber: uuid, Vendor: "QEMU"},
			[]csiproxy.Disk{{SerialNumber: uuid + "0"}},
		},
		"a number": {
			csiproxy.Selector{Number: pointer(csiproxy.DiskNumber(2))},
			csiproxy.Disk{Number: 2},
			[]csiproxy.Disk{{}, {Number: 20}},
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
		if !(csiproxy.Selector{}).Matches(test.disk) {
			t.Errorf("%s: the zero value doesn't match", name)
		}
	}
}

// The namespace of the disk of Windows, less two, is no LUN.
func TestAzureLUNOfWindowsDisk(t *testing.T) {
	d := csiproxy.Disk{Product: "MSFT NVMe Accele", Location: csiproxy.Location{NVMeNamespace: 1}}
	if lun, ok := d.AzureLUN(); ok || (csiproxy.Selector{AzureLUN: &lun}).Matches(d) {
		t.Errorf("it has the LUN %d", lun)
	}
}

// All fields that are set must match.
func TestSelectorMatchesAll(t *testing.T) {
	d := csiproxy.Disk{Number: 3, SerialNumber: "a", Vendor: "v", Product: "p"}
	s := csiproxy.Selector{Number: pointer(csiproxy.DiskNumber(3)), SerialNumber: "A", Vendor: "V", Product: "P"}
	if !s.Matches(d) {
		t.Error("no match")
	}
	for _, change := range []func(*csiproxy.Disk){
		func(d *csiproxy.Disk) { d.Number = 4 }, func(d *csiproxy.Disk) { d.SerialNumber = "b" },
		func(d *csiproxy.Disk) { d.Vendor = "w" }, func(d *csiproxy.Disk) { d.Product = "q" },
	} {
		other := d
		change(&other)
		if s.Matches(other) {
			t.Errorf("%+v matches", other)
		}
	}
}

func TestSelectorThatMeansNoDisk(t *testing.T) {
	for _, s := range []csiproxy.Selector{
		{SerialNumber: "\x00"}, {Identifier: "a\nb"}, {Vendor: "\xff"}, {Product: strings.Repeat("x", 256)},
		{SerialNumber: "  "}, {Identifier: "---"}, // they would match disks that say nothing
		{LUN: new(uint32)}, {NVMeNamespace: 1}, {LUN: new(uint32), NVMeNamespace: 1},
		{Port: new(uint32)}, {Port: new(uint32), LUN: new(uint32), Vendor: "v"},
		{ISCSI: &csiproxy.ISCSISelector{IQN: "iqn.2026-01.a:b"}},
		{ISCSI: &csiproxy.ISCSISelector{Portal: csiproxy.ISCSIPortal{Address: "10.0.0.1"}, IQN: "target"}},
	} {
		if err := s.Validate(); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestSelectorInWords(t *testing.T) {
	for want, s := range map[string]csiproxy.Selector{
		`any property`:            {},
		`the serial number "vol"`: {SerialNumber: "vol"},
		`the LUN 3, the vendor "Msft" and the product "Virtual Disk"`: {LUN: pointer(uint32(3)), Vendor: "Msft",
			Product: "Virtual Disk"},
		`the adapter 1, the port 0 and the LUN 3 of Azure`: {Adapter: pointer(uint32(1)), Port: new(uint32),
			AzureLUN: pointer(uint32(3))},
		`the iSCSI LUN 2 of target "iqn.a"`: {ISCSI: &csiproxy.ISCSISelector{IQN: "iqn.a", LUN: 2}},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func pointer[T any](v T) *T { return &v }
