// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Storage calls the storage group: whole tasks of a CSI node in one call each. A [Client]
// has one. The published daemon doesn't serve the group: its error is
// csiproxy.ErrUnavailable.
type Storage struct{ group *group }

// Version returns the version in use, such as "v1alpha1". If there is none yet, it chooses
// the newest one that is served.
func (s *Storage) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// Ready is [Client.Ready] for a driver that needs this group: it returns nil if the group is
// served now. Of a daemon that doesn't have the group, the error is csiproxy.ErrUnavailable.
// Whether other groups are served, it doesn't ask.
func (s *Storage) Ready(ctx context.Context) error {
	return connectError(s.group.ready(ctx))
}

// ListDisks returns the disks that a selector means, in the order of their numbers; all
// disks for the zero value. None is no error.
func (s *Storage) ListDisks(ctx context.Context, wanted storage.Selector) (disks []storage.Disk, err error) {
	return ask(ctx, s.group, "ListDisks", "", &storagev1alpha1.ListDisksRequest{Disk: storagewire.FromSelector(wanted)},
		func(r *storagev1alpha1.ListDisksResponse) []storage.Disk { return storagewire.ToDisks(r.Disks) })
}

// StageVolume makes a disk's volume usable at a path: it finds the disk, brings it online,
// partitions and formats it if it is raw, mounts the volume, and grows it if asked. What is
// done already isn't done again. It says what it did.
//
// No such disk is csiproxy.ErrNotFound. If several disks match, if the disk holds data of
// another system, or if the volume is staged already in another way, the error is
// csiproxy.ErrFailedPrecondition and says so.
func (s *Storage) StageVolume(ctx context.Context,
	r storage.StageVolumeRequest) (staged storage.StagedVolume, err error) {
	request, err := storagewire.FromStageVolume(r)
	if err != nil {
		return staged, &csiproxy.Error{Op: "StageVolume", Object: "at " + quote.Text(r.StagingPath), Err: err}
	}
	return ask(ctx, s.group, "StageVolume", "at "+quote.Text(r.StagingPath), request, storagewire.ToStaged)
}

// UnstageVolume unmounts the volume at a path, takes its disk offline if nothing of that is
// mounted any more, and logs out of the iSCSI target whose last disk it was. If nothing is
// mounted at the path, it succeeds. A volume that somebody uses is
// csiproxy.ErrFailedPrecondition. If a share is staged at the path, and no disk is named, the
// share is unstaged as UnstageShare does it.
func (s *Storage) UnstageVolume(ctx context.Context,
	r storage.UnstageVolumeRequest) (done storage.UnstagedVolume, err error) {
	return ask(ctx, s.group, "UnstageVolume", "at "+quote.Text(r.StagingPath), storagewire.FromUnstageVolume(r),
		storagewire.ToUnstaged)
}

// PublishVolume makes a link to a staged path for a pod. If neither a volume nor a share is
// staged there, the error is csiproxy.ErrFailedPrecondition.
func (s *Storage) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	return s.group.act(ctx, "PublishVolume", quote.Text(targetPath),
		&storagev1alpha1.PublishVolumeRequest{StagingPath: stagingPath, TargetPath: targetPath},
		&storagev1alpha1.PublishVolumeResponse{})
}

// UnpublishVolume removes the link that PublishVolume has made, never what it leads to. If
// nothing is there, it succeeds.
func (s *Storage) UnpublishVolume(ctx context.Context, targetPath string) error {
	return s.group.act(ctx, "UnpublishVolume", quote.Text(targetPath),
		&storagev1alpha1.UnpublishVolumeRequest{TargetPath: targetPath}, &storagev1alpha1.UnpublishVolumeResponse{})
}

// ExpandVolume grows the volume at a path to the size of its disk, and returns both sizes. It
// waits until the disk has the size that is asked for.
func (s *Storage) ExpandVolume(ctx context.Context,
	r storage.ExpandVolumeRequest) (done storage.ExpandedVolume, err error) {
	return ask(ctx, s.group, "ExpandVolume", "at "+quote.Text(r.Path), storagewire.FromExpandVolume(r),
		storagewire.ToExpanded)
}

