// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// DefaultWait is how long StageVolume waits for a disk, and ExpandVolume for a disk to
// grow, if the request doesn't say.
const DefaultWait = 30 * time.Second

// StageVolumeRequest says which disk is to be staged, where, and how. Only Disk and
// StagingPath must be set.
type StageVolumeRequest struct {
	// Disk says which disk is meant. The zero value, which matches every disk, is refused.
	Disk Selector
	// Login is how the node logs in to the iSCSI target, if the selector names one and the
	// node isn't connected.
	Login ISCSILogin
	// StagingPath is the directory at which the volume is mounted. It is made if it is
	// missing.
	StagingPath string
	// Partition is the number of the partition whose volume is meant; 0 stands for the only
	// data partition.
	Partition uint32
	// ReadOnly stages the volume so that nothing can be written to its disk. A disk without
	// a file system is refused then.
	ReadOnly bool
	// Format says how a raw volume is formatted. What has a file system is never formatted.
	Format FormatOptions
	// Grow grows the partition and the file system to the size of the disk. If something is in the way, the
	// volume is mounted, and the error says what: see ExpandVolume.
	Grow bool
	// Wait is how long to wait for the disk to arrive. Default: DefaultWait. A negative time stands
	// for not waiting. It doesn't bound what follows: see StageVolume.
	Wait time.Duration
}

// ISCSILogin is how the node logs in to an iSCSI target. The zero value is without CHAP.
type ISCSILogin struct {
	ISCSIAuthentication
	// MutualSecret is the secret of 12 to 16 bytes with which the target proves its identity
	// to the node; only with ISCSIMutualCHAP. If it is empty, the one that the node has is
	// used.
	//
	// Windows has one such secret for all targets. StageVolume sets it right before it logs
	// in, and Windows uses it for all logins from then on. So all targets of a node that
	// prove their identity must have the same secret.
	MutualSecret Secret
}

// FileSystem is a file system that Windows makes.
type FileSystem string

// File systems.
const (
	NTFS FileSystem = "NTFS"
	ReFS FileSystem = "ReFS"
)

// Canonical returns a file system as it is written here: NTFS for ntfs.
func (f FileSystem) Canonical() FileSystem {
	for _, known := range []FileSystem{NTFS, ReFS} {
		if strings.EqualFold(string(f), string(known)) {
			return known
		}
	}
	return f
}

// FormatOptions say how a raw volume is formatted. The zero value is NTFS with Windows'
// defaults.
type FormatOptions struct {
	// FileSystem is the file system; its case doesn't count. Default: NTFS for a raw volume, and whatever there is
	// otherwise. If it is set, a volume with another file system is refused.
	FileSystem FileSystem
	// AllocationUnitBytes is the size of a cluster, a power of two from 512 bytes to 2 MiB.
	// Default: Windows chooses. ReFS has clusters of 4 KiB or 64 KiB.
	AllocationUnitBytes uint32
	// Label is the volume's name, of at most 32 characters.
	Label string
	// NoShortNames makes no 8.3 names. Only with NTFS.
	NoShortNames bool
	// IntegrityStreams has the contents of files checked by checksums. Only with ReFS.
	IntegrityStreams bool
	// Writers are who may read, write and delete at the root of the volume, and in all that is made
	// there later, beside SYSTEM and the Administrators: groups and accounts as ParseWriter has them.
	// Default: those of node.Options, and else nobody: on Windows' own list the Users may read
	// everything and make directories at the root, but no files.
	//
	// They count for a volume that this call formats, and for one that is empty, isn't mounted, and
	// still has the access list of a format: so nothing is lost by a call that ends between the format
	// and the list. Any other volume keeps its list. They don't count for a read-only staging.
	Writers []string
}

// ParseWriter returns the security identifier of a group or an account: of one of WellKnownWriters, with
// blanks or without, whatever the case; or an identifier itself, such as S-1-5-32-545.
func ParseWriter(text string) (sid string, _ error) {
	for name, sid := range wellKnownWriters {
		if strings.EqualFold(name, strings.ReplaceAll(text, " ", "")) {
			return string(sid), nil
		}
	}
	id, err := winid.ParseSID(text)
	if err != nil {
		return "", Errorf(ErrInvalidArgument,
			"%q, who is to write, isn't known; it must be %s, or a security identifier such as %s",
			text, strings.Join(WellKnownWriters(), ", "), winid.SIDUsers)
	}
	return string(id), nil
}

// wellKnownWriters are groups to which containers' processes belong, and ContainerUser. Other accounts
// of a container exist only there. Names in Windows' language are looked up in no directory.
//
// Source: https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/persistent-storage
var wellKnownWriters = map[string]winid.SID{
	"AuthenticatedUsers": winid.SIDAuthenticatedUsers, "ContainerUser": winid.SIDContainerUser,
	"Everyone": winid.SIDEveryone, "Users": winid.SIDUsers,
}

// WellKnownWriters returns the names that ParseWriter knows.
func WellKnownWriters() []string { return slices.Sorted(maps.Keys(wellKnownWriters)) }

