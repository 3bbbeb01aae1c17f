// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// VolumeFinder finds volumes.
type VolumeFinder interface {
	Opener
	// FindVolumes returns the names of all volumes, \\?\Volume{guid}\.
	FindVolumes(ctx context.Context) ([]string, error)
}

// Volume is a volume of one disk.
type Volume struct {
	Name            string // \\?\Volume{guid}\
	PartitionNumber uint32
}

// VolumePath is the path under which the device of a volume is opened: its name
// without the backslash, which would open the root directory of its file system.
func VolumePath(name string) string { return strings.TrimSuffix(name, `\`) }

// PartitionPath is the path of a partition's device. It is there before the
// partition's volume has a name.
func PartitionPath(disk, partition uint32) string {
	return fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition%d`, disk, partition)
}

// VolumesOnDisk returns the volumes that lie on one partition of a disk. Those
// of other devices, and those that vanish while it looks, are left out.
func VolumesOnDisk(ctx context.Context, sys VolumeFinder, disk uint32) ([]Volume, error) {
	names, err := sys.FindVolumes(ctx)
	if err != nil {
		return nil, err
	}
	var volumes []Volume
	for _, name := range names {
		number, err := VolumeNumber(ctx, sys, name)
		var errno win.Errno
		if errors.As(err, &errno) {
			continue // a CD drive, a volume on several disks, a disk that has left
		}
		if err != nil {
			return nil, err
		}
		if number.DeviceType == win.FileDeviceDisk && number.DeviceNumber == disk &&
			number.PartitionNumber != win.NoNumber && number.PartitionNumber != 0 {
			volumes = append(volumes, Volume{name, number.PartitionNumber})
		}
	}
	return volumes, nil
}

// VolumeNumber returns the disk and the partition that a volume lies on. A
// volume on several partitions gives win.ErrorInvalidFunction.
func VolumeNumber(ctx context.Context, sys Opener, name string) (win.DeviceNumber, error) {
	h, err := Open(ctx, sys, VolumePath(name), win.AccessNone)
	if err != nil {
		return win.DeviceNumber{}, err
	}
	defer h.Close()
	return h.Number(ctx)
}

// DataPartitions returns the numbers of the partitions in a table that have a
// volume for users: of basic data and not hidden on a GPT disk, any on an MBR
// disk.
func DataPartitions(l *win.DriveLayout) []uint32 {
	var numbers []uint32
	for _, p := range l.Partitions {
		if IsDataPartition(p) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// IsDataPartition reports whether a partition has a volume for users.
func IsDataPartition(p win.Partition) bool {
	switch p.Style {
	case win.StyleGPT:
		return p.Type == win.PartitionTypeBasicData && p.Attributes&win.GPTAttributeHidden == 0
	case win.StyleMBR:
		return recognizedMBRTypes[p.MBRType] && p.StartingOffset > 0
	}
	return false
}

// recognizedMBRTypes are the MBR partition types for which Windows makes a
// volume: those of FAT, NTFS and exFAT.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/disk-partition-types
var recognizedMBRTypes = map[byte]bool{
	0x01: true, 0x04: true, 0x06: true, 0x07: true, 0x0B: true, 0x0C: true, 0x0E: true,
}
