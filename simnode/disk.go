// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Disk is the hardware of a disk. Only SizeBytes must be set.
type Disk struct {
	SizeBytes  int64
	SectorSize int    // in bytes: 512, the default, or 4096
	Serial     string // default: a running number
	Page83     string // ASCII identifier of VPD page 0x83; default: a binary identifier
	// Designators are all identifiers of page 0x83, in the place of Page83.
	Designators []Designator
	// Vendor, Product and Revision are what the disk says that it is; default: Msft,
	// Virtual Disk and 1.0. Location is Windows' text for where it is; default: made from
	// the address.
	Vendor, Product, Revision, Location string
	// NVMe makes the disk a namespace of an NVMe controller; default: a SCSI disk.
	NVMe *NVMe
	// Adapter, Target and LUN are the SCSI address; default: the next free LUN
	// of adapter 1.
	Adapter, Target, LUN int
	// Offline and ReadOnly are the state in which the disk arrives, as under a SAN
	// policy.
	Offline, ReadOnly bool
	// NeedsRescan means that Windows sees the disk only after a Rescan.
	NeedsRescan bool
	// Late is how much later than others the disk arrives.
	Late time.Duration
	// Number is the disk number that Windows gives to it, if it is free; default: the
	// lowest one that is.
	Number disk.Number
}

// NVMe is what an NVMe disk is besides its bytes.
type NVMe struct {
	// Controller is the serial number of the controller, of at most 20 characters;
	// default: Disk.Serial, so that an EBS volume id is the Serial of its Disk. Namespaces
	// with the same are of one controller.
	Controller string
	// Namespace is the namespace's id, from 1, the default, to 255. Windows shows
	// namespace n as LUN n-1.
	Namespace int
	// EUI64 and NGUID are the ids of the namespace; zero if the controller gives none, as
	// that of AWS. They decide which serial number Windows shows.
	EUI64 [8]byte
	NGUID [16]byte
}

// Designator is one of the identifiers in VPD page 0x83, with the numbers of SPC.
type Designator struct {
	CodeSet     int // 1 binary, 2 ASCII, 3 UTF-8
	Type        int // 0 vendor-specific, 1 T10 vendor id, 2 EUI-64, 3 NAA, 8 SCSI name string, and so on
	Association int // what it identifies: 0 the disk, 1 the port, 2 the target
	ID          []byte
}

// NAADesignator is a world-wide name of 8 or 16 bytes. Like the next three, it identifies
// the disk itself.
func NAADesignator(id []byte) Designator { return Designator{CodeSet: 1, Type: 3, ID: id} }

// EUI64Designator is an EUI-64 of 8 or 12 bytes, or an NGUID, of 16.
func EUI64Designator(id []byte) Designator { return Designator{CodeSet: 1, Type: 2, ID: id} }

// T10Designator is a text that begins with the vendor in eight characters.
func T10Designator(id string) Designator { return Designator{CodeSet: 2, Type: 1, ID: []byte(id)} }

// SCSINameDesignator is a name string such as eui.…, naa.… or an IQN.
func SCSINameDesignator(name string) Designator {
	return Designator{CodeSet: 3, Type: 8, ID: []byte(name)}
}

// AttachDisk attaches a disk. It returns the disk's number, which a disk that needs a
// rescan has as soon as Windows sees it. If d has the serial number of a detached disk,
// that disk is attached again, with its data.
func (n *Node) AttachDisk(d Disk) disk.Number {
	n.helper()
	n.must(d.check())
	number, err := n.sys.AttachDisk(d.spec())
	n.must(err)
	return number
}

// CloneDisk attaches a disk with the contents that another one has now, and so with its
// ids, as a disk made from a snapshot has them. Its size is at least that of the other
// disk, and its sector size the same. Windows keeps it offline while the other one is
// online. It returns the number of the new disk.
func (n *Node) CloneDisk(of disk.Number, d Disk) disk.Number {
	n.helper()
	n.must(d.check())
	number, err := n.sys.CloneDisk(of, d.spec())
	n.must(err)
	return number
}

// check refuses numbers that SCSI and NVMe don't have.
func (d Disk) check() error {
	if d.NVMe != nil && (d.NVMe.Namespace < 0 || d.NVMe.Namespace > math.MaxUint8) {
		return fmt.Errorf("attach a disk: its NVMe namespace is %d; it must be between 1 and %d", d.NVMe.Namespace, math.MaxUint8)
	}
	if d.Page83 != "" && len(d.Designators) > 0 {
		return errors.New("attach a disk: it has both Page83 and Designators; put the former among the latter")
	}
	for i, id := range d.Designators {
		if id.CodeSet < 1 || id.CodeSet > 3 || id.Type < 0 || id.Type > 8 || id.Association < 0 || id.Association > 2 || len(id.ID) == 0 {
			return fmt.Errorf("attach a disk: its designator %d, %+v, has numbers that SPC doesn't have, or no id", i, id)
		}
	}
	for name, part := range map[string]int{"Adapter": d.Adapter, "Target": d.Target, "LUN": d.LUN} {
		if part < 0 || part > math.MaxUint8 {
			return fmt.Errorf("attach a disk: its %s is %d; it must be between 0 and %d", name, part, math.MaxUint8)
		}
	}
	return nil
}