// GetVolume returns what is known of the volume or share at a path. What is wrong with
// it is among its Conditions, and is no error. If neither is mounted there, the error is
// csiproxy.ErrNotFound.
func (s *Storage) GetVolume(ctx context.Context, path string) (v storage.Volume, err error) {
	return ask(ctx, s.group, "GetVolume", quote.Text(path), &storagev1alpha1.GetVolumeRequest{Path: path},
		func(m *storagev1alpha1.GetVolumeResponse) storage.Volume { return storagewire.ToVolume(m.Volume) })
}

// ListVolumes returns what is mounted where in the allowed directories, and marks what
// nobody needs any more.
func (s *Storage) ListVolumes(ctx context.Context) (list storage.VolumeList, err error) {
	return ask(ctx, s.group, "ListVolumes", "", &storagev1alpha1.ListVolumesRequest{}, storagewire.ToVolumes)
}

// StageShare maps a share for the node if it isn't, and makes a link to it at the staging
// path. A missing directory on the share is csiproxy.ErrNotFound. A user or password that
// is known to be another one than the mapping's is csiproxy.ErrFailedPrecondition.
func (s *Storage) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	return s.group.act(ctx, "StageShare", quote.Text(r.RemotePath), storagewire.FromStageShare(r),
		&storagev1alpha1.StageShareResponse{})
}

// UnstageShare removes the link at a staging path, and the mapping of its share unless
// another staged path leads to the share. If nothing is staged at the path, it succeeds. If
// something else than a link to a share is there, it stays: csiproxy.ErrFailedPrecondition, or
// no error if the request names the share.
func (s *Storage) UnstageShare(ctx context.Context,
	r storage.UnstageShareRequest) (done storage.UnstagedShare, err error) {
	return ask(ctx, s.group, "UnstageShare", "at "+quote.Text(r.StagingPath), storagewire.FromUnstageShare(r),
		storagewire.ToUnstagedShare)
}

// MoveAside moves a directory that isn't empty, where nothing is staged, to another one on the
// same disk, and lists what is in it. If there is nothing to move, it succeeds. If something
// below it is staged or published, or a process has a file in it open, the error is
// csiproxy.ErrFailedPrecondition.
func (s *Storage) MoveAside(ctx context.Context, path string) (moved storage.MovedAside, err error) {
	return ask(ctx, s.group, "MoveAside", quote.Text(path), &storagev1alpha1.MoveAsideRequest{Path: path},
		storagewire.ToMovedAside)
}

// CleanUp returns what nobody needs any more, and removes it if remove is set: links to
// nothing, mounts of volumes whose disks have left, and mappings without a staged path.
func (s *Storage) CleanUp(ctx context.Context, remove bool) (leftovers storage.Leftovers, err error) {
	return ask(ctx, s.group, "CleanUp", "", &storagev1alpha1.CleanUpRequest{Remove: remove}, storagewire.ToLeftovers)
}

// ListRefusedLogOns returns the log-ons to SMB servers that were refused lately, one for each
// account, and forgets them if forget is set, so that the next ones are made at once.
func (s *Storage) ListRefusedLogOns(ctx context.Context, forget bool) (refused []storage.RefusedLogOn, err error) {
	return ask(ctx, s.group, "ListRefusedLogOns", "", &storagev1alpha1.ListRefusedLogOnsRequest{Forget: forget},
		storagewire.ToRefusedLogOns)
}

// CheckVolume has Windows scan the file system of the volume at a path for errors, and
// repair these if asked. It may take hours. A spot fix of a volume that is published is
// csiproxy.ErrFailedPrecondition.
func (s *Storage) CheckVolume(ctx context.Context,
	r storage.CheckVolumeRequest) (done storage.CheckedVolume, err error) {
	return ask(ctx, s.group, "CheckVolume", "at "+quote.Text(r.Path),
		&storagev1alpha1.CheckVolumeRequest{Path: r.Path, SpotFix: r.SpotFix}, storagewire.ToChecked)
}
