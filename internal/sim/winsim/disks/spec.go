// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Spec is the hardware of a disk. Of the zero value only SizeBytes must be
// set; the rest has the defaults that stand at each field.
type Spec struct {
	SizeBytes  int64  // a multiple of SectorSize, at least 1 MiB
	SectorSize uint32 // of a logical sector: 512 (default) or 4096
	Serial     string // default: made from a running number; unique on the node

	// Page83 are the designators of VPD page 0x83; default: one NAA designator made
	// from Serial.
	Page83 []win.Identifier
	// SCSI is the address; default: the next free LUN of adapter 1.
	SCSI *win.SCSIAddress
	// Location is the text of StorageDeviceLocationProperty; default: made from
	// SCSI, as Hyper-V has it.
	Location  string
	BusType   win.BusType // default: BusTypeSAS
	VendorID  string      // default: "Msft"
	ProductID string      // default: "Virtual Disk"
	Revision  string      // of the product; default: "1.0"

	// NVMe makes the disk a namespace of an NVMe controller. That changes the defaults of
	// Page83, SCSI, Location, BusType, VendorID and ProductID.
	NVMe *NVMe `json:",omitempty"`

	// What a driver does that doesn't know a query: 0 it answers; else the error,
	// which is ErrorInvalidFunction or ErrorNotSupported on real ones.
	Page83Error      win.Errno
	LocationError    win.Errno
	SCSIAddressError win.Errno
	// NVMeError is that of the query for an NVMe namespace. The driver of a disk that isn't
	// one gives ErrorInvalidFunction anyway.
	NVMeError win.Errno `json:",omitempty"`

	// Offline and ReadOnly are how the disk arrives, as under a SAN policy.
	Offline, ReadOnly bool
	// NeedsRescan keeps the disk from arriving before a re-enumeration.
	NeedsRescan bool
	// MultipathMember makes it a path below a multipath disk: it has an interface,
	// but the disk number win.NoNumber.
	MultipathMember bool
	// Number is the disk number that Windows gives to it, if that isn't taken when it
	// arrives. Default: the lowest one that is free.
	Number *disk.Number `json:",omitempty"`
	// Late is how much later it arrives than others, after it was attached or found.
	Late time.Duration `json:",omitempty"`
}

// NVMe is what an NVMe disk is besides its bytes.
type NVMe struct {
	// Controller is the serial number of the controller, of 20 characters at most. Default:
	// Spec.Serial, which Windows doesn't show. Namespaces with the same are of one
	// controller.
	Controller string
	// Namespace is the id of the namespace; default: 1.
	Namespace uint32
	// The ids of the namespace; zero if the controller gives none.
	win.NVMeNamespace
}

const minDiskSize = 1 << 20

// serial is the serial number that Windows shows.
func (d Spec) serial() string {
	if d.NVMe == nil {
		return d.Serial
	}
	return win.NVMeSerial(d.NVMe.Controller, d.NVMe.Namespace, d.NVMe.NVMeNamespace)
}

// What NVM Express, and Windows' driver for it, allow.
const (
	maxNVMeSerial    = 20
	maxNVMeNamespace = 255 // LUNs have one byte here
	nvmePCIVendor    = 0x1414
)

// completeNVMe fills the defaults of an NVMe disk. Windows presents the namespace n as
// LUN n-1.
//
// Guess: VPD page 83 of an NVMe disk has the EUI-64 and the NGUID, or, of a controller that
// gives neither, the SCSI name string of NVM Express 1.0, whose parts nvme.h has. The
// location is that of the controller alone.
func (m *Manager) completeNVMe(d *Spec) error {
	n := *d.NVMe
	n.Controller, n.Namespace = cmp.Or(n.Controller, d.Serial), cmp.Or(n.Namespace, 1)
	if len(n.Controller) > maxNVMeSerial || n.Namespace > maxNVMeNamespace {
		return refusal.New(win.ErrorInvalidParameter, "namespace %d of the NVMe controller %q: a namespace is at most %d, and a controller has at most %d characters",
			n.Namespace, n.Controller, maxNVMeNamespace, maxNVMeSerial)
	}
	d.NVMe = &n
	d.BusType = cmp.Or(d.BusType, win.BusTypeNVMe)
	d.VendorID, d.ProductID = cmp.Or(d.VendorID, "NVMe"), cmp.Or(d.ProductID, "Simulated Disk")
	if d.SCSI == nil {
		d.SCSI = &win.SCSIAddress{PortNumber: m.nvmePort(n.Controller), LUN: byte(n.Namespace - 1)}
	}
	if d.Location == "" {
		d.Location = fmt.Sprintf("Integrated : Bus 12606208 : Device 0 : Function 0 : Adapter %d", d.SCSI.PortNumber)
	}
	if d.Page83 == nil {
		d.Page83 = n.identifiers(d.ProductID)
	}
	return nil
}

