// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node does the storage operations of one Windows node in process: Go methods
// for the operations that the daemon offers over its endpoints. For a driver's tests,
// package simnode has a simulated node.
package node

import (
	"log/slog"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/published"
)

// DefaultKubeletPath is the directory that kubelet uses on Windows.
const DefaultKubeletPath = nodeops.DefaultKubeletPath

// DefaultSilentDiskTimeout is how long the calls on all disks wait for one that does not
// answer.
const DefaultSilentDiskTimeout = nodeops.DefaultSilentDiskTimeout

// Options configure a node. The zero value is the default.
type Options struct {
	// KubeletPath is the directory below which paths are accepted. Default:
	// DefaultKubeletPath.
	KubeletPath string
	// WorkingDirs are further directories below which paths are accepted. None may lie in a system path: see OwnFiles.
	WorkingDirs []string
	// OwnFiles are files of the program itself, such as its executable and its log, by absolute paths. No
	// operation touches them or a directory that holds one, even in WorkingDirs. The same is always true of
	// Windows' directory and C:\Program Files, and of what kubelet has for itself in KubeletPath, such as pki and
	// config.yaml.
	OwnFiles []string
	// ProtectedVolumes are volumes that no operation mounts, or enters through a mount
	// point. Each is a drive letter, such as D:, or a volume id. Anyone who can make a
	// directory below the kubelet directory could otherwise mount a volume there, and a
	// call with a path would act on that volume. The volumes of C:, KubeletPath and
	// WorkingDirs are always protected. While one of ProtectedVolumes isn't there, only
	// data disks of Azure are partitioned, formatted and listed by LUN.
	ProtectedVolumes []string
	// AllowRecognizedData lets PartitionDisk and FormatVolume write over data that
	// they recognise as another system's. Default: they refuse.
	AllowRecognizedData bool
	// RefuseClones makes PartitionDisk, SetDiskState and StageVolume refuse clones. A clone is a disk
	// whose partition table has the same ids as a disk that is online, such as a snapshot next
	// to its original. Default: Windows gives a clone new ids when it goes online.
	RefuseClones bool
	// SilentDiskTimeout is how long ListDiskIDs, ListDiskLocations and Rescan wait for
	// a disk that doesn't answer. Default: DefaultSilentDiskTimeout.
	SilentDiskTimeout time.Duration
	// WritableMountPoints leaves the directory that a volume was unmounted from as it is.
	// Default: an entry in its access list denies everybody new files and directories there,
	// until a volume is mounted there again or the directory is deleted. Without the entry,
	// what a program writes through a link that still leads there lands on the node's disk.
	WritableMountPoints bool
	// ReformatDirs are directories in KubeletPath or WorkingDirs. FormatVolume formats a volume that is mounted right
	// in one of them also if the volume has a file system, and so deletes all its files, unless the volume
	// is mounted elsewhere, too, published to a pod, or open. Default: it refuses volumes with a file system.
	ReformatDirs []string
	// VolumeWriters are who may write at the root of a volume: what StageVolume uses if its request has
	// no csiproxy.FormatOptions.Writers, and FormatVolume and MountVolume always. Default: nobody beside
	// those whom Windows lets.
	VolumeWriters []string
	// SMBWithoutPrivacy lets NewSMBGlobalMapping map shares without encryption.
	// Default: encryption is required.
	SMBWithoutPrivacy bool
	// RefuseNodeAccount makes NewSMBGlobalMapping and StageShare refuse credentials without a user name. Default: they map
	// the share with the node's own account, as the published daemon does since 1.3.0.
	RefuseNodeAccount bool
	// Logger gets a line for each change of the node, such as a volume that was mounted, at
	// slog.LevelInfo; problems that don't fail an operation, at slog.LevelWarn; and each
	// call to Windows at slog.LevelDebug. Errors of operations are returned, not logged.
	// docs/monitoring.md has the lines. Default: none.
	Logger *slog.Logger
	// OnOperation is called after every operation with its name, such as
	// "PartitionDisk", how long it took, and its error. May be nil.
	OnOperation func(name string, took time.Duration, err error)
	// OnWindowsCall is called when Windows has answered a call, with the name of the
	// Win32 function or control code, how long it took, and its error. May be nil.
	OnWindowsCall func(call string, took time.Duration, err error)
	// OnSkippedDisks is called when the number of disks changes that ListDiskIDs,
	// ListDiskLocations and Rescan leave out because they don't answer or answer with errors.
	// May be nil.
	OnSkippedDisks func(count int)
}

// Node is a Windows node. All its methods may be called concurrently. Package client has
// the same groups, over the endpoints of a daemon.
type Node struct {
	Disk       published.DiskOperations
	Volume     published.VolumeOperations
	Filesystem published.FilesystemOperations
	SMB        published.SMBOperations
	ISCSI      published.ISCSIOperations
	System     published.SystemOperations
	Storage    csiproxy.StorageOperations
}
