// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/csi-proxy/csi-proxy/disk"
)

// Operations are the operations of this group, with the same meaning in process
// (package node) and over the pipe (package client). All methods may be called
// concurrently. Errors are of the classes in package csiproxy.
type Operations interface {
	// ListVolumesOnDisk returns the volumes of a disk's data partitions, or of one
	// partition if partition isn't 0. Reserved and system partitions have none; a
	// disk without data partitions gives an empty list. If a volume is still
	// arriving, it is waited for; one that doesn't arrive gives csiproxy.ErrUnavailable,
	// so that a list is always complete. A disk that is offline gives
	// csiproxy.ErrFailedPrecondition, since its volumes can't be known.
	ListVolumesOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]ID, error)
	// DataVolumeOfDisk returns the volume of a disk that has exactly one data
	// partition. Several give csiproxy.ErrFailedPrecondition, none gives
	// csiproxy.ErrNotFound.
	DataVolumeOfDisk(ctx context.Context, n disk.Number) (ID, error)
	// MountVolume presents a volume at a directory, which is made if it is missing,
	// with those above it. It is a success if the volume is mounted there already.
	// Anything else there, another volume or entries in the directory, gives
	// csiproxy.ErrFailedPrecondition. So does a protected volume: one that belongs to
	// the node itself, holds an allowed directory, or is named by the administrator.
	// The file system of the directory must be NTFS.
	//
	// In all paths of this group a slash separates like a backslash.
	MountVolume(ctx context.Context, id ID, targetPath string) error
	// UnmountVolume writes out what is cached of a volume and removes its mount
	// point at a directory; the directory stays. It is a success if nothing is
	// mounted there, also if the path or even the volume doesn't exist. If another
	// volume is mounted there it gives csiproxy.ErrFailedPrecondition. A volume whose disk has left the
	// node is unmounted all the same.
	UnmountVolume(ctx context.Context, id ID, targetPath string) error
	// IsVolumeFormatted reports whether a volume has a file system that Windows
	// knows. It is false only where Windows says that the volume is raw: a volume
	// that is locked by BitLocker or can't be read is an error.
	IsVolumeFormatted(ctx context.Context, id ID) (formatted bool, err error)
	// FormatVolume gives a raw volume an NTFS file system, quickly and with
	// Windows' defaults. It refuses with csiproxy.ErrFailedPrecondition a volume
	// that has a file system that Windows knows, or whose content is recognised as
	// data of another system: see Options.AllowRecognizedData. A volume that somebody else
	// has open for a moment is waited for; it is looked at again before each attempt.
	FormatVolume(ctx context.Context, id ID) error
	// ResizeVolume grows a volume's partition and file system to sizeBytes, never above
	// it, or as far as its disk allows if sizeBytes is 0 or the size of the disk. It may
	// stay up to 20 MiB below sizeBytes where the disk has no more. It is a success
	// without any change if the volume is that large already, or larger, or by less than
	// 1 MiB smaller, or if sizeBytes is 0 and its file system can't grow.
	//
	// More than the disk has by over 20 MiB is csiproxy.ErrFailedPrecondition, more than
	// other partitions leave is csiproxy.ErrResourceExhausted. Windows can grow only NTFS
	// and ReFS on basic disks.
	//
	// A file system that is smaller than its partition, as a crash between the two
	// steps leaves it, is grown to the partition in any case.
	ResizeVolume(ctx context.Context, id ID, sizeBytes int64) error
	// GetVolumeStats returns the size and use of a volume's file system. A raw
	// volume gives csiproxy.ErrFailedPrecondition.
	GetVolumeStats(ctx context.Context, id ID) (Stats, error)
	// GetDiskNumberFromVolumeID returns the disk that a volume lies on. A volume on
	// several disks gives csiproxy.ErrFailedPrecondition.
	GetDiskNumberFromVolumeID(ctx context.Context, id ID) (disk.Number, error)
	// GetVolumeIDFromTargetPath returns the volume that is mounted at a path, or at
	// the end of the links there. Otherwise, also if nothing is at the path, it gives
	// csiproxy.ErrNotFound with a message that has the words "because it does not
	// exist": drivers look for them to tell that a volume isn't mounted yet.
	GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (ID, error)
	// GetClosestVolumeIDFromTargetPath returns the volume that holds what is at a
	// path, links followed: of the nearest mount point above it or, at last, of the
	// drive. A link whose target is missing counts by the directory it would be in.
	// A path that doesn't exist gives csiproxy.ErrNotFound, one that leads to a share
	// csiproxy.ErrFailedPrecondition.
	GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (ID, error)
	// WriteVolumeCache writes out everything that Windows has cached of a volume.
	WriteVolumeCache(ctx context.Context, id ID) error
}
