// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"strings"
)

// Volume is a volume or share that is staged.
type Volume struct {
	// VolumeID is that of a volume, and Share is \\server\share of a share. One of them is
	// empty.
	VolumeID VolumeID `json:"volume_id,omitempty"`
	Share    string   `json:"share,omitempty"`
	// Disk is the disk that a volume lies on; nil if that isn't known, and of a share.
	Disk *DiskNumber `json:"disk_number"`
	// SerialNumber is that of the disk, and DiskID the id in its partition table.
	SerialNumber string `json:"serial_number,omitempty"`
	DiskID       string `json:"disk_id,omitempty"`
	// Driver is the driver that the daemon's file of drivers gives the disk or the share's server to. It is empty
	// if there is none, or if that isn't known.
	Driver string `json:"driver,omitempty"`

	// FileSystem is NTFS, ReFS or what else Windows knows; NoFileSystem if it knows none; and
	// empty if that isn't known, and of a share.
	FileSystem string `json:"file_system,omitempty"`
	Label      string `json:"label,omitempty"`
	// SizeBytes is the capacity of the file system, or of the share for this node. If it is
	// 0, none of the three is known.
	SizeBytes           int64  `json:"size_bytes"`
	UsedBytes           int64  `json:"used_bytes"`
	FreeBytes           int64  `json:"free_bytes"`
	AllocationUnitBytes uint32 `json:"allocation_unit_bytes,omitempty"`
	// ReadOnly is set if nothing can be written to the volume. It isn't known, and false, of a
	// share, and of a volume in which Windows knows no file system.
	ReadOnly bool `json:"read_only"`
	// Unencrypted is set if the share is mapped, and the mapping doesn't require encryption.
	Unencrypted bool `json:"unencrypted,omitempty"`
	// Conditions are what is wrong with the volume, one for each problem.
	Conditions Conditions `json:"conditions"`
}

// Abnormal reports whether something is wrong with the volume.
func (v Volume) Abnormal() bool { return len(v.Conditions) > 0 }

// Condition is a problem of a volume or share: what CSI's VolumeHealthEntry reports.
type Condition struct {
	Reason Reason `json:"reason"`
	// Inaccessible is set if the volume can't be used. Otherwise it is degraded: it can be
	// used, but something must be done about it.
	Inaccessible bool `json:"inaccessible"`
	// Message says more, for people.
	Message string `json:"message"`
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

// Reason says what a condition is. There may be further ones in later versions.
type Reason string

// Reasons of conditions. Those of volumes:
const (
	ReasonDiskMissing    Reason = "DiskMissing"    // its disk has left the node, or is offline
	ReasonDiskUnreadable Reason = "DiskUnreadable" // its disk gives errors when it is asked about itself
	ReasonVolumeOffline  Reason = "VolumeOffline"  // Windows has the volume offline, and not its disk
	ReasonNotFormatted   Reason = "NotFormatted"   // it has no file system that Windows knows
	ReasonUnreadable     Reason = "Unreadable"     // Windows can't read its file system
	ReasonDirty          Reason = "Dirty"          // Windows wants to check its file system
	ReasonGrowthBlocked  Reason = "GrowthBlocked"  // part of its disk is free, and it can't grow into that
	ReasonReadOnly       Reason = "ReadOnly"       // nothing can be written to it, though its disk isn't read-only
	ReasonNotAnswering   Reason = "NotAnswering"   // Windows has not answered for 5 seconds or longer
	ReasonNotMounted     Reason = "NotMounted"     // a link leads to where it was mounted, and it is so no more
)

// Those of shares:
const (
	ReasonShareNotMapped   Reason = "ShareNotMapped"   // the node has no mapping of the share
	ReasonShareRefused     Reason = "ShareRefused"     // the server refuses the user of the mapping
	ReasonShareUnreachable Reason = "ShareUnreachable" // the server doesn't answer, or has no such share
	ReasonShareUnknown     Reason = "ShareUnknown"     // Windows doesn't list which shares are mapped; only in lists
)

// MountKind is how something is mounted.
type MountKind string

// Kinds of mounts.
const (
	MountKindMountPoint MountKind = "mount point" // a volume, mounted at Path
	MountKindLink       MountKind = "link"        // Path is a link to another path
	MountKindShare      MountKind = "share"       // Path is a link to a share
	MountKindMapping    MountKind = "mapping"     // a share's mapping, without a path
)

// Mount is something that is mounted on the node.
type Mount struct {
	Kind MountKind `json:"kind"`
	// Path is where it is mounted; empty for a Mapping.
	Path string `json:"path,omitempty"`
	// Target is where Path leads: a path, or \\server\share… of a share.
	Target string `json:"target"`
	// Volume is what is mounted. For a Link it is the zero value.
	Volume Volume `json:"volume,omitzero"`
	// LeftoverReason says why nobody needs the mount any more; it is empty if somebody may.
	LeftoverReason string `json:"leftover_reason,omitempty"`
	// ForgottenPod is the UID of the pod whose Link this is, if kubelet has lost what it needs to
	// unpublish the volume: vol_data.json beside the link is missing or empty. Until the link is
	// removed, the volume can't be unstaged. The pod may still run, so nobody may remove the link
	// unless neither kubelet nor the API server has the pod. Else it is empty.
	ForgottenPod string `json:"forgotten_pod,omitempty"`
}

// VolumeList is what ListVolumes has found.
type VolumeList struct {
	// Mounts are in the order of their paths; mappings come last.
	Mounts []Mount `json:"mounts"`
	// IncompleteReason says what couldn't be looked at, and why. It is empty if the list is
	// complete.
	IncompleteReason string `json:"incomplete_reason"`
}

// Complete reports whether the list has all that is mounted.
func (l VolumeList) Complete() bool { return l.IncompleteReason == "" }
