// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"

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

	// FileSystem is NTFS, ReFS or what else Windows knows; NoFileSystem if it knows none; and
	// empty if that isn't known, and of a share.
	FileSystem string
	Label      string
	// SizeBytes is the capacity of the file system, or of the share for this node. If it is
	// 0, none of the three is known.
	SizeBytes, UsedBytes, FreeBytes int64
	AllocationUnitBytes             uint32
	// ReadOnly is set if nothing can be written to the volume. It isn't known, and false, of a
	// volume whose FileSystem isn't known.
	ReadOnly bool
	// Conditions are what is wrong with the volume, one for each problem.
	Conditions Conditions
}

// Abnormal reports whether something is wrong with the volume.
func (v Volume) Abnormal() bool { return len(v.Conditions) > 0 }

// Condition is a problem of a volume or share: what CSI's VolumeHealthEntry tells.
type Condition struct {
	Reason Reason
	// Inaccessible is set if the volume can't be used. Otherwise it is degraded: it can be
	// used, but something must be done about it.
	Inaccessible bool
	// Message says more, for people.
	Message string
}

// String returns the reason with the message.
func (c Condition) String() string { return string(c.Reason) + ": " + c.Message }

// Conditions are the problems of a volume or share.
type Conditions []Condition

// String returns all of them in one line.
func (all Conditions) String() string {
	var texts []string
	for _, c := range all {
		texts = append(texts, c.String())
	}
	return strings.Join(texts, "; ")
}

// Reason tells what a condition is. There may be further ones in later versions.
type Reason string

// Reasons of conditions. Those of volumes:
const (
	DiskMissing    Reason = "DiskMissing"    // its disk has left the node, or is offline
	DiskUnreadable Reason = "DiskUnreadable" // its disk gives errors when it is asked about itself
	VolumeOffline  Reason = "VolumeOffline"  // Windows has the volume offline, and not its disk
	NotFormatted   Reason = "NotFormatted"   // it has no file system that Windows knows
	Unreadable     Reason = "Unreadable"     // Windows can't read its file system
	Dirty          Reason = "Dirty"          // Windows wants to check its file system
	ReadOnly       Reason = "ReadOnly"       // nothing can be written to it, though its disk isn't read-only
	NotAnswering   Reason = "NotAnswering"   // Windows has not answered for 5 seconds or longer
)

// Those of shares:
const (
	ShareNotMapped   Reason = "ShareNotMapped"   // the node has no mapping of the share
	ShareRefused     Reason = "ShareRefused"     // the server refuses the user of the mapping
	ShareUnreachable Reason = "ShareUnreachable" // the server doesn't answer, or has no such share
	ShareUnknown     Reason = "ShareUnknown"     // Windows doesn't tell which shares are mapped; only in lists
)

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
	// LeftoverReason says why nobody needs the mount any more; it is empty if somebody may.
	LeftoverReason string
}

// VolumeList is what ListVolumes has found.
type VolumeList struct {
	Mounts []Mount // in the order of their paths; mappings come last
	// IncompleteReason says what couldn't be looked at, and why. It is empty if the list is
	// complete.
	IncompleteReason string
}

// Complete reports whether the list has all that is mounted.
func (l VolumeList) Complete() bool { return l.IncompleteReason == "" }
