// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// Storage calls the storage group: whole tasks of a CSI node in one call each. A [Client] has one.
// The published daemon lacks the group; calls to the published daemon fail with
// csiproxy.ErrUnavailable.
type Storage struct{ group *group }

// Version returns the version in use, such as "v1alpha1". If there is none yet, Version chooses the
// newest version served.
func (s *Storage) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// Ready is [Client.Ready] for a driver of the storage group: returns nil if the storage group is
// served now. If the daemon lacks the group, the error is csiproxy.ErrUnavailable. The state of
// other groups is ignored.
func (s *Storage) Ready(ctx context.Context) error {
	return connectError(s.group.ready(ctx))
}

// askChecked is ask for a response that may be invalid.
func askChecked[T any, Response message[T], Result any](ctx context.Context, g *group, op, object string,
	request proto.Message, read func(Response) (Result, error)) (got Result, err error) {
	err = g.call(ctx, op, object, checkedResult(op, request, func(r Response) (err error) {
		if got, err = read(r); err != nil {
			err = malformedError("an invalid value: %v", err)
		}
		return err
	}))
	return got, err
}

// ListDisks implements [csiproxy.StorageOperations]: returns the disks matching a selector.
func (s *Storage) ListDisks(ctx context.Context, wanted csiproxy.Selector) ([]csiproxy.Disk, error) {
	return askChecked(ctx, s.group, "ListDisks", "",
		&storagev1alpha1.ListDisksRequest{Disk: storagewire.EncodeSelector(wanted)}, storagewire.DecodeDisks)
}

// StageVolume implements [csiproxy.StorageOperations]: makes a disk's volume usable at a path.
func (s *Storage) StageVolume(ctx context.Context, r csiproxy.StageVolumeRequest) (csiproxy.StagedVolume, error) {
	const op = "StageVolume"
	object := "at " + quote.Text(r.StagingPath)
	request, err := storagewire.EncodeStageVolumeRequest(r)
	if err != nil {
		return csiproxy.StagedVolume{}, &csiproxy.Error{Op: op, Object: object, Err: err}
	}
	return ask(ctx, s.group, op, object, request, storagewire.DecodeStagedVolume)
}

// UnstageVolume implements [csiproxy.StorageOperations]: unstages the volume or share at a path.
func (s *Storage) UnstageVolume(ctx context.Context, r csiproxy.UnstageVolumeRequest) (csiproxy.UnstagedVolume, error) {
	return ask(ctx, s.group, "UnstageVolume", "at "+quote.Text(r.StagingPath),
		storagewire.EncodeUnstageVolumeRequest(r), storagewire.DecodeUnstagedVolume)
}

// PublishVolume implements [csiproxy.StorageOperations]: links a pod's path to a staged path.
func (s *Storage) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	_, err := ask(ctx, s.group, "PublishVolume", quote.Text(targetPath),
		&storagev1alpha1.PublishVolumeRequest{StagingPath: stagingPath, TargetPath: targetPath},
		func(*storagev1alpha1.PublishVolumeResponse) (_ struct{}) { return })
	return err
}

// UnpublishVolume implements [csiproxy.StorageOperations]: removes a pod's link.
func (s *Storage) UnpublishVolume(ctx context.Context, targetPath string) error {
	_, err := ask(ctx, s.group, "UnpublishVolume", quote.Text(targetPath),
		&storagev1alpha1.UnpublishVolumeRequest{TargetPath: targetPath},
		func(*storagev1alpha1.UnpublishVolumeResponse) (_ struct{}) { return })
	return err
}

// ExpandVolume implements [csiproxy.StorageOperations]: grows the volume at a path to the disk's
// size.
func (s *Storage) ExpandVolume(ctx context.Context, r csiproxy.ExpandVolumeRequest) (csiproxy.ExpandedVolume, error) {
	return ask(ctx, s.group, "ExpandVolume", "at "+quote.Text(r.StagingPath),
		storagewire.EncodeExpandVolumeRequest(r), storagewire.DecodeExpandedVolume)
}

// GetVolume implements [csiproxy.StorageOperations]: returns the state of the volume or share at a
// path.
func (s *Storage) GetVolume(ctx context.Context, path string) (csiproxy.Volume, error) {
	return ask(ctx, s.group, "GetVolume", quote.Text(path), &storagev1alpha1.GetVolumeRequest{Path: path},
		func(m *storagev1alpha1.GetVolumeResponse) csiproxy.Volume { return storagewire.DecodeVolume(m.Volume) })
}

// ListVolumes implements [csiproxy.StorageOperations]: returns all mounts and links of the node.
func (s *Storage) ListVolumes(ctx context.Context) (csiproxy.VolumeList, error) {
	return ask(ctx, s.group, "ListVolumes", "", &storagev1alpha1.ListVolumesRequest{}, storagewire.DecodeVolumeList)
}

// StageShare implements [csiproxy.StorageOperations]: maps a share and links a path to the share.
func (s *Storage) StageShare(ctx context.Context, r csiproxy.StageShareRequest) error {
	_, err := ask(ctx, s.group, "StageShare", quote.Text(r.RemotePath), storagewire.EncodeStageShareRequest(r),
		func(*storagev1alpha1.StageShareResponse) (_ struct{}) { return })
	return err
}

// UnstageShare implements [csiproxy.StorageOperations]: removes the link to a share.
func (s *Storage) UnstageShare(ctx context.Context, r csiproxy.UnstageShareRequest) (csiproxy.UnstagedShare, error) {
	return ask(ctx, s.group, "UnstageShare", "at "+quote.Text(r.StagingPath),
		storagewire.EncodeUnstageShareRequest(r), storagewire.DecodeUnstagedShare)
}

// CleanUp implements [csiproxy.StorageOperations]: lists or removes leftovers.
func (s *Storage) CleanUp(ctx context.Context, remove bool) (csiproxy.Leftovers, error) {
	return ask(ctx, s.group, "CleanUp", "", &storagev1alpha1.CleanUpRequest{Remove: remove}, storagewire.DecodeLeftovers)
}

// CheckVolume implements [csiproxy.StorageOperations]: scans a volume's file system for errors.
func (s *Storage) CheckVolume(ctx context.Context, r csiproxy.CheckVolumeRequest) (csiproxy.CheckedVolume, error) {
	return askChecked(ctx, s.group, "CheckVolume", "at "+quote.Text(r.StagingPath),
		storagewire.EncodeCheckVolumeRequest(r), storagewire.DecodeCheckedVolume)
}
