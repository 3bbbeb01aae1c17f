// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"fmt"
)

// Disk is a disk of the node.
type Disk struct {
	// Number is Windows' number of the disk. It names the disk only until the disk leaves.
	Number DiskNumber `json:"number"`
	// SizeBytes is the size that Windows knows. If the disk has grown meanwhile, Windows
	// learns that by a rescan, or by ExpandVolume.
	SizeBytes int64 `json:"size_bytes"`
	// SerialNumber is the disk's serial number, without blanks around it.
	SerialNumber string `json:"serial_number"`
	// Identifiers are all that the disk says of itself in VPD page 83, in the disk's order.
	Identifiers []Identifier `json:"identifiers"`
	// Vendor is that of the SCSI inquiry, as is Product, without blanks around them.
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	Bus     Bus    `json:"bus"`
	Location
	// ISCSI is the target that provides the disk; nil if no iSCSI session does.
	ISCSI *ISCSILUN `json:"iscsi,omitempty"`

	Online   bool `json:"online"`
	ReadOnly bool `json:"read_only"`
	// OfflineReason says why the disk is offline, as far as that is known.
	OfflineReason string `json:"offline_reason,omitempty"`
	// Style is the kind of its partition table.
	Style PartitionStyle `json:"partition_style"`
	// DiskID is the GUID in a GPT, or the signature in an MBR as eight hex digits.
	DiskID string `json:"disk_id,omitempty"`
	// SystemReason says why nothing is done to the disk: Windows runs from it. It is empty for
	// all other disks.
	SystemReason string      `json:"system_reason,omitempty"`
	Partitions   []Partition `json:"partitions"`
	// Driver is the driver that the daemon's file of drivers gives the disk to. It is empty if the file gives it
	// to none, or if there is no file.
	Driver string `json:"driver,omitempty"`
	// Error says what the disk doesn't answer. With an Error, a field that has its zero value
	// isn't known: a disk that isn't Online may be online.
	Error string `json:"error,omitempty"`
}

// Identifier is one way in which a disk names itself.
type Identifier struct {
	Kind IdentifierKind `json:"kind"`
	// Text is the identifier. What the disk gives in binary is in lower-case hex digits.
	Text string `json:"text"`
}

// IdentifierKind says what an identifier is.
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

// Buses that drivers meet. There are others.
const (
	BusSCSI  Bus = "SCSI"
	BusISCSI Bus = "iSCSI"
	BusSAS   Bus = "SAS"
	BusSATA  Bus = "SATA"
	BusNVMe  Bus = "NVMe"
	// BusFile is that of a file that is attached as a disk, as a container's scratch space is.
	BusFile Bus = "File Backed Virtual"
)

// Location is where a disk is attached.
type Location struct {
	// Text is what Windows shows, such as "PCI Slot 3 : Adapter 0 : Port 0 : Target 1 : LUN 0".
	Text string `json:"location"`
	// SCSI is the disk's SCSI address. Windows gives one to most NVMe disks, too. It is nil if
	// the bus has none.
	SCSI *SCSIAddress `json:"scsi_address,omitempty"`
	// NVMeNamespace is the id of the NVMe namespace that the disk is; 0 if it isn't one, or if Windows
	// doesn't report it.
	NVMeNamespace uint32 `json:"nvme_namespace,omitempty"`
}

// SCSIAddress is where a disk is attached, in the words of Text.
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

// NoFileSystem is the FileSystem of a partition or volume in which Windows recognises none.
// What is there may still be data.
const NoFileSystem = "raw"

// Partition is a partition of a disk.
type Partition struct {
	Number      uint32 `json:"number"`
	OffsetBytes int64  `json:"offset_bytes"`
	SizeBytes   int64  `json:"size_bytes"`
	// Data is set for a partition that has a volume for users. Reserved and system
	// partitions have none.
	Data bool `json:"data"`
	// VolumeID is empty if the partition has no volume, or if Windows shows none, as while
	// the disk is offline.
	VolumeID VolumeID `json:"volume_id,omitempty"`
	// FileSystem is NTFS, ReFS or what else Windows knows; NoFileSystem if it knows none; and
	// empty if that isn't known, as while the disk is offline.
	FileSystem string `json:"file_system,omitempty"`
	Label      string `json:"label,omitempty"`
	// Paths are where the volume is mounted: directories, and drives as `D:\`. They aren't
	// known while the disk is offline.
	Paths []string `json:"paths,omitempty"`
	// Error says why Windows doesn't report more of the volume.
	Error string `json:"error,omitempty"`
}

// String names the disk for people: its number with what distinguishes it from others.
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
