// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// VolumeOperations are the operations on volumes. In the paths of this group a slash is a separator,
// like a backslash.
type VolumeOperations interface {
	// ListVolumesOnDisk returns the volumes of a disk's data partitions. If partition isn't
	// 0, it returns the volume of that partition only. Reserved and system partitions have
	// no volume for users, so a disk without data partitions gives an empty list. The call
	// waits for volumes that are still arriving. If one doesn't arrive, the error is
	// csiproxy.ErrUnavailable: a list is always complete. The volumes of an offline disk
	// can't be known: that is csiproxy.ErrFailedPrecondition.
	ListVolumesOnDisk(ctx context.Context, n csiproxy.DiskNumber, partition uint32) ([]csiproxy.VolumeID, error)
	// DataVolumeOfDisk returns the volume of a disk that has exactly one data partition.
	// Several data partitions are csiproxy.ErrFailedPrecondition, none is
	// csiproxy.ErrNotFound.
	DataVolumeOfDisk(ctx context.Context, n csiproxy.DiskNumber) (csiproxy.VolumeID, error)
	// MountVolume mounts a volume at a directory on NTFS. It makes the directory, and those
	// above it, if they are missing. If the volume is mounted there already, it succeeds.
	//
	// csiproxy.ErrFailedPrecondition means that another volume is mounted there, that the
	// directory isn't empty, that its file system isn't NTFS, or that the volume is
	// protected. Protected volumes are those of disks that Windows runs from, those that
	// hold an allowed directory, and those that the administrator has named.
	MountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error
	// UnmountVolume writes the volume's cache to its disk and removes the mount point. The
	// directory stays. If nothing is mounted there, it succeeds, even if the path or the
	// volume doesn't exist. If another volume is mounted there, the error is
	// csiproxy.ErrFailedPrecondition. A volume whose disk has left the node can be
	// unmounted too.
	UnmountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error
	// IsVolumeFormatted reports whether a volume has a file system that Windows knows. It
	// is false only if Windows says that the volume is raw. A volume that BitLocker has
	// locked, or that can't be read, is an error.
	IsVolumeFormatted(ctx context.Context, id csiproxy.VolumeID) (formatted bool, err error)
	// FormatVolume makes an NTFS file system on a raw volume: a quick format with Windows'
	// defaults. A volume that has a file system is refused with
	// csiproxy.ErrFailedPrecondition, unless it is mounted in one of
	// node.Options.ReformatDirs. So is a volume with recognised data of another system,
	// unless node.Options.AllowRecognizedData is set. If somebody else has the volume open,
	// the call tries again for some seconds, and checks the content before each attempt.
	FormatVolume(ctx context.Context, id csiproxy.VolumeID) error
	// ResizeVolume grows a volume's partition and file system to sizeBytes. The volume never
	// gets larger than that. It may stay up to 20 MiB smaller if the disk has no more. If
	// sizeBytes is 0 or the size of the disk, the volume grows as far as the disk allows.
	//
	// Nothing is changed, and the call succeeds, if the volume has that size already or is
	// larger, if it would grow by less than 1 MiB, or if sizeBytes is 0 and its file system
	// can't grow. Windows can grow NTFS and ReFS on basic disks only. A file system that is
	// smaller than its partition, which a crash between the two steps leaves behind, is
	// always grown to the partition.
	//
	// A size that exceeds the disk by more than 20 MiB is csiproxy.ErrFailedPrecondition. A
	// size for which other partitions leave no room is csiproxy.ErrResourceExhausted.
	ResizeVolume(ctx context.Context, id csiproxy.VolumeID, sizeBytes int64) error
	// GetVolumeStats returns the size and the use of a volume's file system, in bytes. A raw
	// volume is csiproxy.ErrFailedPrecondition.
	GetVolumeStats(ctx context.Context, id csiproxy.VolumeID) (VolumeStats, error)
	// GetDiskNumberFromVolumeID returns the disk that a volume is on. A volume on several
	// disks is csiproxy.ErrFailedPrecondition.
	GetDiskNumberFromVolumeID(ctx context.Context, id csiproxy.VolumeID) (csiproxy.DiskNumber, error)
	// GetVolumeIDFromTargetPath returns the volume that is mounted at a path, or where the
	// links at that path lead. If no volume is mounted there, or nothing is at the path, the
	// error is csiproxy.ErrNotFound. Its text contains "because it does not exist": drivers
	// search for these words to know that a volume isn't mounted yet.
	GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (csiproxy.VolumeID, error)
	// GetClosestVolumeIDFromTargetPath follows the links at a path and returns the volume
	// that it ends on: that of the nearest mount point above, or else that of the drive. For
	// a link whose target is missing, it is the volume of the directory that the target
	// would be in. A path that doesn't exist is csiproxy.ErrNotFound. A path that leads to a
	// share is csiproxy.ErrFailedPrecondition.
	GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (csiproxy.VolumeID, error)
	// WriteVolumeCache writes everything that Windows has cached of a volume to its disk.
	WriteVolumeCache(ctx context.Context, id csiproxy.VolumeID) error
}

// VolumeStats are the figures of a volume's file system.
type VolumeStats struct {
	SizeBytes int64 `json:"size_bytes"` // capacity of the file system in bytes
	UsedBytes int64 `json:"used_bytes"` // bytes of it in use
}
