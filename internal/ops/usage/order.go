// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

// What excludes what. Locks of different objects exclude nothing; locks of the same
// object exclude each other, in one process and between processes. Locks of two drivers never do:
// a disk's number or a volume's name may be another driver's a moment later. The node's lock of a disk excludes the disk's driver, and
// all drivers if that driver isn't known for as long as the disk is there. A driver that only presumes to own a sick disk excludes the
// node. The node's locks of all else exclude all drivers. Of a volume that isn't there, or isn't the
// driver's, a driver's lock excludes only its own calls: the volume may be that of a driver without endpoints of its own.
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
// All operations lock in one order, which prevents deadlocks. A volume or a share is mostly locked through
// its disk or server, with [LockedDisk.LockVolume] and [LockedServer.LockShare].
// No type prevents that an operation locks a disk while it has a volume locked, or a server while it has a
// share locked: who writes one keeps to the table.
//
//	disk < volume, server < share
//
// The locks of iSCSI targets come before all of these (packages staging and initiator).
// Directories and links that are held open come last. A call that needs one which another call
// holds waits for a second at most. So does a call that holds one and needs a lock.
type kind int

// The kinds of locks. Their numbers are in the bytes of the lock file.
const (
	diskLock kind = iota + 1
	volumeLock
	serverLock
	shareLock
	ownVolumeLock // of a driver, whose calls alone it excludes; before volumeLock
)

var kinds = [...]string{diskLock: "disk", volumeLock: "volume", ownVolumeLock: "volume", serverLock: "server", shareLock: "share's mapping"}
