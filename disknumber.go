// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"fmt"
	"strconv"
)

// DiskNumber is a Windows disk number: the N of \\.\PhysicalDriveN and the Number property of
// MSFT_Disk. Windows assigns the number when the disk arrives. After the disk has left, another
// disk may get the same number.
type DiskNumber uint32

// String returns the number in decimal.
func (n DiskNumber) String() string { return strconv.FormatUint(uint64(n), 10) }

// ParseDiskNumber reads a disk number from its decimal form, used by the older API versions. Any
// other text is an error, as is a number over 32 bits.
func ParseDiskNumber(s string) (DiskNumber, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("disk number %q is not a 32-bit decimal number", s)
	}
	return DiskNumber(n), nil
}
