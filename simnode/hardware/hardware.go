// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hardware describes the disks of a simulated node. Package simnode has aliases for all
// types of this package; programs use the aliases.
package hardware

import (
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Disk is the hardware of a disk. Only SizeBytes must be set; each other field has a default.
type Disk struct {
	SizeBytes  int64  // a multiple of SectorSize, at least 1 MiB
	SectorSize uint32 // of a logical sector: 512 (default) or 4096
	// Serial is the serial number, unique among the disks of the node; default: made from a running
	// number.
	Serial string

	// Page83 are the identifiers of VPD page 0x83; default: one of type NAA, made from Serial.
	Page83 []Designator
	// SCSI is the address; default: the next free LUN of adapter 1.
	SCSI *SCSIAddress
	// Location is Windows' text for the disk's location; default: made from SCSI, in the form of
	// Hyper-V.
	Location string
	// BusType is a number of STORAGE_BUS_TYPE; default: 10 (SAS).
	BusType win.BusType
	// VendorID, ProductID and Revision are the disk's inquiry data; default: Msft, Virtual Disk and
	// 1.0.
	VendorID, ProductID, Revision string

	// NVMe makes the disk a namespace of an NVMe controller; default: a SCSI disk. NVMe changes the
	// defaults of Page83, SCSI, Location, BusType, VendorID and ProductID.
	NVMe *NVMe `json:",omitempty"`

	// Windows error numbers of queries unknown to the disk's driver, 1 or 50 on real drivers;
	// default: the query succeeds. NVMeError is for the NVMe namespace query. The driver of a SCSI
	// disk always fails this query with 1.
	Page83Error, LocationError, SCSIAddressError winerr.Errno
	NVMeError                                    winerr.Errno `json:",omitempty"`

	// Offline and ReadOnly are the state in which the disk arrives, as under a SAN policy.
	Offline, ReadOnly bool
	// NeedsRescan delays the disk's arrival until a rescan.
	NeedsRescan bool
	// MultipathMember makes the disk a path below a multipath disk: Windows sees the path, but
	// assigns no disk number.
	MultipathMember bool
	// Number is the disk number assigned by Windows, if free when the disk arrives; default: the
	// lowest free number.
	Number *csiproxy.DiskNumber `json:",omitempty"`
	// Late delays the disk's arrival after the attachment or the rescan.
	Late time.Duration `json:",omitempty"`
}

// SCSIAddress is a disk's address: PortNumber is the number of the adapter, PathID the number of
// the bus, followed by TargetID and LUN, all below 256.
type SCSIAddress = win.SCSIAddress

// Designator is an identifier in VPD page 0x83, with the numbers of SPC: CodeSet (1 binary, 2
// ASCII, 3 UTF-8), Type (0 vendor-specific, 1 T10 vendor id, 2 EUI-64, 3 NAA, 8 SCSI name string,
// and so on), Association (0 the disk, 1 the port, 2 the target), and ID.
type Designator = win.Identifier

// NVMe has the NVMe properties of a disk.
type NVMe struct {
	// Controller is the serial number of the controller, at most 20 characters; default:
	// Disk.Serial. Windows never shows the Disk.Serial of an NVMe disk, so give an EBS volume id as
	// the Serial of its Disk. Namespaces with the same Controller share a controller.
	Controller string
	// Namespace is the namespace's id, from 1, the default, to 255. Windows shows namespace
	// n as LUN n-1.
	Namespace uint32
	// EUI64 and NGUID are the ids of the namespace; zero if the controller gives none, like the
	// controller of AWS. They decide which serial number Windows shows.
	EUI64 [8]byte
	NGUID [16]byte
}
