// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node does the storage operations of one Windows node in process: Go methods for the same
// operations as the daemon's endpoints. For a driver's tests, package simnode has a simulated node.
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

// DefaultSilentDiskTimeout is how long calls on all disks wait for a disk without an answer.
const DefaultSilentDiskTimeout = nodeops.DefaultSilentDiskTimeout

// Options configure a node. The zero value is the default.
type Options struct {
	// KubeletPath is the directory below which paths are accepted. Default: DefaultKubeletPath.
	KubeletPath string
	// WorkingDirs are further directories below which paths are accepted. A directory in a system
	// path is refused: see OwnFiles.
	WorkingDirs []string
	// OwnFiles are files of the program, such as its executable and its log, by absolute paths.
	// Operations never touch these files, or a directory containing one, even in WorkingDirs. The
	// same protection always covers Windows' directory, C:\Program Files, and kubelet's own files
	// in KubeletPath, such as pki and config.yaml.
	OwnFiles []string
	// ProtectedVolumes are volumes that operations never mount, and never enter through a mount
	// point. Each is a drive letter, such as D:, or a volume id. Otherwise, anyone with the right
	// to make a directory below the kubelet directory could mount a volume there, and a call with a
	// path would act on the volume. The volumes of C:, KubeletPath and WorkingDirs are always
	// protected. While one of ProtectedVolumes is missing, only data disks of Azure are
	// partitioned, formatted and listed by LUN.
	ProtectedVolumes []string
	// AllowRecognizedData lets PartitionDisk and FormatVolume overwrite data recognised as another
	// system's. Default: both refuse.
	AllowRecognizedData bool
	// RefuseClones makes PartitionDisk, SetDiskState and StageVolume refuse clones. A clone is a
	// disk whose partition table has the same ids as an online disk, such as a snapshot next to its
	// original. Default: Windows gives a clone new ids when the clone goes online.
	RefuseClones bool
	// SilentDiskTimeout is how long ListDiskIDs, ListDiskLocations and Rescan wait for a silent
	// disk. Default: DefaultSilentDiskTimeout.
	SilentDiskTimeout time.Duration
	// WritableMountPoints leaves a directory unchanged after a volume is unmounted from it.
	// Default: an entry in the directory's access list denies everybody new files and directories
	// there, until a volume is mounted there again or the directory is deleted. Without the entry,
	// writes through a stale link to the directory land on the node's disk.
	WritableMountPoints bool
	// ReformatDirs are directories in KubeletPath or WorkingDirs. FormatVolume formats a volume
	// mounted directly in one of these directories even if the volume has a file system, and so
	// deletes all its files. FormatVolume still refuses a volume also mounted elsewhere, published
	// to a pod, or open. Default: FormatVolume refuses volumes with a file system.
	ReformatDirs []string
	// VolumeWriters are the accounts that may write at the root of a volume. StageVolume uses them
	// if the request has no csiproxy.FormatOptions.Writers; FormatVolume and MountVolume always do.
	// Default: Windows' own access list.
	VolumeWriters []string
	// SMBWithoutPrivacy lets NewSMBGlobalMapping map shares without encryption.
	// Default: encryption is required.
	SMBWithoutPrivacy bool
	// RefuseNodeAccount makes NewSMBGlobalMapping and StageShare refuse credentials without a user
	// name. Default: the share is mapped with the node's own account, as in the published daemon
	// since 1.3.0.
	RefuseNodeAccount bool
	// Logger gets a line for each change of the node, such as a mounted volume, at slog.LevelInfo;
	// problems during a successful operation, at slog.LevelWarn; and each call to Windows at
	// slog.LevelDebug. Errors of operations are returned instead of logged. A repeated call that
	// changes nothing logs nothing at slog.LevelInfo. Default: none.
	Logger *slog.Logger
	// OnOperation is called after every operation with its name, such as "PartitionDisk", duration
	// and error. May be nil.
	OnOperation func(name string, took time.Duration, err error)
	// OnWindowsCall is called after Windows has answered a call, with the name of the Win32
	// function or control code, the duration, and the error. May be nil.
	OnWindowsCall func(call string, took time.Duration, err error)
	// OnSkippedDisks is called when the number of disks omitted by ListDiskIDs, ListDiskLocations
	// and Rescan changes. Disks are omitted if they are silent or answer with errors. May be nil.
	OnSkippedDisks func(count int)
}

// Node is a Windows node. All methods may be called concurrently. A call returns up to half a second
// before the deadline of its context, with an error that says what the call waited for. Package client
// has the same groups, over the endpoints of a daemon.
type Node struct {
	Disk       published.DiskOperations
	Volume     published.VolumeOperations
	Filesystem published.FilesystemOperations
	SMB        published.SMBOperations
	ISCSI      published.ISCSIOperations
	System     published.SystemOperations
	Storage    csiproxy.StorageOperations
}