func (n NVMe) identifiers(model string) []win.Identifier {
	if n.NVMeNamespace == (win.NVMeNamespace{}) {
		name := fmt.Sprintf("%04X%-40s%04X%-20s", nvmePCIVendor, model, n.Namespace, n.Controller)
		return []win.Identifier{{CodeSet: win.CodeSetUTF8, Type: win.IdentifierSCSIName, ID: []byte(name)}}
	}
	var ids []win.Identifier
	if n.NGUID != [16]byte{} {
		ids = append(ids, win.Identifier{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: n.NGUID[:]})
	}
	if n.EUI64 != [8]byte{} {
		ids = append(ids, win.Identifier{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: n.EUI64[:]})
	}
	return ids
}

// nvmePort is the SCSI port number of an NVMe controller: that of its other namespaces, or
// a free one.
func (m *Manager) nvmePort(controller string) byte {
	if d, ok := m.Find(func(d *Disk) bool {
		return d.State != Detached && d.Spec.NVMe != nil && d.Spec.NVMe.Controller == controller
	}); ok {
		return d.Spec.SCSI.PortNumber
	}
	port := byte(2)
	for taken := m.Ports(); slices.Contains(taken, port) && port < initiatorPort-1; {
		port++
	}
	return port
}

// complete fills the defaults of a spec for the disk id and checks the rest.
func (m *Manager) complete(id uint64, d Spec) (Spec, error) {
	d.SectorSize = cmp.Or(d.SectorSize, 512)
	d.Serial = cmp.Or(d.Serial, fmt.Sprintf("SIM%08d", id))
	if d.NVMe != nil {
		if err := m.completeNVMe(&d); err != nil {
			return d, err
		}
	}
	d.BusType = cmp.Or(d.BusType, win.BusTypeSAS)
	d.VendorID = cmp.Or(d.VendorID, "Msft")
	d.ProductID = cmp.Or(d.ProductID, "Virtual Disk")
	d.Revision = cmp.Or(d.Revision, "1.0")
	switch {
	case d.Number != nil && m.numbered(*d.Number):
		return d, refusal.New(win.ErrorBusy, "another disk has the number %d", *d.Number)
	case d.Late < 0:
		return d, refusal.New(win.ErrorInvalidParameter, "it can't arrive %v late", d.Late)
	case d.SectorSize != 512 && d.SectorSize != 4096:
		return d, refusal.New(win.ErrorInvalidParameter, "the sector size is %d bytes; it must be 512 or 4096", d.SectorSize)
	case d.SizeBytes < minDiskSize || d.SizeBytes%int64(d.SectorSize) != 0:
		return d, refusal.New(win.ErrorInvalidParameter, "the size is %d bytes; it must be at least 1 MiB, in whole sectors of %d bytes",
			d.SizeBytes, d.SectorSize)
	}
	if d.Page83 == nil {
		sum := sha256.Sum256([]byte(d.Serial))
		naa := append([]byte{0x60, 0x02, 0x24, 0x80}, sum[:12]...) // NAA 6 with Microsoft's company id
		d.Page83 = []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: naa}}
	}
	if d.SCSI != nil {
		address := *d.SCSI
		d.SCSI = &address
	} else {
		d.SCSI = &win.SCSIAddress{PortNumber: 1}
		for m.taken(*d.SCSI) && *d.SCSI != (win.SCSIAddress{PortNumber: 1, TargetID: 255, LUN: 255}) {
			if d.SCSI.LUN++; d.SCSI.LUN == 0 {
				d.SCSI.TargetID++
			}
		}
	}
	if m.taken(*d.SCSI) {
		return d, refusal.New(win.ErrorBusy, "another disk has the SCSI address %d:%d:%d:%d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	if d.Location == "" {
		d.Location = fmt.Sprintf("Integrated : Adapter %d : Port %d : Target %d : LUN %d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	return d, nil
}

// attributes are those with which the disk arrives for the first time.
func (d Spec) attributes() (a win.DiskAttributes) {
	if d.Offline {
		a |= win.DiskOffline
	}
	if d.ReadOnly {
		a |= win.DiskReadOnly
	}
	return a
}