func (d Disk) spec() winsim.DiskSpec {
	spec := winsim.DiskSpec{
		SizeBytes: d.SizeBytes, SectorSize: uint32(d.SectorSize), Serial: d.Serial,
		Offline: d.Offline, ReadOnly: d.ReadOnly, NeedsRescan: d.NeedsRescan,
		VendorID: d.Vendor, ProductID: d.Product, Revision: d.Revision, Location: d.Location, Late: d.Late,
	}
	if d.Number != 0 { // which is Windows' own disk
		spec.Number = &d.Number
	}
	if d.NVMe != nil {
		spec.NVMe = &disks.NVMe{
			Controller: d.NVMe.Controller, Namespace: uint32(d.NVMe.Namespace),
			NVMeNamespace: win.NVMeNamespace{EUI64: d.NVMe.EUI64, NGUID: d.NVMe.NGUID},
		}
	}
	for _, id := range d.Designators {
		spec.Page83 = append(spec.Page83, win.Identifier{
			CodeSet: win.CodeSet(id.CodeSet), Type: win.IdentifierType(id.Type), Association: win.Association(id.Association), ID: id.ID,
		})
	}
	if d.Page83 != "" {
		spec.Page83 = []win.Identifier{{CodeSet: win.CodeSetASCII, Type: win.IdentifierT10, ID: []byte(d.Page83)}}
	}
	if d.Adapter != 0 || d.Target != 0 || d.LUN != 0 {
		spec.SCSI = &win.SCSIAddress{PortNumber: byte(d.Adapter), TargetID: byte(d.Target), LUN: byte(d.LUN)}
	}
	return spec
}

// DiskState says whether a disk is attached, and whether Windows sees it.
type DiskState string

// States of disks.
const (
	DiskDetached DiskState = "detached" // its data are kept
	DiskAttached DiskState = "attached" // Windows doesn't see it yet
	DiskPresent  DiskState = "present"  // Windows sees it
)

var diskStates = map[disks.State]DiskState{
	disks.Detached: DiskDetached,
	disks.Attached: DiskAttached,
	disks.Present:  DiskPresent,
}

// DiskInfo is the state of a disk.
type DiskInfo struct {
	Number    disk.Number // unless State is DiskDetached; Windows knows it while it is DiskPresent
	State     DiskState
	Serial    string
	SizeBytes int64 // of the hardware; if it has grown, Windows may not know yet
	// Offline and ReadOnly are Windows' attributes.
	Offline, ReadOnly bool
	// WhyOffline is MSFT_Disk's reason for a disk that is offline.
	WhyOffline OfflineReason
}

// OfflineReason is why Windows has taken a disk offline: MSFT_Disk.OfflineReason.
type OfflineReason int

// Reasons.
const (
	OfflineUnknown            = OfflineReason(win.OfflineUnknown)
	OfflinePolicy             = OfflineReason(win.OfflinePolicy) // the SAN policy, or somebody took it offline
	OfflineRedundantPath      = OfflineReason(win.OfflineRedundantPath)
	OfflineSnapshot           = OfflineReason(win.OfflineSnapshot)
	OfflineCollision          = OfflineReason(win.OfflineCollision) // its ids are those of a disk that is online
	OfflineResourceExhaustion = OfflineReason(win.OfflineResourceExhaustion)
	OfflineWriteFailures      = OfflineReason(win.OfflineWriteFailures)
	OfflineIntegrityScan      = OfflineReason(win.OfflineIntegrityScan)
)

// TakeDiskOffline takes a disk offline as Windows does by itself, for a reason. The next
// restart of the node brings it online.
func (n *Node) TakeDiskOffline(number disk.Number, why OfflineReason) {
	n.helper()
	n.must(n.sys.SetOfflineReason(number, win.OfflineReason(why)))
}

// Disks returns all disks, in the order in which they were first attached. The first
// is the one that Windows runs from.
func (n *Node) Disks() []DiskInfo {
	var infos []DiskInfo
	for _, d := range n.sys.Disks() {
		infos = append(infos, DiskInfo{
			Number: d.Number, State: diskStates[d.State], Serial: d.Spec.Serial, SizeBytes: d.SizeBytes,
			Offline: d.Attributes&win.DiskOffline != 0, ReadOnly: d.Attributes&win.DiskReadOnly != 0,
			WhyOffline: OfflineReason(d.OfflineReason),
		})
	}
	return infos
}

// SetDiskAttributes takes a disk offline or online and makes it read-only or writable,
// as an administrator does. The attributes survive a restart of the node, and a
// detach.
func (n *Node) SetDiskAttributes(number disk.Number, offline, readOnly bool) {
	n.helper()
	change := win.SetDiskAttributes{Persist: true, Mask: win.DiskOffline | win.DiskReadOnly}
	if offline {
		change.Attributes |= win.DiskOffline
	}
	if readOnly {
		change.Attributes |= win.DiskReadOnly
	}
	n.must(n.sys.SetDiskAttributes(number, change))
}

// DetachDisk detaches a disk without warning. Its data are kept: AttachDisk with its
// serial number attaches it again.
func (n *Node) DetachDisk(number disk.Number) {
	n.helper()
	n.must(n.sys.DetachDisk(number))
}

// DeleteDisk deletes a detached disk with its data. After that, AttachDisk with its
// serial number attaches a new disk.
func (n *Node) DeleteDisk(serial string) {
	n.helper()
	n.must(n.sys.DeleteDisk(serial))
}

// GrowDisk makes a disk larger. Windows sees it after a Rescan, or when a volume on
// it is resized.
func (n *Node) GrowDisk(number disk.Number, sizeBytes int64) {
	n.helper()
	n.must(n.sys.GrowDisk(number, sizeBytes))
}

// WriteDisk writes raw bytes to a disk, such as data of another system.
func (n *Node) WriteDisk(number disk.Number, data []byte, offset int64) {
	n.helper()
	n.must(n.sys.WriteImage(number, data, offset))
}

// ExportDisk writes a disk as a sparse raw image to a file, for tools such as
// sgdisk.
func (n *Node) ExportDisk(number disk.Number, file string) {
	n.helper()
	n.must(n.sys.ExportImage(number, file))
}