// ParseAllocationUnit reads the size of a cluster as people write it: 65536, 64K, 64Ki or 64KB, each of
// which is 64 KiB.
func ParseAllocationUnit(text string) (uint32, error) {
	number, unit := text, uint64(1)
	if digits := strings.TrimRight(strings.ToLower(text), "kmib"); digits != text {
		switch strings.ToLower(text[len(digits):]) {
		case "k", "ki", "kb", "kib":
			number, unit = digits, 1<<10
		case "m", "mi", "mb", "mib":
			number, unit = digits, 1<<20
		}
	}
	n, err := strconv.ParseUint(number, 10, 32)
	o := FormatOptions{AllocationUnitBytes: uint32(n * unit)}
	if err != nil || n == 0 || n*unit > maxAllocationUnit || o.Validate() != nil {
		return 0, Errorf(ErrInvalidArgument,
			"the allocation unit %q isn't a power of two from 512 to 2M, such as 64K", text)
	}
	return o.AllocationUnitBytes, nil
}

// The bounds of FormatOptions.
const (
	minAllocationUnit = 512
	maxAllocationUnit = 2 << 20
	maxLabel          = 32 // UTF-16 units, of NTFS and ReFS
	maxWriters        = 16
)

// Validate returns ErrInvalidArgument, with the reason, for options that no format
// can have.
func (o FormatOptions) Validate() error {
	unit, given := o.AllocationUnitBytes, o.FileSystem
	o.FileSystem = given.Canonical()
	switch {
	case o.FileSystem != "" && o.FileSystem != NTFS && o.FileSystem != ReFS:
		return Errorf(ErrInvalidArgument,
			"the file system %q can't be made: it must be NTFS or ReFS", string(given))
	case unit != 0 && (unit < minAllocationUnit || unit > maxAllocationUnit || unit&(unit-1) != 0):
		return Errorf(ErrInvalidArgument,
			"the allocation unit of %d bytes isn't a power of two from %d to %d", unit, minAllocationUnit, maxAllocationUnit)
	case o.FileSystem == ReFS && unit != 0 && unit != 4<<10 && unit != 64<<10:
		return Errorf(ErrInvalidArgument, "ReFS has allocation units of 4096 or 65536 bytes, not of %d",
			unit)
	case !utf8.ValidString(o.Label) || strings.ContainsFunc(o.Label, unicode.IsControl):
		return Errorf(ErrInvalidArgument, "the label isn't valid UTF-8 or has control characters")
	case len(utf16.Encode([]rune(o.Label))) > maxLabel:
		return Errorf(ErrInvalidArgument, "the label is longer than %d characters", maxLabel)
	case o.NoShortNames && o.FileSystem == ReFS:
		return Errorf(ErrInvalidArgument, "ReFS has no short names that could be left out")
	case o.IntegrityStreams && o.FileSystem != ReFS:
		return Errorf(ErrInvalidArgument, "only ReFS has integrity streams")
	case len(o.Writers) > maxWriters:
		return Errorf(ErrInvalidArgument, "there are more than %d writers", maxWriters)
	}
	for _, writer := range o.Writers {
		if _, err := ParseWriter(writer); err != nil {
			return err
		}
	}
	return nil
}

// StagedVolume is what StageVolume has found and done.
type StagedVolume struct {
	// Disk is the disk's number for now.
	Disk     DiskNumber `json:"disk_number"`
	VolumeID VolumeID   `json:"volume_id"`
	// FileSystem is that of the volume now, as is SizeBytes.
	FileSystem string `json:"file_system"`
	SizeBytes  int64  `json:"size_bytes"`
	// Partitioned says what this call did, as do Formatted and Grown.
	Partitioned bool `json:"partitioned"`
	Formatted   bool `json:"formatted"`
	Grown       bool `json:"grown"`
}

// UnstageVolumeRequest says what is to be unstaged. Only StagingPath must be set.
type UnstageVolumeRequest struct {
	// StagingPath is where the volume is mounted, or the share staged.
	StagingPath string
	// Force unmounts a volume that somebody uses. What isn't written yet may be lost to
	// those who use it.
	Force bool
	// Disk says which disk was staged. It is needed to take the disk offline, and to log out
	// of its target, if an earlier call has died after it unmounted the volume; the zero
	// value leaves that undone. If a volume of another disk is mounted at the path, or if a
	// share is staged there, that one stays.
	Disk Selector
}

// UnstagedVolume is what UnstageVolume has done.
type UnstagedVolume struct {
	// Unmounted is set if a volume was mounted at the path, or a share staged there.
	Unmounted bool `json:"unmounted"`
	// DiskOffline is set if this call has taken the disk offline.
	DiskOffline bool `json:"disk_offline"`
	// LoggedOut is set if this call has logged out of the disk's iSCSI target.
	LoggedOut bool `json:"logged_out"`
	// Unmapped is set if this call has removed the share's mapping, since no other staged
	// path leads to the share.
	Unmapped bool `json:"unmapped"`
}

// ExpandVolumeRequest says what is to grow. Only StagingPath must be set.
type ExpandVolumeRequest struct {
	// StagingPath is where the volume is mounted, or a link to that.
	StagingPath string
	// DiskSizeBytes is the size that the disk is to have before the volume is grown. 0 stands
	// for the size that it has.
	DiskSizeBytes int64
	// Wait is how long to wait for the disk to have DiskSizeBytes. Default: DefaultWait. A
	// negative time stands for not waiting.
	Wait time.Duration
}

// ExpandedVolume is what ExpandVolume has found and done.
type ExpandedVolume struct {
	// SizeBytes is the size of the file system now. It is a little less than DiskSizeBytes,
	// since the partition table needs room.
	SizeBytes int64 `json:"size_bytes"`
	// DiskSizeBytes is the size of the disk now.
	DiskSizeBytes int64 `json:"disk_size_bytes"`
	// Grown is set if this call has grown it.
	Grown bool `json:"grown"`
}
