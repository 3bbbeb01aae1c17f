// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disk holds the words for a node's disks: their numbers and identities, and
// the operations on them.
package disk

import (
	"fmt"
	"strconv"
)

// Number is a Windows disk number: the N of \\.\PhysicalDriveN and the Number
// property of MSFT_Disk. Windows assigns it when the disk arrives. It names that disk
// only until the disk leaves; another disk may get the same number later.
type Number uint32

// String returns the number in decimal.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// ParseNumber reads a disk number from its decimal form, as the older API versions
// carry it. Anything else is an error, also a number that doesn't fit into 32 bits.
func ParseNumber(s string) (Number, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("disk number %q is not a 32-bit decimal number", s)
	}
	return Number(n), nil
}

// Location is where a disk is attached, in Windows' words. Each part is a decimal
// string without padding. A part that the bus doesn't have is empty.
type Location struct {
	Adapter string `json:"adapter"` // number of the host bus adapter
	Bus     string `json:"bus"`     // PCI bus of the adapter; empty if not known
	Target  string `json:"target"`  // SCSI target
	LUNID   string `json:"lun_id"`  // SCSI logical unit number
}

// IDs are the identities that a disk reports of itself.
type IDs struct {
	// Page83 is the first device-associated identifier of VPD page 0x83 whose
	// code set is ASCII (text as is) or binary (lower-case hex). It is empty if the
	// disk has none or its bus can't ask.
	Page83 string `json:"page83"`
	// SerialNumber is the disk's serial number, without blanks around it.
	SerialNumber string `json:"serial_number"`
}

// Stats are the figures of a disk.
type Stats struct {
	SizeBytes int64 `json:"size_bytes"` // size in bytes
}
