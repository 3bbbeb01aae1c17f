// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"strconv"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Number is a Windows disk number: the N of \\.\PhysicalDriveN and the Number
// property of MSFT_Disk. Windows gives it when the disk arrives; it is stable
// only until the disk leaves.
type Number uint32

// String returns the number in decimal.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// ParseNumber reads a disk number from its decimal form, as the older API
// versions carry it. Anything else, also a number that doesn't fit into 32 bits,
// is csiproxy.ErrInvalidArgument.
func ParseNumber(s string) (Number, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, &csiproxy.Error{
			Op:     "ParseNumber",
			Object: strconv.Quote(s),
			Kind:   csiproxy.ErrInvalidArgument,
			Detail: "not a 32-bit decimal number",
		}
	}
	return Number(n), nil
}

// Location is where a disk is attached, in Windows' words, each part a decimal
// string without padding; a part that the bus doesn't have is empty.
type Location struct {
	Adapter string // number of the host bus adapter
	Bus     string // PCI bus of the adapter; empty if not known
	Target  string // SCSI target
	LUNID   string // SCSI logical unit number
}

// IDs are the identities that a disk reports of itself.
type IDs struct {
	// Page83 is the first device-associated identifier of VPD page 0x83 whose
	// code set is ASCII (text as is) or binary (lower-case hex); empty if the
	// disk has none or its bus can't ask.
	Page83 string
	// SerialNumber is the disk's serial number, without blanks around it.
	SerialNumber string
}

// Stats are the figures of a disk.
type Stats struct {
	TotalBytes int64 // size in bytes
}
