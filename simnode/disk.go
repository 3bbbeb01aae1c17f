// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// Disk is the hardware of a disk. Only SizeBytes must be set. Package simnode/hardware documents its fields, such as
// Serial, SCSI, NVMe, Offline, NeedsRescan and Late.
type Disk = hardware.Disk

// SCSIAddress is a disk's address, with the fields PortNumber (the adapter), PathID (the bus),
// TargetID and LUN.
type SCSIAddress = hardware.SCSIAddress

// NVMe describes an NVMe disk, with the fields Controller, Namespace, EUI64 and NGUID.
type NVMe = hardware.NVMe

// Designator is one of the identifiers in VPD page 0x83.
type Designator = hardware.Designator

// NAADesignator returns a world-wide name of 8 or 16 bytes. All four designator functions identify
// the disk itself.
func NAADesignator(id []byte) Designator {
	return Designator{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: id}
}

// EUI64Designator returns an EUI-64 of 8 or 12 bytes, or an NGUID of 16 bytes.
func EUI64Designator(id []byte) Designator {
	return Designator{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: id}
}

// T10Designator returns a text that begins with the vendor in eight characters.
func T10Designator(id string) Designator {
	return Designator{CodeSet: win.CodeSetASCII, Type: win.IdentifierT10, ID: []byte(id)}
}

// SCSINameDesignator returns a name string such as eui.…, naa.… or an IQN.
func SCSINameDesignator(name string) Designator {
	return Designator{CodeSet: win.CodeSetUTF8, Type: win.IdentifierSCSIName, ID: []byte(name)}
}

// AttachDisk attaches a disk and returns the disk's number. A disk with NeedsRescan has this number
// as soon as Windows sees the disk. If d has the serial number of a detached disk, the detached
// disk is attached again, with its data.
func (n *Node) AttachDisk(d Disk) csiproxy.DiskNumber {
	n.helper()
	number, err := n.sys.AttachDisk(d)
	n.must(err)
	return number
}

// CloneDisk attaches a disk with the present contents, and so the ids, of another disk, like a disk
// made from a snapshot. CloneDisk returns the number of the new disk. The clone is at least as
// large as the original and has the same sector size. When a writable clone goes online beside the
// original, Windows gives the clone new ids. Windows keeps a read-only clone offline.
func (n *Node) CloneDisk(of csiproxy.DiskNumber, d Disk) csiproxy.DiskNumber {
	n.helper()
	number, err := n.sys.CloneDisk(of, d)
	n.must(err)
	return number
}

// DiskState says whether a disk is attached, and whether Windows sees it.
type DiskState string

// States of disks: the texts are those of the simulator.
const (
	DiskDetached DiskState = "detached" // its data are kept
	DiskAttached DiskState = "attached" // Windows doesn't see it yet
	DiskPresent  DiskState = "present"  // Windows sees it
)

// DiskInfo is the state of a disk.
type DiskInfo struct {
	Number    csiproxy.DiskNumber // unless State is DiskDetached; Windows knows it while it is DiskPresent
	State     DiskState
	Serial    string
	SizeBytes int64 // of the hardware; if it has grown, Windows may not know yet
	// Offline and ReadOnly are Windows' attributes.
	Offline, ReadOnly bool
	// WhyOffline is MSFT_Disk's reason for an offline disk.
	WhyOffline OfflineReason
}

// OfflineReason is why Windows took a disk offline: MSFT_Disk.OfflineReason.
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

// TakeDiskOffline takes a disk offline for a reason, as Windows does on its own. The next restart
// of the node brings the disk online.
func (n *Node) TakeDiskOffline(number csiproxy.DiskNumber, why OfflineReason) {
	n.helper()
	n.must(n.sys.SetOfflineReason(number, win.OfflineReason(why)))
}

// Disks returns all disks, in the order of their first attachment. The first is the disk of
// Windows.
func (n *Node) Disks() []DiskInfo {
	var infos []DiskInfo
	for _, d := range n.sys.Disks() {
		infos = append(infos, DiskInfo{
			Number: d.Number, State: DiskState(d.State), Serial: d.Spec.Serial, SizeBytes: d.Size,
			Offline: d.Attributes&win.DiskOffline != 0, ReadOnly: d.Attributes&win.DiskReadOnly != 0,
			WhyOffline: OfflineReason(d.OfflineReason),
		})
	}
	return infos
}

// SetDiskAttributes takes a disk offline or online and makes the disk read-only or writable, as an
// administrator does. The attributes survive a restart of the node, and a detach.
func (n *Node) SetDiskAttributes(number csiproxy.DiskNumber, offline, readOnly bool) {
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

// DetachDisk detaches a disk without warning. The data are kept: AttachDisk with the same serial
// number attaches the disk again.
func (n *Node) DetachDisk(number csiproxy.DiskNumber) {
	n.helper()
	n.must(n.sys.DetachDisk(number))
}

// DeleteDisk deletes a detached disk with its data. Afterwards, AttachDisk with the same serial
// number attaches a new disk.
func (n *Node) DeleteDisk(serial string) {
	n.helper()
	n.must(n.sys.DeleteDisk(serial))
}

// GrowDisk makes a disk larger. Windows sees the new size after a Rescan, or when a volume on the
// disk is resized.
func (n *Node) GrowDisk(number csiproxy.DiskNumber, sizeBytes int64) {
	n.helper()
	n.must(n.sys.GrowDisk(number, sizeBytes))
}

// WriteDisk writes raw bytes to a disk, such as data of another system.
func (n *Node) WriteDisk(number csiproxy.DiskNumber, data []byte, offset int64) {
	n.helper()
	n.must(n.sys.WriteImage(number, data, offset))
}

// ExportDisk writes a disk as a sparse raw image to a file, for tools such as
// sgdisk.
func (n *Node) ExportDisk(number csiproxy.DiskNumber, file string) {
	n.helper()
	n.must(n.sys.ExportImage(number, file))
}
