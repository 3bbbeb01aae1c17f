// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

// What excludes what. Rights to different objects exclude nothing; rights to the same
// object exclude each other, in one process and between processes.
//
//	operation                                         rights, in the order in which they are taken
//	StageVolume                                       disk, volume
//	UnstageVolume                                     disk, volume; of a volume whose disk is away: volume
//	MountVolume                                       disk, volume
//	UnmountVolume; CleanUp of a mount                 volume
//	Rmdir, RmdirContents of a mount point             volume, while directories are open: tried for a moment
//	PublishVolume, CreateSymlink, LinkPath            volume or share that the link leads to, link
//	CleanUp of a link                                 link
//	MoveAside                                         none: it holds the directory, so that nobody gets below it
//	UnpublishVolume, Rmdir of a link                  none: they only make use less
//	SetDiskState, PartitionDisk                       disk
//	ResizeVolume, ExpandVolume                        disk
//	FormatVolume, CheckVolume's spot fix              disk, volume
//	NewSmbGlobalMapping, StageShare                   server, share for the mapping; then share for the link
//	RemoveSmbGlobalMapping, UnstageShare              server, share
//	CleanUp of a mapping; undo of a failed StageShare server, share
//
// The order: who has a right may take one of a later kind only, and none of the same kind.
// So nobody waits for somebody who waits for him.
//
//	disk < volume < server < share < link
//
// The locks of iSCSI targets come before all of these (packages staging and initiator).
// Directories that are held open come after all: who needs one that another call holds
// waits for a second at most, and who holds one tries for a right as briefly.
type kind int

// The kinds of rights, in their order.
const (
	none kind = iota
	diskRight
	volumeRight
	serverRight
	shareRight
	linkRight
)

var kinds = [...]string{diskRight: "disk", volumeRight: "volume", serverRight: "server",
	shareRight: "share's mapping", linkRight: "link"}

// heldKey is that of the kind of the last right that an operation holds, in its context.
type heldKey struct{}
