// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"context"
	"iter"
)

// StorageOperations are the operations of this group, with the same meaning in process (package
// node) and over the pipe (package client). All methods may be called concurrently.
type StorageOperations interface {
	// ListDisks returns the disks that the selector means, in the order of their numbers;
	// all disks for the zero value. None is no error. Disks that Windows runs from are
	// listed, with SystemReason set. A disk that doesn't answer, or doesn't within
	// node.Options.SilentDiskTimeout, is listed with its Error if Windows has named its
	// number before. If the selector asks for more than a number, such a disk isn't listed,
	// since nobody knows whether it is the one.
	ListDisks(ctx context.Context, s Selector) ([]Disk, error)
	// StageVolume makes a disk's volume usable at a path: it finds the disk, and waits for
	// it up to Wait; brings it online; partitions and formats it if it is raw; mounts the
	// volume at the path; and grows it if asked. What is done already isn't done again, so
	// the call may be repeated. The disk that was selected is the one that is written to,
	// whatever its number becomes meanwhile. Nothing is ever written over data.
	//
	// A change of the disk or volume that Windows refuses is retried for 30 seconds, whatever
	// Wait is, or until about a second before ctx's deadline, unless the error is one that can't pass.
	//
	// No such disk is ErrNotFound. ErrFailedPrecondition means that
	// several disks match, which the error lists; that Windows runs from the disk; that the
	// disk or volume holds data of another system, or is a clone; that something else is at
	// the path; or that the volume is staged already, but at another path, with another file
	// system, or read-only where writable is asked: the error names the difference.
	StageVolume(ctx context.Context, r StageVolumeRequest) (StagedVolume, error)
	// UnstageVolume writes the volume's cache to its disk, unmounts it, takes its disk
	// offline if nothing of that is mounted any more, and logs out of the iSCSI target whose
	// last disk it was. If nothing is mounted at the path, it succeeds. An empty directory is
	// removed; one with entries stays. A link that isn't one to a share is
	// ErrFailedPrecondition.
	//
	// A volume that somebody uses for longer than 15 seconds, or than half of the time until the
	// deadline, gives ErrFailedPrecondition, with the processes that have it open as
	// far as Windows names them, and stays as it is: see Force.
	//
	// The session with a target stays if another disk of it is online, or if the login is
	// one that Windows repeats when the node starts: an administrator has set that up.
	//
	// If the path is a link to a share, and no Disk is named, the share is unstaged as
	// UnstageShare does it. A driver that has lost what it knew of a volume knows only the
	// staging path, and needs one call that unstages whatever is staged there.
	UnstageVolume(ctx context.Context, r UnstageVolumeRequest) (UnstagedVolume, error)
	// PublishVolume makes a link to a staged path for a pod. It makes the directories above
	// the link if they are missing, and replaces an empty directory at targetPath. If the
	// link exists, it succeeds. If neither a volume nor a share is staged at stagingPath,
	// the error is ErrFailedPrecondition. If something else than the link is at
	// targetPath, it stays, and the error is ErrAlreadyExists.
	PublishVolume(ctx context.Context, stagingPath, targetPath string) error
	// UnpublishVolume removes the link that PublishVolume has made, never what it leads to.
	// If nothing is at the path, it succeeds; an empty directory is removed, too. A file, a
	// directory with entries or a mount point stays, and is
	// ErrFailedPrecondition.
	UnpublishVolume(ctx context.Context, targetPath string) error
	// ExpandVolume grows the volume at a path to the size of its disk. It has Windows look
	// for the disk's size, and waits until that is DiskSizeBytes. A disk that doesn't grow so
	// far within Wait is ErrUnavailable; the volume is grown as far as the disk
	// allows then. If more of the disk is free than its layout needs, and the volume can't get it,
	// the error says what is in the way: a partition behind it or a master boot record
	// (ErrResourceExhausted), an unclean file system (ErrUnavailable), or one that can't grow
	// (ErrUnimplemented).
	ExpandVolume(ctx context.Context, r ExpandVolumeRequest) (ExpandedVolume, error)
	// GetVolume returns what is known of the volume or share at a path, or where the links
	// at that path lead. The path may be that of a share, \\server\share: whether it can be
	// used, with the user of its mapping. A share that isn't mapped is ReasonShareNotMapped, and its
	// server isn't asked. What is wrong with it is among its Conditions, and is no error. If
	// neither is mounted there, the error is ErrNotFound, or ReasonNotMounted is among the
	// Conditions if a link has led to a volume that isn't mounted any more. If Windows doesn't list
	// which shares are mapped, the error of a share is ErrUnavailable.
	GetVolume(ctx context.Context, path string) (Volume, error)
	// ListVolumes returns what is mounted where in the allowed directories, down to eight
	// directories below them, and links that CSI Proxy made elsewhere: mount points, links,
	// links to shares, and mappings that no link leads to. What nobody needs any more is marked
	// as a leftover: links to nothing or to a directory whose volume was unmounted, mounts of
	// volumes whose disks have left, mappings without a staged path. What can't be looked at
	// isn't in the list, and its IncompleteReason says so. Unless all links are known, no
	// mapping is marked.
	ListVolumes(ctx context.Context) (VolumeList, error)
	// StageShare maps a share for the node if it isn't, and makes a link to it at the
	// staging path.
	//
	// A directory that is missing on the share, or the share itself, is
	// ErrNotFound. A user or password that is known to be another one than that of
	// the mapping is ErrFailedPrecondition, with words that say which: all pods of
	// the node share a mapping. Credentials that the server refuses are
	// ErrUnauthenticated, and a server that doesn't answer is
	// ErrUnavailable. If something else than the link is at the path, it stays, and
	// the error is ErrAlreadyExists.
	//
	// A call that fails after it has made the mapping removes it again, unless somebody else
	// uses it by then.
	//
	// The password of a mapping that another process has made, or this one before a restart,
	// can't be compared, and its user only if Windows returns it. While nothing uses such a
	// mapping, it is made again with the credentials given.
	StageShare(ctx context.Context, r StageShareRequest) error
	// UnstageShare removes the link at a staging path, and the mapping of its share if
	// StageShare or NewSMBGlobalMapping has made it for a local path, and nothing uses it: no
	// other link leads to the share, and no file on it is open. While a pod's link leads to
	// the staging path, the error is ErrFailedPrecondition. If nothing or an empty directory is at the
	// path, it succeeds. If something else than a link to a share is there, it stays, and
	// the error is ErrFailedPrecondition.
	//
	// With a RemotePath, only a link to that directory of a share is removed, and anything
	// else at the path is no error. The mapping of the share goes if no staged path leads to
	// it, also if there is no link, as a StageShare that has died leaves it.
	//
	// The staged paths are counted by the links in the allowed directories. If these can't
	// all be looked at, the error is ErrUnavailable, and the link and the mapping
	// stay.
	UnstageShare(ctx context.Context, r UnstageShareRequest) (UnstagedShare, error)
	// CleanUp returns the leftovers that ListVolumes marks, and removes them if remove is
	// set, but links of a ForgottenPod, whose pods may run. Leftovers are links to nothing, mounts of volumes whose disks have left, and mappings that were
	// made for a staged path and that nothing uses. Each is looked at again right before, and stays if
	// it isn't a leftover any more. One that can't be removed has an Error, and the others are
	// removed all the same. What ListVolumes can't look at
	// stays, and the IncompleteReason says so.
	CleanUp(ctx context.Context, remove bool) (Leftovers, error)
	// CheckVolume has Windows scan a volume's file system for errors while it is in use,
	// and repair these if asked. A scan may take hours, and goes on in Windows if its caller
	// gives up. ErrFailedPrecondition means that a spot fix is asked for while the
	// volume is published. A file system that isn't checked in this way, such as ReFS, is
	// ErrUnimplemented.
	CheckVolume(ctx context.Context, r CheckVolumeRequest) (CheckedVolume, error)
	// WatchDisks yields the disks that the selector means, as ListDisks does, and then what
	// changes: arrivals and departures at once, by Windows' notices, everything else within
	// about WatchInterval. The first value has the list, complete, as Added; it comes even
	// if there is no such disk. Each further value has something in it.
	//
	// The sequence works on the caller's goroutine while the caller ranges over it, and keeps
	// nothing when the loop is left. It lists the disks when the caller asks for the next
	// value, and yields the difference from what the caller has. So a caller that takes its time
	// misses states in between, is never behind, and holds up nobody.
	//
	// The sequence ends with an error, and only then: that of ctx when this ends;
	// ErrUnavailable when the daemon stops, or the connection to it is lost; or why
	// the disks can't be listed, at first or for a minute. To go on, call WatchDisks again,
	// which begins with the list.
	//
	// A disk that doesn't answer delays nothing. It is reported as changed, with its Error, if
	// it was reported before. Two disks that get the same number one after the other are
	// distinguished by their serial numbers and identifiers, if they have any. A disk that
	// leaves and comes back within moments may be reported as changed, or not at all.
	WatchDisks(ctx context.Context, s Selector) iter.Seq2[DiskChanges, error]
}
