// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// A disk that tells something else than a selector asks for is another one. One that doesn't tell it,
// since it is sick, may be the one that is meant.
func TestIsAnother(t *testing.T) {
	five, target := uint32(5), func(iqn csiproxy.IQN) *csiproxy.ISCSISelector { return &csiproxy.ISCSISelector{IQN: iqn} }
	address := func(d *csiproxy.Disk) { d.Location.SCSI = nil }
	for name, c := range map[string]struct {
		wanted csiproxy.Selector
		forget func(d *csiproxy.Disk)
	}{
		"serial number": {csiproxy.Selector{SerialNumber: "b"}, func(d *csiproxy.Disk) { d.SerialNumber = "" }},
		"identifier":    {csiproxy.Selector{Identifier: "b"}, func(d *csiproxy.Disk) { d.Identifiers = nil }},
		"adapter":       {csiproxy.Selector{Adapter: &five}, address},
		"LUN":           {csiproxy.Selector{LUN: &five}, address},
		"Azure's LUN":   {csiproxy.Selector{AzureLUN: &five}, address},
		"Azure's disk":  {csiproxy.Selector{AzureLUN: &five}, func(d *csiproxy.Disk) { d.Vendor, d.Product = "", "" }},
		"namespace":     {csiproxy.Selector{NVMeNamespace: five}, address},
		"vendor":        {csiproxy.Selector{Vendor: "b"}, func(d *csiproxy.Disk) { d.Vendor = "" }},
		"product":       {csiproxy.Selector{Product: "b"}, func(d *csiproxy.Disk) { d.Product = "" }},
		"target":        {csiproxy.Selector{ISCSI: target("b")}, func(d *csiproxy.Disk) { d.ISCSI = nil }},
		"bus":           {csiproxy.Selector{ISCSI: target("b")}, func(d *csiproxy.Disk) { d.ISCSI, d.Bus = nil, "" }},
	} {
		told := csiproxy.Disk{SerialNumber: "a", Identifiers: []csiproxy.Identifier{{Text: "a"}}, Vendor: "a", Product: "a",
			Bus: csiproxy.BusISCSI, ISCSI: &csiproxy.ISCSILUN{IQN: "a"},
			Location: csiproxy.Location{SCSI: new(csiproxy.SCSIAddress)}}
		if !isAnother(c.wanted, told) {
			t.Errorf("%s: the disk tells another one", name)
		}
		c.forget(&told)
		if isAnother(c.wanted, told) {
			t.Errorf("%s: the disk doesn't tell it", name)
		}
	}
	for name, d := range map[string]csiproxy.Disk{
		"of another bus": {Bus: csiproxy.BusSCSI},
		"by its vendor":  {Vendor: "a", Location: csiproxy.Location{SCSI: new(csiproxy.SCSIAddress)}},
		"by its product": {Product: "a", Location: csiproxy.Location{SCSI: new(csiproxy.SCSIAddress)}},
	} {
		wanted := csiproxy.Selector{AzureLUN: &five}
		if d.Bus != "" {
			wanted = csiproxy.Selector{ISCSI: target("a")}
		}
		if !isAnother(wanted, d) {
			t.Errorf("a disk %s isn't another one", name)
		}
	}
	namespaced := csiproxy.Disk{Vendor: "a", Location: csiproxy.Location{NVMeNamespace: 4}} // without a SCSI address
	if !isAnother(csiproxy.Selector{AzureLUN: &five}, namespaced) ||
		!isAnother(csiproxy.Selector{NVMeNamespace: five}, namespaced) {
		t.Error("a disk that tells another namespace isn't another one")
	}
	if isAnother(csiproxy.Selector{Adapter: &five, NVMeNamespace: 4}, namespaced) {
		t.Error("a disk that doesn't tell its adapter is another one")
	}
	if isAnother(csiproxy.Selector{SerialNumber: "a"}, csiproxy.Disk{SerialNumber: "a"}) {
		t.Error("the disk that is meant is another one")
	}
}
