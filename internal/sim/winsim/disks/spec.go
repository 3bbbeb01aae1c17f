// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

const minDiskSize = 1 << 20

// serial is the serial number that Windows shows.
func serial(d hardware.Disk) string {
	if d.NVMe == nil {
		return d.Serial
	}
	return win.NVMeSerial(d.NVMe.Controller, d.NVMe.Namespace, namespaceIDs(d.NVMe))
}

func namespaceIDs(n *hardware.NVMe) win.NVMeNamespace {
	return win.NVMeNamespace{EUI64: n.EUI64, NGUID: n.NGUID}
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
func (m *Manager) completeNVMe(d *hardware.Disk) error {
	n := *d.NVMe
	n.Controller, n.Namespace = cmp.Or(n.Controller, d.Serial), cmp.Or(n.Namespace, 1)
	if len(n.Controller) > maxNVMeSerial || n.Namespace > maxNVMeNamespace {
		return refusal.New(winerr.ErrorInvalidParameter,
			"namespace %d of the NVMe controller %q: a namespace is at most %d, and a controller has at most %d characters",
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
		d.Page83 = identifiers(n, d.ProductID)
	}
	return nil
}

func identifiers(n hardware.NVMe, model string) []win.Identifier {
	if namespaceIDs(&n) == (win.NVMeNamespace{}) {
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
func (m *Manager) complete(id uint64, d hardware.Disk) (hardware.Disk, error) {
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
		return d, refusal.New(winerr.ErrorBusy, "another disk has the number %d", *d.Number)
	case d.Late < 0:
		return d, refusal.New(winerr.ErrorInvalidParameter, "it can't arrive %v late", d.Late)
	case d.SectorSize != 512 && d.SectorSize != 4096:
		return d, refusal.New(winerr.ErrorInvalidParameter, "the sector size is %d bytes; it must be 512 or 4096", d.SectorSize)
	case d.SizeBytes < minDiskSize || d.SizeBytes%int64(d.SectorSize) != 0:
		return d, refusal.New(winerr.ErrorInvalidParameter,
			"the size is %d bytes; it must be at least 1 MiB, in whole sectors of %d bytes",
			d.SizeBytes, d.SectorSize)
	}
	for i, id := range d.Page83 {
		if id.CodeSet < 1 || id.CodeSet > 3 || id.Type > 8 || id.Association > 2 || len(id.ID) == 0 {
			return d, refusal.New(winerr.ErrorInvalidParameter,
				"its identifier %d, %+v, has numbers that SPC doesn't have, or no id", i, id)
		}
	}
	if d.Page83 == nil {
		sum := sha256.Sum256([]byte(d.Serial))
		naa := append([]byte{0x60, 0x02, 0x24, 0x80}, sum[:12]...) // NAA 6 with Microsoft's company id
		d.Page83 = []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: naa}}
	}
	taken := m.addresses()
	if d.SCSI != nil {
		address := *d.SCSI
		d.SCSI = &address
	} else {
		d.SCSI = &win.SCSIAddress{PortNumber: 1}
		for taken[*d.SCSI] && *d.SCSI != (win.SCSIAddress{PortNumber: 1, TargetID: 255, LUN: 255}) {
			if d.SCSI.LUN++; d.SCSI.LUN == 0 {
				d.SCSI.TargetID++
			}
		}
	}
	if taken[*d.SCSI] {
		return d, refusal.New(winerr.ErrorBusy, "another disk has the SCSI address %d:%d:%d:%d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	if d.Location == "" {
		d.Location = fmt.Sprintf("Integrated : Adapter %d : Port %d : Target %d : LUN %d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	return d, nil
}

// attributes are those with which the disk arrives for the first time.
func attributes(d hardware.Disk) (a win.DiskAttributes) {
	if d.Offline {
		a |= win.DiskOffline
	}
	if d.ReadOnly {
		a |= win.DiskReadOnly
	}
	return a
}
