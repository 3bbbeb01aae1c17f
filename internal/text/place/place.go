// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package place reads the texts in which Windows says where a disk is attached.
package place

import (
	"strconv"
	"strings"
)

// Place is what a text says, such as
// "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 1 : Port 0 : Target 0 : LUN 1". A field
// that the text lacks is "".
type Place struct{ Adapter, Bus, Device, Function, Channel, Target, LUN string }

// Parse reads a text. If the text is of no known form, as "SCSI0" of VMware, or is the path of a file that
// is attached as a disk, the place is zero. The published daemon takes a LUN only from a text of five
// parts, and so does Parse.
func Parse(text string) (p Place) {
	fields := map[string]*string{"Adapter": &p.Adapter, "Bus": &p.Bus, "Device": &p.Device, "Function": &p.Function,
		"Channel": &p.Channel, "Target": &p.Target, "LUN": &p.LUN}
	parts := strings.Split(text, ":")
	for _, part := range parts {
		words := strings.Fields(part)
		if len(words) != 2 {
			continue // "Integrated", "PCI Slot 3"
		}
		if field, known := fields[words[0]]; known {
			*field = words[1]
		}
	}
	switch {
	case p.Adapter == "" || IsPath(text):
		return Place{}
	case len(parts) < 5:
		p.LUN = ""
	}
	return p
}

// IsPath reports whether a text is the path of a file that is attached as a disk.
func IsPath(text string) bool { return strings.Contains(text, `\`) }

// The controllers of Azure are VMBus devices with fixed ids, {f8b3781a-1e82-4818-a1c3-63d806ec15bb} and the
// like. Device and Function are the first four bytes of the id. The first controller has the disk of
// Windows, with LUN 0, and the temporary disk, with LUN 1. The data disks are on the three others.
//
// Source: https://github.com/Azure/WALinuxAgent, config/66-azure-storage.rules, and
// https://github.com/Azure/azure-vm-utils 21a769e, udev/80-azure-disk.rules (ids and LUNs);
// https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038 (2025-04-19), whose log has the texts
// of a temporary disk, 63667 and 30746, and of data disks, 63667 and 30747
const (
	azureLocal     = 0xf8b3781a
	azureFirstData = 0xf8b3781b
	azureLastData  = 0xf8b3781d
)

// IsAzureLocal reports whether the place is on Azure's controller of Windows' disk and the temporary disk.
func (p Place) IsAzureLocal() bool { return p.controller() == azureLocal }

// IsAzureData reports whether the place is on one of Azure's controllers of data disks.
func (p Place) IsAzureData() bool {
	id := p.controller()
	return azureFirstData <= id && id <= azureLastData
}

// controller returns the first four bytes of the id of the VMBus device that the controller is. They are
// zero if the text has none.
func (p Place) controller() uint64 {
	device, err := strconv.ParseUint(p.Device, 10, 16)
	function, err2 := strconv.ParseUint(p.Function, 10, 16)
	if err != nil || err2 != nil {
		return 0
	}
	return device<<16 | function
}
