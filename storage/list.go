// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Volume is a volume or share that is staged.
type Volume struct {
	// VolumeID is that of a volume, and Share is \\server\share of a share. One of them is
	// empty.
	VolumeID volume.ID
	Share    string
	// Disk is the disk that a volume lies on; nil if that isn't known, and of a share.
	Disk *disk.Number
	// SerialNumber is that of the disk, and DiskID the id in its partition table.
	SerialNumber string
	DiskID       string

	FileSystem string // NTFS, ReFS or what else Windows knows; empty if it is raw, and of a share
	Label      string
	// TotalBytes is the capacity of the file system, or of the share for this node.
	TotalBytes, UsedBytes, FreeBytes int64
	AllocationUnitBytes              uint32
	// ReadOnly is set if nothing can be written to the volume.
	ReadOnly bool
	// Abnormal is set if something is wrong with the volume, and Condition says what: CSI's
	// volume condition.
	Abnormal  bool
	Condition string
}

// MountKind is how something is mounted.
type MountKind string

// Kinds of mounts.
const (
	MountPoint MountKind = "mount point" // a volume, mounted at Path
	Link       MountKind = "link"        // Path is a link to another path
	ShareLink  MountKind = "share"       // Path is a link to a share
	Mapping    MountKind = "mapping"     // a share's mapping, without a path
)

// Mount is something that is mounted on the node.
type Mount struct {
	Kind MountKind
	// Path is where it is mounted; empty for a Mapping.
	Path string
	// Target is where Path leads: a path, or \\server\share… of a share.
	Target string
	// Volume is what is mounted. For a Link it is the zero value.
	Volume Volume
	// Leftover says why nobody needs it any more; it is empty if somebody may.
	Leftover string
}

// VolumeList is what ListVolumes has found.
type VolumeList struct {
	Mounts []Mount // in the order of their paths; mappings come last
	// Complete is false if a directory couldn't be looked at.
	Complete bool
}
