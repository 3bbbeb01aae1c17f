// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hardware describes the disks of a simulated node. Programs use it by the names
// that package simnode has for it.
package hardware

import (
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Disk is the hardware of a disk. Of the zero value only SizeBytes must be set; the rest
// has the defaults that stand at each field.
type Disk struct {
	SizeBytes  int64  // a multiple of SectorSize, at least 1 MiB
	SectorSize uint32 // of a logical sector: 512 (default) or 4096
	// Serial is the serial number, which no other disk of the node has; default: made from
	// a running number.
	Serial string

	// Page83 are the identifiers of VPD page 0x83; default: one of type NAA, made from
	// Serial.
	Page83 []Designator
	// SCSI is the address; default: the next free LUN of adapter 1.
	SCSI *SCSIAddress
	// Location is Windows' text for where the disk is; default: made from SCSI, as Hyper-V
	// has it.
	Location string
	// BusType is a number of STORAGE_BUS_TYPE; default: 10, which is SAS.
	BusType win.BusType
	// VendorID, ProductID and Revision are what the disk says that it is; default: Msft,
	// Virtual Disk and 1.0.
	VendorID, ProductID, Revision string

	// NVMe makes the disk a namespace of an NVMe controller; default: a SCSI disk. It changes
	// the defaults of Page83, SCSI, Location, BusType, VendorID and ProductID.
	NVMe *NVMe `json:",omitempty"`

	// The Windows error number of a query that the disk's driver doesn't know, which is 1 or
	// 50 on real ones; default: it answers. That of NVMeError is the query for an NVMe
	// namespace. The driver of a disk that isn't one gives 1 anyway.
	Page83Error, LocationError, SCSIAddressError winerr.Errno
	NVMeError                                    winerr.Errno `json:",omitempty"`

	// Offline and ReadOnly are the state in which the disk arrives, as under a SAN policy.
	Offline, ReadOnly bool
	// NeedsRescan keeps the disk from arriving before a rescan.
	NeedsRescan bool
	// MultipathMember makes it a path below a multipath disk: Windows sees it, but gives it
	// no disk number.
	MultipathMember bool
	// Number is the disk number that Windows gives to it, if it is free when the disk
	// arrives; default: the lowest one that is.
	Number *csiproxy.DiskNumber `json:",omitempty"`
	// Late is how much later than others it arrives, after it was attached or found.
	Late time.Duration `json:",omitempty"`
}

// SCSIAddress is where a disk is: PortNumber is the number of the adapter, PathID that of the
// bus, and then come TargetID and LUN, all below 256.
type SCSIAddress = win.SCSIAddress

// Designator is one of the identifiers in VPD page 0x83, with the numbers of SPC: CodeSet (1
// binary, 2 ASCII, 3 UTF-8), Type (0 vendor-specific, 1 T10 vendor id, 2 EUI-64, 3 NAA, 8 SCSI
// name string, and so on), Association (0 the disk, 1 the port, 2 the target), and ID.
type Designator = win.Identifier

// NVMe is what an NVMe disk is besides its bytes.
type NVMe struct {
	// Controller is the serial number of the controller, of at most 20 characters; default:
	// Disk.Serial, which Windows doesn't show, so that an EBS volume id is the Serial of its
	// Disk. Namespaces with the same are of one controller.
	Controller string
	// Namespace is the namespace's id, from 1, the default, to 255. Windows shows namespace
	// n as LUN n-1.
	Namespace uint32
	// EUI64 and NGUID are the ids of the namespace; zero if the controller gives none, as
	// that of AWS. They decide which serial number Windows shows.
	EUI64 [8]byte
	NGUID [16]byte
}
