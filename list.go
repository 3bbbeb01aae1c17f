// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"strings"
)

// Volume is a staged volume or share.
type Volume struct {
	// Exactly one of VolumeID and Share, \\server\share, is set.
	VolumeID VolumeID `json:"volume_id,omitempty"`
	Share    string   `json:"share,omitempty"`
	// Disk is the disk of a volume; nil if unknown, and for a share.
	Disk *DiskNumber `json:"disk_number"`
	// SerialNumber belongs to the disk. DiskID is the id in the disk's partition table.
	SerialNumber string `json:"serial_number,omitempty"`
	DiskID       string `json:"disk_id,omitempty"`
	// Driver is the owner of the disk or the share's server in the daemon's file of drivers. Empty
	// if there is none, or if unknown.
	Driver string `json:"driver,omitempty"`

	// FileSystem is NTFS, ReFS or another file system known to Windows; NoFileSystem if Windows
	// recognises none; and empty if unknown, and for a share.
	FileSystem string `json:"file_system,omitempty"`
	Label      string `json:"label,omitempty"`
	// SizeBytes is the capacity of the file system, or of the share for this node. If SizeBytes is
	// 0, all three sizes are unknown.
	SizeBytes           int64  `json:"size_bytes"`
	UsedBytes           int64  `json:"used_bytes"`
	FreeBytes           int64  `json:"free_bytes"`
	AllocationUnitBytes uint32 `json:"allocation_unit_bytes,omitempty"`
	// ReadOnly is set if all writes to the volume fail. ReadOnly is unknown, and false, for a share
	// and for a volume with NoFileSystem.
	ReadOnly bool `json:"read_only"`
	// Unencrypted is set if the share is mapped, and the mapping doesn't require encryption.
	Unencrypted bool `json:"unencrypted,omitempty"`
	// Conditions are the volume's problems.
	Conditions Conditions `json:"conditions"`
}

// Abnormal reports whether the volume has problems.
func (v Volume) Abnormal() bool { return len(v.Conditions) > 0 }

// Condition is a problem of a volume or share, in the form of CSI's VolumeHealthEntry.
type Condition struct {
	Reason Reason `json:"reason"`
	// Inaccessible is set if the volume is unusable. Otherwise the volume is degraded: still
	// usable, but in need of attention.
	Inaccessible bool `json:"inaccessible"`
	// Message has details, for people.
	Message string `json:"message"`
}

// String returns the reason with the message.
func (c Condition) String() string { return string(c.Reason) + ": " + c.Message }

// Conditions are the problems of a volume or share.
type Conditions []Condition

// String returns all conditions in one line.
func (all Conditions) String() string {
	var texts []string
	for _, c := range all {
		texts = append(texts, c.String())
	}
	return strings.Join(texts, "; ")
}

// Reason is the kind of a condition. Later versions may add kinds.
type Reason string

// Reasons of volumes:
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

// Reasons of shares:
const (
	ReasonShareNotMapped   Reason = "ShareNotMapped"   // the node has no mapping of the share
	ReasonShareRefused     Reason = "ShareRefused"     // the server refuses the user of the mapping
	ReasonShareUnreachable Reason = "ShareUnreachable" // the server doesn't answer, or has no such share
	ReasonShareUnknown     Reason = "ShareUnknown"     // Windows doesn't list which shares are mapped; only in lists
)

// MountKind is the kind of a mount.
type MountKind string

// Kinds of mounts.
const (
	MountKindMountPoint MountKind = "mount point" // a volume, mounted at Path
	MountKindLink       MountKind = "link"        // Path is a link to another path
	MountKindShare      MountKind = "share"       // Path is a link to a share
	MountKindMapping    MountKind = "mapping"     // a share's mapping, without a path
)

// Mount is a mount point, link or mapping on the node.
type Mount struct {
	Kind MountKind `json:"kind"`
	// Path is the place of the mount; empty for a Mapping.
	Path string `json:"path,omitempty"`
	// Target is where Path leads: a path, or \\server\share… for a share.
	Target string `json:"target"`
	// Volume is the mounted volume or share. For a Link, Volume is the zero value.
	Volume Volume `json:"volume,omitzero"`
	// LeftoverReason says why the mount is unneeded; empty if the mount may still be needed.
	LeftoverReason string `json:"leftover_reason,omitempty"`
	// ForgottenPod is the UID of the pod that owns this Link, if kubelet can no longer unpublish
	// the volume: vol_data.json beside the link is missing or empty. Until the link is removed, the
	// volume stays staged. The pod may still run: remove the link only if both kubelet and the API
	// server have lost the pod. Empty for all other mounts.
	ForgottenPod string `json:"forgotten_pod,omitempty"`
}

// VolumeList is the result of ListVolumes.
type VolumeList struct {
	// Mounts are in the order of their paths; mappings come last.
	Mounts []Mount `json:"mounts"`
	// IncompleteReason names the places that couldn't be searched, and why. Empty if the list is
	// complete.
	IncompleteReason string `json:"incomplete_reason"`
}

// Complete reports whether the list has all mounts.
func (l VolumeList) Complete() bool { return l.IncompleteReason == "" }
