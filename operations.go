// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"context"
	"iter"
)

// StorageOperations are the operations of the storage group, with the same meaning in process
// (package node) and over the pipe (package client). All methods may be called concurrently.
type StorageOperations interface {
	// ListDisks returns the disks matching the selector, in the order of their numbers; for the
	// zero value, all disks. An empty result is no error. The disks of Windows itself are listed
	// with SystemReason set.
	//
	// A disk is silent if it doesn't answer, at all or within node.Options.SilentDiskTimeout. A
	// silent disk is listed with its Error if Windows has reported its number before. If the
	// selector asks for more than a number, silent disks are omitted, because a match is unknown.
	ListDisks(ctx context.Context, s Selector) ([]Disk, error)
	// StageVolume makes a disk's volume usable at a path. It finds the disk, waiting up to Wait;
	// brings the disk online; partitions and formats a raw disk; mounts the volume at the path; and
	// grows the volume on request. StageVolume is idempotent: completed steps are skipped.
	// StageVolume writes only to the selected disk, even if its number changes meanwhile, and never
	// overwrites data.
	//
	// If Windows refuses a change of the disk or volume, the change is retried for 30 seconds
	// regardless of Wait, or until about a second before ctx's deadline. Permanent errors are
	// returned at once.
	//
	// If no disk matches, the error is ErrNotFound. ErrFailedPrecondition means: several disks
	// match, and the error lists them; Windows runs from the disk; the disk or volume holds data of
	// another system, or is a clone; something else is at the path; or the volume is already staged
	// in another way: at another path, with another file system, or read-only instead of writable.
	// The error names the difference.
	StageVolume(ctx context.Context, r StageVolumeRequest) (StagedVolume, error)
	// UnstageVolume flushes and unmounts the volume at a path. If nothing else of the disk is
	// mounted, UnstageVolume takes the disk offline. After the last disk of an iSCSI target,
	// UnstageVolume logs out of the target. If nothing is mounted at the path, UnstageVolume
	// succeeds. An empty directory is removed; a directory with entries stays. A link to anything
	// but a share is ErrFailedPrecondition.
	//
	// If the volume stays in use for longer than 15 seconds, or than half of the time until the
	// deadline, the error is ErrFailedPrecondition, and the volume stays mounted: see Force. The
	// error lists the processes with the volume open, as far as Windows names them.
	//
	// The session with a target stays if another disk of the target is online, or if Windows
	// repeats the login when the node starts: an administrator has set up such a login.
	//
	// If the path is a link to a share, and Disk is unset, the share is unstaged as in
	// UnstageShare. A driver that has lost its records of a volume knows only the staging path, and
	// needs one call for unstaging either kind.
	UnstageVolume(ctx context.Context, r UnstageVolumeRequest) (UnstagedVolume, error)
	// PublishVolume makes a link to a staged path for a pod. It makes missing parents of the link,
	// and replaces an empty directory at targetPath. If the link exists, PublishVolume succeeds. If
	// stagingPath has neither a staged volume nor a share, the error is ErrFailedPrecondition.
	// Anything else at targetPath stays, and the error is ErrAlreadyExists.
	PublishVolume(ctx context.Context, stagingPath, targetPath string) error
	// UnpublishVolume removes the link made by PublishVolume, never the link's target. If nothing
	// is at the path, UnpublishVolume succeeds; an empty directory is removed, too. A file, a
	// directory with entries or a mount point stays, and the error is ErrFailedPrecondition.
	UnpublishVolume(ctx context.Context, targetPath string) error
	// ExpandVolume grows the volume at a path to the size of its disk. It has Windows read the
	// disk's size again, and waits until the size is DiskSizeBytes. If the disk stays smaller for
	// longer than Wait, the error is ErrUnavailable, and the volume is grown to the disk's present
	// size. If the disk has more free space than its layout needs, and the volume can't use the
	// space, the error names the obstacle: a partition behind the volume or a master boot record
	// (ErrResourceExhausted), an unclean file system (ErrUnavailable), or a file system that can't
	// grow (ErrUnimplemented).
	ExpandVolume(ctx context.Context, r ExpandVolumeRequest) (ExpandedVolume, error)
	// GetVolume returns the state of the volume or share at a path, following links. The path may
	// also be a share, \\server\share: GetVolume then checks whether the share is usable, with the
	// user of its mapping. Problems are reported as Conditions, without an error. An unmapped share
	// has the condition ReasonShareNotMapped, and its server isn't asked.
	//
	// If the path has neither a volume nor a share, the error is ErrNotFound; if a link leads to a
	// volume that is no longer mounted, the condition is ReasonNotMounted instead. If Windows can't
	// list the mapped shares, the error for a share is ErrUnavailable.
	GetVolume(ctx context.Context, path string) (Volume, error)
	// ListVolumes returns all mount points, links and links to shares in the allowed directories,
	// down to eight directories below them, plus links made elsewhere by CSI Proxy, and mappings
	// without a link. Unneeded mounts are marked as leftovers: links to nothing or to a directory
	// whose volume was unmounted, mounts of volumes whose disks have left, mappings without a
	// staged path. Unreadable places are omitted, and IncompleteReason names them. Mappings are
	// marked only if all links are known.
	ListVolumes(ctx context.Context) (VolumeList, error)
	// StageShare maps a share for the node if necessary, and makes a link to the share at the
	// staging path.
	//
	// A missing share, or a missing directory on the share, is ErrNotFound. If the user or password
	// is known to differ from the mapping's, the error is ErrFailedPrecondition and names the
	// difference: all pods of the node share a mapping. If the server refuses the credentials, the
	// error is ErrUnauthenticated; if the server is unresponsive, ErrUnavailable. Anything else at
	// the path stays, and the error is ErrAlreadyExists.
	//
	// A call that fails after making the mapping removes the mapping again, unless it is in use by
	// then.
	//
	// For mappings made by another process, or by this process before a restart, the password is
	// unknown, and the user is known only if Windows returns it. An unused mapping of this kind is
	// replaced by a mapping with the given credentials.
	StageShare(ctx context.Context, r StageShareRequest) error
	// UnstageShare removes the link at a staging path. It also removes the mapping of the share, if
	// StageShare or NewSMBGlobalMapping made the mapping for a local path, and the mapping is
	// unused: no other link leads to the share, and all files on the share are closed. While a
	// pod's link leads to the staging path, the error is ErrFailedPrecondition. If the path is
	// missing or an empty directory, UnstageShare succeeds. Anything else stays, and the error is
	// ErrFailedPrecondition.
	//
	// With a RemotePath, UnstageShare removes only a link to this directory of a share, and ignores
	// anything else at the path. The mapping of the share is removed if no staged path leads to the
	// share, even without a link, as after the death of a StageShare.
	//
	// Staged paths are counted by the links in the allowed directories. If some directories are
	// unreadable, the error is ErrUnavailable, and the link and the mapping stay.
	UnstageShare(ctx context.Context, r UnstageShareRequest) (UnstagedShare, error)
	// CleanUp returns the leftovers marked by ListVolumes, and removes them if remove is set.
	// Leftovers are links to nothing, mounts of volumes whose disks have left, and unused mappings
	// made for a staged path. Links of a ForgottenPod always stay, because the pod may run. Each
	// leftover is checked again right before its removal, and stays if needed again. A failed
	// removal sets the leftover's Error, and CleanUp continues. Places unreadable to ListVolumes
	// are omitted, and IncompleteReason names them.
	CleanUp(ctx context.Context, remove bool) (Leftovers, error)
	// CheckVolume has Windows scan the file system of a volume in use for errors, and repair them
	// on request. A scan may take hours, and goes on in Windows after its caller gives up. If a
	// spot fix is requested while the volume is published, the error is ErrFailedPrecondition. For
	// a file system without such scans, like ReFS, the error is ErrUnimplemented.
	CheckVolume(ctx context.Context, r CheckVolumeRequest) (CheckedVolume, error)
	// WatchDisks yields the disks matching the selector, as in ListDisks, and then all changes:
	// arrivals and departures at once, by Windows' notices, everything else within about
	// WatchInterval. The first value has the complete list as Added, even if the list is empty.
	// Each further value has at least one change.
	//
	// The sequence runs on the caller's goroutine while the caller ranges over it, and keeps
	// nothing after the loop. When the caller asks for the next value, the sequence lists the disks
	// and yields the difference from the caller's state. A slow caller misses intermediate states,
	// but is never behind and blocks nobody.
	//
	// The sequence ends only with an error: ctx's error when ctx ends; ErrUnavailable when the
	// daemon stops, or the connection is lost; or the reason why listing the disks failed, at first
	// or for a minute. To go on, call WatchDisks again, which begins with the list.
	//
	// A silent disk delays nothing. If reported before, the disk is reported as changed, with its
	// Error. Two disks that get the same number one after the other are distinguished by their
	// serial numbers and identifiers, if present. A disk that leaves and comes back within moments
	// may be reported as changed, or not at all.
	WatchDisks(ctx context.Context, s Selector) iter.Seq2[DiskChanges, error]
}
