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

// ListDisks implements [storage.Operations]: the disks that a selector means.
func (s *Storage) ListDisks(ctx context.Context, wanted storage.Selector) (disks []storage.Disk, err error) {
	return ask(ctx, s.group, "ListDisks", "", &storagev1alpha1.ListDisksRequest{Disk: storagewire.FromSelector(wanted)},
		func(r *storagev1alpha1.ListDisksResponse) []storage.Disk { return storagewire.ToDisks(r.Disks) })
}

// StageVolume implements [storage.Operations]: a disk's volume is made usable at a path.
func (s *Storage) StageVolume(ctx context.Context,
	r storage.StageVolumeRequest) (staged storage.StagedVolume, err error) {
	request, err := storagewire.FromStageVolume(r)
	if err != nil {
		return staged, &csiproxy.Error{Op: "StageVolume", Object: "at " + quote.Text(r.StagingPath), Err: err}
	}
	return ask(ctx, s.group, "StageVolume", "at "+quote.Text(r.StagingPath), request, storagewire.ToStaged)
}

// UnstageVolume implements [storage.Operations]: what is staged at a path is unstaged.
func (s *Storage) UnstageVolume(ctx context.Context,
	r storage.UnstageVolumeRequest) (done storage.UnstagedVolume, err error) {
	return ask(ctx, s.group, "UnstageVolume", "at "+quote.Text(r.StagingPath), storagewire.FromUnstageVolume(r),
		storagewire.ToUnstaged)
}

// PublishVolume implements [storage.Operations]: a pod gets a link to a staged path.
func (s *Storage) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	return s.group.act(ctx, "PublishVolume", quote.Text(targetPath),
		&storagev1alpha1.PublishVolumeRequest{StagingPath: stagingPath, TargetPath: targetPath})
}

// UnpublishVolume implements [storage.Operations]: a pod's link is removed.
func (s *Storage) UnpublishVolume(ctx context.Context, targetPath string) error {
	return s.group.act(ctx, "UnpublishVolume", quote.Text(targetPath),
		&storagev1alpha1.UnpublishVolumeRequest{TargetPath: targetPath})
}

// ExpandVolume implements [storage.Operations]: the volume at a path grows to the size of its disk.
func (s *Storage) ExpandVolume(ctx context.Context,
	r storage.ExpandVolumeRequest) (done storage.ExpandedVolume, err error) {
	return ask(ctx, s.group, "ExpandVolume", "at "+quote.Text(r.Path), storagewire.FromExpandVolume(r),
		storagewire.ToExpanded)
}

// GetVolume implements [storage.Operations]: what is known of the volume or share at a path.
func (s *Storage) GetVolume(ctx context.Context, path string) (v storage.Volume, err error) {
	return ask(ctx, s.group, "GetVolume", quote.Text(path), &storagev1alpha1.GetVolumeRequest{Path: path},
		func(m *storagev1alpha1.GetVolumeResponse) storage.Volume { return storagewire.ToVolume(m.Volume) })
}

// ListVolumes implements [storage.Operations]: what is mounted where.
func (s *Storage) ListVolumes(ctx context.Context) (list storage.VolumeList, err error) {
	return ask(ctx, s.group, "ListVolumes", "", &storagev1alpha1.ListVolumesRequest{}, storagewire.ToVolumes)
}

// StageShare implements [storage.Operations]: a share is mapped and linked at a path.
func (s *Storage) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	return s.group.act(ctx, "StageShare", quote.Text(r.RemotePath), storagewire.FromStageShare(r))
}

// UnstageShare implements [storage.Operations]: the link to a share is removed.
func (s *Storage) UnstageShare(ctx context.Context,
	r storage.UnstageShareRequest) (done storage.UnstagedShare, err error) {
	return ask(ctx, s.group, "UnstageShare", "at "+quote.Text(r.StagingPath), storagewire.FromUnstageShare(r),
		storagewire.ToUnstagedShare)
}

// MoveAside implements [storage.Operations]: what lies in a staging directory goes elsewhere.
func (s *Storage) MoveAside(ctx context.Context, path string) (moved storage.MovedAside, err error) {
	return ask(ctx, s.group, "MoveAside", quote.Text(path), &storagev1alpha1.MoveAsideRequest{Path: path},
		storagewire.ToMovedAside)
}

// CleanUp implements [storage.Operations]: what nobody needs any more is listed or removed.
func (s *Storage) CleanUp(ctx context.Context, remove bool) (leftovers storage.Leftovers, err error) {
	return ask(ctx, s.group, "CleanUp", "", &storagev1alpha1.CleanUpRequest{Remove: remove}, storagewire.ToLeftovers)
}

// ListRefusedLogOns implements [storage.Operations]: the log-ons that SMB servers refused lately.
func (s *Storage) ListRefusedLogOns(ctx context.Context, forget bool) (refused []storage.RefusedLogOn, err error) {
	return ask(ctx, s.group, "ListRefusedLogOns", "", &storagev1alpha1.ListRefusedLogOnsRequest{Forget: forget},
		storagewire.ToRefusedLogOns)
}

// CheckVolume implements [storage.Operations]: a volume's file system is scanned for errors.
func (s *Storage) CheckVolume(ctx context.Context,
	r storage.CheckVolumeRequest) (done storage.CheckedVolume, err error) {
	return ask(ctx, s.group, "CheckVolume", "at "+quote.Text(r.Path),
		&storagev1alpha1.CheckVolumeRequest{Path: r.Path, SpotFix: r.SpotFix}, storagewire.ToChecked)
}
