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

// DefaultWait is how long StageVolume waits for a disk, and ExpandVolume for a disk to grow, by
// default.
const DefaultWait = 30 * time.Second

// StageVolumeRequest selects the disk, the path, and the options for StageVolume. Only Disk and
// StagingPath must be set.
type StageVolumeRequest struct {
	// Disk selects the disk. The zero value, which matches every disk, is refused.
	Disk Selector
	// Login is how the node logs in to the iSCSI target, if the selector names a target and the
	// node isn't connected.
	Login ISCSILogin
	// StagingPath is the directory at which the volume is mounted. A missing directory is made.
	StagingPath string
	// Partition is the number of the volume's partition; 0 means the only data partition.
	Partition uint32
	// ReadOnly stages the volume such that all writes to its disk fail. A disk without a file
	// system is then refused.
	ReadOnly bool
	// Format has the options for formatting a raw volume. Existing file systems are never
	// formatted.
	Format FormatOptions
	// Grow grows the partition and the file system to the size of the disk. If growing fails, the
	// volume is mounted all the same, and the error names the obstacle: see ExpandVolume.
	Grow bool
	// Wait is how long to wait for the disk to arrive. Default: DefaultWait. A negative time means
	// no wait. Wait doesn't bound the steps after the arrival: see StageVolume.
	Wait time.Duration
}

// ISCSILogin is how the node logs in to an iSCSI target. The zero value uses no CHAP.
type ISCSILogin struct {
	ISCSIAuthentication
	// MutualSecret is the secret of 12 to 16 bytes with which the target proves its identity to the
	// node; only with ISCSIMutualCHAP. If empty, the node's present secret is used.
	//
	// Windows has a single secret for all targets. StageVolume sets the secret right before logging
	// in, and Windows uses it for all logins from then on. Therefore all targets of a node that
	// prove their identity must have the same secret.
	MutualSecret Secret
}

// FileSystem is a file system for formatting.
type FileSystem string

// File systems.
const (
	NTFS FileSystem = "NTFS"
	ReFS FileSystem = "ReFS"
)

// Canonical returns the canonical spelling of a file system: NTFS for ntfs.
func (f FileSystem) Canonical() FileSystem {
	for _, known := range []FileSystem{NTFS, ReFS} {
		if strings.EqualFold(string(f), string(known)) {
			return known
		}
	}
	return f
}

// FormatOptions are the options for formatting a raw volume. The zero value is NTFS with Windows'
// defaults.
type FormatOptions struct {
	// FileSystem is the file system, in any case. Default: NTFS for a raw volume, otherwise the
	// present file system. If FileSystem is set, a volume with another file system is refused.
	FileSystem FileSystem
	// AllocationUnitBytes is the size of a cluster, a power of two from 512 bytes to 2 MiB.
	// Default: Windows chooses. ReFS has clusters of 4 KiB or 64 KiB.
	AllocationUnitBytes uint32
	// Label is the volume's name, of at most 32 characters.
	Label string
	// NoShortNames disables 8.3 names. Only with NTFS.
	NoShortNames bool
	// IntegrityStreams protects the contents of files by checksums. Only with ReFS.
	IntegrityStreams bool
	// Writers may read, write and delete at the root of the volume, and in everything made there
	// later, beside SYSTEM and the Administrators: groups and accounts in the form of ParseWriter.
	// Default: the writers of node.Options. If these are empty too, Windows' own list applies:
	// Users may read everything and make directories at the root, but no files.
	//
	// Writers apply to a volume formatted by this call. They also apply to an empty, unmounted
	// volume that still has the access list of a format, to complete a call that ended between the
	// format and the list. Any other volume keeps its list. Read-only staging ignores Writers.
	Writers []string
}

// ParseWriter returns the security identifier of a group or an account: one of WellKnownWriters,
// with or without blanks, in any case; or an identifier itself, such as S-1-5-32-545.
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

// wellKnownWriters are groups of containers' processes, and ContainerUser. Other accounts of a
// container exist only there. Names in Windows' language are looked up in no directory.
//
// Source: https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/persistent-storage
var wellKnownWriters = map[string]winid.SID{
	"AuthenticatedUsers": winid.SIDAuthenticatedUsers, "ContainerUser": winid.SIDContainerUser,
	"Everyone": winid.SIDEveryone, "Users": winid.SIDUsers,
}

// WellKnownWriters returns the names known to ParseWriter.
func WellKnownWriters() []string { return slices.Sorted(maps.Keys(wellKnownWriters)) }

// ParseAllocationUnit reads the size of a cluster in the usual notations: 65536, 64K, 64Ki or 64KB
// all mean 64 KiB.
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

// Validate returns ErrInvalidArgument, with the reason, for invalid options.
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

// StagedVolume is the result of StageVolume.
type StagedVolume struct {
	// Disk is the disk's present number.
	Disk     DiskNumber `json:"disk_number"`
	VolumeID VolumeID   `json:"volume_id"`
	// FileSystem and SizeBytes describe the volume's file system after the call.
	FileSystem string `json:"file_system"`
	SizeBytes  int64  `json:"size_bytes"`
	// Partitioned, Formatted and Grown report the steps done by this call.
	Partitioned bool `json:"partitioned"`
	Formatted   bool `json:"formatted"`
	Grown       bool `json:"grown"`
}

// UnstageVolumeRequest selects the path for UnstageVolume. Only StagingPath must be set.
type UnstageVolumeRequest struct {
	// StagingPath is the mount point of the volume, or the link to the share.
	StagingPath string
	// Force unmounts a volume in use. Its users may lose unwritten data.
	Force bool
	// Disk selects the staged disk. If an earlier call died after unmounting the volume,
	// UnstageVolume needs Disk to take the disk offline, and to log out of its target; with the
	// zero value, both are skipped. If a volume of another disk is mounted at the path, or a share
	// is staged there, it stays.
	Disk Selector
}

// UnstagedVolume is the result of UnstageVolume.
type UnstagedVolume struct {
	// Unmounted is set if a volume was mounted at the path, or a share staged there.
	Unmounted bool `json:"unmounted"`
	// DiskOffline is set if this call has taken the disk offline.
	DiskOffline bool `json:"disk_offline"`
	// LoggedOut is set if this call has logged out of the disk's iSCSI target.
	LoggedOut bool `json:"logged_out"`
	// Unmapped is set if this call has removed the share's mapping, as the last staged path
	// of the share has gone.
	Unmapped bool `json:"unmapped"`
}

// ExpandVolumeRequest selects the volume for ExpandVolume. Only StagingPath must be set.
type ExpandVolumeRequest struct {
	// StagingPath is the volume's mount point, or a link to the mount point.
	StagingPath string
	// DiskSizeBytes is the disk's expected size before the volume is grown. 0 means the disk's
	// present size.
	DiskSizeBytes int64
	// Wait is how long to wait for the disk to have DiskSizeBytes. Default: DefaultWait. A negative
	// time means no wait.
	Wait time.Duration
}

// ExpandedVolume is the result of ExpandVolume.
type ExpandedVolume struct {
	// SizeBytes is the size of the file system after the call, a little less than DiskSizeBytes
	// because of the partition table.
	SizeBytes int64 `json:"size_bytes"`
	// DiskSizeBytes is the present size of the disk.
	DiskSizeBytes int64 `json:"disk_size_bytes"`
	// Grown is set if this call has grown the volume.
	Grown bool `json:"grown"`
}
