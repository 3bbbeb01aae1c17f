// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// VolumeOperations are the operations on volumes. In paths, a slash is a separator, like a
// backslash.
type VolumeOperations interface {
	// ListVolumesOnDisk returns the volumes of a disk's data partitions; with a partition above
	// 0, only the volume of the partition. Reserved and system partitions have no volume for
	// users. The call waits for arriving volumes. If a volume stays away, the error is
	// csiproxy.ErrUnavailable: a list is always complete. An offline disk, whose volumes are
	// unknown, is csiproxy.ErrFailedPrecondition.
	ListVolumesOnDisk(ctx context.Context, n csiproxy.DiskNumber, partition uint32) ([]csiproxy.VolumeID, error)
	// DataVolumeOfDisk returns the volume of a disk with exactly one data partition. Several
	// data partitions are csiproxy.ErrFailedPrecondition; a disk without any is
	// csiproxy.ErrNotFound.
	DataVolumeOfDisk(ctx context.Context, n csiproxy.DiskNumber) (csiproxy.VolumeID, error)
	// MountVolume mounts a volume at a directory on NTFS. It makes the directory and the missing
	// parents. If the volume is mounted at the directory, MountVolume succeeds.
	//
	// csiproxy.ErrFailedPrecondition means: a different volume is mounted at the directory, the
	// directory has entries, its file system isn't NTFS, or the volume is protected. Protected
	// volumes are the volumes of Windows' own disks, volumes with an allowed directory, and the
	// volumes named by the administrator.
	MountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error
	// UnmountVolume writes the volume's cache to its disk and removes the mount point. The
	// directory stays. If nothing is mounted at the path, UnmountVolume succeeds, even if the
	// path or the volume is missing. If a different volume is mounted there, the error is
	// csiproxy.ErrFailedPrecondition. UnmountVolume also unmounts a volume whose disk has left
	// the node.
	UnmountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error
	// IsVolumeFormatted reports whether a volume has a file system known to Windows. The result
	// is false only for a volume that Windows reports as raw. A volume locked by BitLocker, or
	// unreadable, is an error.
	IsVolumeFormatted(ctx context.Context, id csiproxy.VolumeID) (formatted bool, err error)
	// FormatVolume makes an NTFS file system on a raw volume: a quick format with Windows'
	// defaults. A volume with a file system is csiproxy.ErrFailedPrecondition, unless it is
	// mounted in one of node.Options.ReformatDirs. So is a volume with recognised data of
	// another system, unless node.Options.AllowRecognizedData is set. If another process has
	// the volume open, FormatVolume retries for some seconds, and checks the content before
	// each attempt.
	FormatVolume(ctx context.Context, id csiproxy.VolumeID) error
	// ResizeVolume grows a volume's partition and file system to sizeBytes at most, and up to
	// 20 MiB less if the disk has no more. If sizeBytes is 0 or the size of the disk, the volume
	// grows as far as the disk allows.
	//
	// ResizeVolume succeeds without a change if the volume has the size or is larger, if the
	// growth would be below 1 MiB, or if sizeBytes is 0 and the file system can't grow. Windows
	// can grow NTFS and ReFS on basic disks only. A crash between the two steps leaves a file
	// system smaller than its partition; ResizeVolume always grows such a file system.
	//
	// A size beyond the disk's by more than 20 MiB is csiproxy.ErrFailedPrecondition. If other
	// partitions leave too little room, the error is csiproxy.ErrResourceExhausted.
	ResizeVolume(ctx context.Context, id csiproxy.VolumeID, sizeBytes int64) error
	// GetVolumeStats returns the size and the use of a volume's file system. A raw volume is
	// csiproxy.ErrFailedPrecondition.
	GetVolumeStats(ctx context.Context, id csiproxy.VolumeID) (VolumeStats, error)
	// GetDiskNumberFromVolumeID returns the disk of a volume. A volume on several disks is
	// csiproxy.ErrFailedPrecondition.
	GetDiskNumberFromVolumeID(ctx context.Context, id csiproxy.VolumeID) (csiproxy.DiskNumber, error)
	// GetVolumeIDFromTargetPath returns the volume mounted at a path, following links. If the
	// path has no volume or is missing, the error is csiproxy.ErrNotFound. The error's text
	// contains "because it does not exist": drivers search for these words to learn that a
	// volume is yet to be mounted.
	GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (csiproxy.VolumeID, error)
	// GetClosestVolumeIDFromTargetPath follows the links at a path and returns the volume at
	// their end: the volume of the nearest mount point above, or the drive's. For a link with a
	// missing target, the result is the volume of the target's directory. A missing path is
	// csiproxy.ErrNotFound. A path to a share is csiproxy.ErrFailedPrecondition.
	GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (csiproxy.VolumeID, error)
	// WriteVolumeCache writes Windows' cache of a volume to the volume's disk.
	WriteVolumeCache(ctx context.Context, id csiproxy.VolumeID) error
}

// VolumeStats are the figures of a volume's file system.
type VolumeStats struct {
	SizeBytes int64 `json:"size_bytes"` // capacity of the file system in bytes
	UsedBytes int64 `json:"used_bytes"` // bytes of it in use
}
