// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"fmt"
)

// Disk is a disk of the node.
type Disk struct {
	// Number is Windows' number of the disk, valid until the disk leaves.
	Number DiskNumber `json:"number"`
	// SizeBytes is the size known to Windows. If the disk has grown, Windows learns the new size by
	// a rescan, or by ExpandVolume.
	SizeBytes int64 `json:"size_bytes"`
	// SerialNumber is the disk's serial number, without surrounding blanks.
	SerialNumber string `json:"serial_number"`
	// Identifiers are all identifiers in the disk's VPD page 83, in the disk's order.
	Identifiers []Identifier `json:"identifiers"`
	// Vendor and Product come from the SCSI inquiry, without surrounding blanks.
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	Bus     Bus    `json:"bus"`
	Location
	// ISCSI is the target that provides the disk; nil for a disk without an iSCSI session.
	ISCSI *ISCSILUN `json:"iscsi,omitempty"`

	Online   bool `json:"online"`
	ReadOnly bool `json:"read_only"`
	// OfflineReason says why the disk is offline, if known.
	OfflineReason string `json:"offline_reason,omitempty"`
	// Style is the kind of the disk's partition table.
	Style PartitionStyle `json:"partition_style"`
	// DiskID is the GUID in a GPT, or the signature in an MBR as eight hex digits.
	DiskID string `json:"disk_id,omitempty"`
	// SystemReason says why operations refuse the disk: Windows runs from the disk. Empty for all
	// other disks.
	SystemReason string      `json:"system_reason,omitempty"`
	Partitions   []Partition `json:"partitions"`
	// Driver is the disk's driver in the daemon's file of drivers. Empty if the file names no
	// driver for the disk, or is missing.
	Driver string `json:"driver,omitempty"`
	// Error says which queries the disk left unanswered. With an Error, zero fields are unknown: a
	// disk with Online unset may be online.
	Error string `json:"error,omitempty"`
}

// Identifier is a name that a disk gives for itself.
type Identifier struct {
	Kind IdentifierKind `json:"kind"`
	// Text is the identifier. Binary identifiers are in lower-case hex digits.
	Text string `json:"text"`
}

// IdentifierKind is the type of an identifier.
type IdentifierKind string

// Kinds of identifiers. All but NGUID are designator types of SPC-4; an NVMe disk's EUI-64
// of 16 bytes is its NGUID.
const (
	IdentifierVendorSpecific IdentifierKind = "vendor"
	IdentifierT10            IdentifierKind = "t10"    // vendor in 8 characters, then what the vendor likes
	IdentifierEUI64          IdentifierKind = "eui-64" // also an NVMe namespace's EUI-64
	IdentifierNGUID          IdentifierKind = "nguid"  // of an NVMe namespace
	IdentifierNAA            IdentifierKind = "naa"
	IdentifierSCSIName       IdentifierKind = "scsi-name"
	IdentifierOther          IdentifierKind = "other"
)

// Bus is how a disk is attached, in Windows' words (STORAGE_BUS_TYPE).
type Bus string

// Common buses; the list is incomplete.
const (
	BusSCSI  Bus = "SCSI"
	BusISCSI Bus = "iSCSI"
	BusSAS   Bus = "SAS"
	BusSATA  Bus = "SATA"
	BusNVMe  Bus = "NVMe"
	// BusFile is the bus of a file attached as a disk, such as a container's scratch space.
	BusFile Bus = "File Backed Virtual"
)

// Location is the place at which a disk is attached.
type Location struct {
	// Text is Windows' text, such as "PCI Slot 3 : Adapter 0 : Port 0 : Target 1 : LUN 0".
	Text string `json:"location"`
	// SCSI is the disk's SCSI address, present for most NVMe disks too. Nil if the bus has none.
	SCSI *SCSIAddress `json:"scsi_address,omitempty"`
	// NVMeNamespace is the disk's NVMe namespace id; 0 for other disks, or if Windows doesn't
	// report the id.
	NVMeNamespace uint32 `json:"nvme_namespace,omitempty"`
}

// SCSIAddress is a disk's address, in the terms of Text.
type SCSIAddress struct {
	Adapter uint8 `json:"adapter"` // the host bus adapter: Windows' PortNumber
	Port    uint8 `json:"port"`    // of that adapter: Windows' PathId
	Target  uint8 `json:"target"`
	LUN     uint8 `json:"lun"`
}

// ISCSILUN is a logical unit of an iSCSI target.
type ISCSILUN struct {
	IQN IQN    `json:"iqn"`
	LUN uint32 `json:"lun"`
}

// PartitionStyle is the kind of a partition table.
type PartitionStyle string

// Styles of partition tables.
const (
	PartitionStyleRAW PartitionStyle = "raw" // none that Windows reads
	PartitionStyleMBR PartitionStyle = "mbr"
	PartitionStyleGPT PartitionStyle = "gpt"
)

// NoFileSystem is the FileSystem of a partition or volume without a file system known to Windows.
// The partition may still hold data.
const NoFileSystem = "raw"

// Partition is a partition of a disk.
type Partition struct {
	Number      uint32 `json:"number"`
	OffsetBytes int64  `json:"offset_bytes"`
	SizeBytes   int64  `json:"size_bytes"`
	// Data is set for a partition with a volume for users. Reserved and system partitions have
	// none.
	Data bool `json:"data"`
	// VolumeID is empty if the partition has no volume, or if Windows shows none, as while the disk
	// is offline.
	VolumeID VolumeID `json:"volume_id,omitempty"`
	// FileSystem is NTFS, ReFS or another file system known to Windows; NoFileSystem if Windows
	// recognises none; and empty if unknown, as while the disk is offline.
	FileSystem string `json:"file_system,omitempty"`
	Label      string `json:"label,omitempty"`
	// Paths are the volume's mount points: directories, and drives as `D:\`. Unknown while the disk
	// is offline.
	Paths []string `json:"paths,omitempty"`
	// Error says why the volume's properties are incomplete.
	Error string `json:"error,omitempty"`
}

// String names the disk for people: its number and distinguishing properties.
func (d Disk) String() string {
	s := fmt.Sprintf("disk %d", d.Number)
	if d.SerialNumber != "" {
		s += fmt.Sprintf(" with serial number %q", d.SerialNumber)
	} else if len(d.Identifiers) > 0 {
		s += fmt.Sprintf(" with identifier %q", d.Identifiers[0].Text)
	}
	switch {
	case d.Location.NVMeNamespace != 0:
		s += fmt.Sprintf(", NVMe namespace %d", d.Location.NVMeNamespace)
	case d.Location.SCSI != nil:
		s += fmt.Sprintf(", LUN %d", d.Location.SCSI.LUN)
	}
	return s
}
