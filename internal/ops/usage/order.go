// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

// Order of locks. Locks of different objects are independent; locks of the same object exclude each
// other, in one process and between processes. Locks of two drivers never exclude each other: a
// disk's number or a volume's name may belong to another driver a moment later. The node's lock of
// a disk excludes the disk's driver, or all drivers if the disk's owner is unknown or may change
// while the disk is there. A driver that only presumes to own a sick disk excludes the node. For
// all other objects the node's locks exclude all drivers. A driver's lock of a missing volume, or
// of a foreign volume, excludes only the driver's own calls: the volume may belong to a driver
// without its own endpoints.
//
//	operation                                         what is locked, in this order
//	StageVolume                                       disk, volume
//	UnstageVolume                                     disk, volume; of a missing volume: the disk that the
//	                                                  request names, volume
//	MountVolume                                       disk, volume
//	UnmountVolume; CleanUp of a mount                 volume
//	Rmdir, RmdirContents of a mount point             volume, while directories are open: tried for a moment
//	PublishVolume, CreateSymlink, LinkPath            volume or share that the link leads to
//	UnpublishVolume, Rmdir of a link, CleanUp of it   none: they only end a use; but if the mapping
//	                                                  goes with the link, Rmdir: server, share
//	SetDiskState, PartitionDisk                       disk
//	ResizeVolume, ExpandVolume                        disk
//	FormatVolume, CheckVolume's spot fix              disk, volume
//	NewSmbGlobalMapping, StageShare                   server, share for the mapping; then share for the link
//	RemoveSmbGlobalMapping, UnstageShare,
//	UnstageVolume of a share                          server, share
//	CleanUp of a mapping; undo of a failed StageShare server, share
//	ListVolumes, CleanUp: to drop a stale record      server, share: tried for a moment
//
// All operations lock in one order to prevent deadlocks. A volume or a share is mostly locked
// through its disk or server, with [LockedDisk.LockVolume] and [LockedServer.LockShare]. The types
// cannot stop an operation from locking a disk while it holds a volume, or a server while it holds
// a share: authors of operations must keep to the table.
//
//	disk < volume, server < share
//
// The locks of iSCSI targets come before all of these (packages nodeops and initiator). Held
// directories and links come last. A call waits at most a second for a directory or link held by
// another call, and also for a lock while it holds a directory or link.
type kind int

// The kinds of locks. Their numbers are in the bytes of the lock file.
const (
	diskLock kind = iota + 1
	volumeLock
	serverLock
	shareLock
	ownVolumeLock // excludes only the driver's own calls; taken before volumeLock
)

var kinds = [...]string{diskLock: "disk", volumeLock: "volume", ownVolumeLock: "volume", serverLock: "server", shareLock: "share's mapping"}
