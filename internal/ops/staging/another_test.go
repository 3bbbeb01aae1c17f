// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
)

// A disk that tells something else than a selector asks for is another one. One that doesn't tell it,
// since it is sick, may be the one that is meant.
func TestIsAnother(t *testing.T) {
	five, target := uint32(5), func(iqn iscsi.IQN) *storage.ISCSISelector { return &storage.ISCSISelector{IQN: iqn} }
	address := func(d *storage.Disk) { d.Location.SCSI = nil }
	for name, c := range map[string]struct {
		wanted storage.Selector
		forget func(d *storage.Disk)
	}{
		"serial number": {storage.Selector{SerialNumber: "b"}, func(d *storage.Disk) { d.SerialNumber = "" }},
		"identifier":    {storage.Selector{Identifier: "b"}, func(d *storage.Disk) { d.Identifiers = nil }},
		"adapter":       {storage.Selector{Adapter: &five}, address},
		"LUN":           {storage.Selector{LUN: &five}, address},
		"Azure's LUN":   {storage.Selector{AzureLUN: &five}, address},
		"Azure's disk":  {storage.Selector{AzureLUN: &five}, func(d *storage.Disk) { d.Vendor, d.Product = "", "" }},
		"namespace":     {storage.Selector{NVMeNamespace: five}, address},
		"vendor":        {storage.Selector{Vendor: "b"}, func(d *storage.Disk) { d.Vendor = "" }},
		"product":       {storage.Selector{Product: "b"}, func(d *storage.Disk) { d.Product = "" }},
		"target":        {storage.Selector{ISCSI: target("b")}, func(d *storage.Disk) { d.ISCSI = nil }},
		"bus":           {storage.Selector{ISCSI: target("b")}, func(d *storage.Disk) { d.ISCSI, d.Bus = nil, "" }},
	} {
		told := storage.Disk{SerialNumber: "a", Identifiers: []storage.Identifier{{Text: "a"}}, Vendor: "a", Product: "a",
			Bus: storage.BusISCSI, ISCSI: &storage.ISCSILUN{IQN: "a"},
			Location: storage.Location{SCSI: new(storage.SCSIAddress)}}
		if !isAnother(c.wanted, told) {
			t.Errorf("%s: the disk tells another one", name)
		}
		c.forget(&told)
		if isAnother(c.wanted, told) {
			t.Errorf("%s: the disk doesn't tell it", name)
		}
	}
	for name, d := range map[string]storage.Disk{
		"of another bus": {Bus: storage.BusSCSI},
		"by its vendor":  {Vendor: "a", Location: storage.Location{SCSI: new(storage.SCSIAddress)}},
		"by its product": {Product: "a", Location: storage.Location{SCSI: new(storage.SCSIAddress)}},
	} {
		wanted := storage.Selector{AzureLUN: &five}
		if d.Bus != "" {
			wanted = storage.Selector{ISCSI: target("a")}
		}
		if !isAnother(wanted, d) {
			t.Errorf("a disk %s isn't another one", name)
		}
	}
	namespaced := storage.Disk{Vendor: "a", Location: storage.Location{NVMeNamespace: 4}} // without a SCSI address
	if !isAnother(storage.Selector{AzureLUN: &five}, namespaced) ||
		!isAnother(storage.Selector{NVMeNamespace: five}, namespaced) {
		t.Error("a disk that tells another namespace isn't another one")
	}
	if isAnother(storage.Selector{Adapter: &five, NVMeNamespace: 4}, namespaced) {
		t.Error("a disk that doesn't tell its adapter is another one")
	}
	if isAnother(storage.Selector{SerialNumber: "a"}, storage.Disk{SerialNumber: "a"}) {
		t.Error("the disk that is meant is another one")
	}
}
