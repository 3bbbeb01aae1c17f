// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
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

// task does an operation by the method of its name. The fields of the request and the result go by
// their names in the API: see package storagewire.
func task[Result any](ctx context.Context, s *Storage, op, object string, r any) (result Result, err error) {
	request, response := storagewire.NewRequest(op), storagewire.NewResponse(op)
	if err := storagewire.EncodeRequest(r, request); err != nil {
		return result, &csiproxy.Error{Op: op, Object: object, Err: err}
	}
	err = s.group.call(ctx, op, object, way{op, request, response, func() (err error) {
		result, err = decoded[Result](response)
		return err
	}})
	return result, err
}

// decoded returns the result in a response.
func decoded[Result any](response proto.Message) (Result, error) {
	result, err := storagewire.Decode[Result](response)
	if err != nil {
		var none Result
		return none, malformed("an invalid value: %v", err)
	}
	return result, nil
}

// ListDisks implements [storage.Operations]: the disks that a selector means.
func (s *Storage) ListDisks(ctx context.Context, wanted storage.Selector) ([]storage.Disk, error) {
	type request struct{ Disk storage.Selector }
	type result struct{ Disks []storage.Disk }
	found, err := task[result](ctx, s, "ListDisks", "", request{wanted})
	return found.Disks, err
}

// StageVolume implements [storage.Operations]: a disk's volume is made usable at a path.
func (s *Storage) StageVolume(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	return task[storage.StagedVolume](ctx, s, "StageVolume", "at "+quote.Text(r.StagingPath), r)
}

// UnstageVolume implements [storage.Operations]: what is staged at a path is unstaged.
func (s *Storage) UnstageVolume(ctx context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return task[storage.UnstagedVolume](ctx, s, "UnstageVolume", "at "+quote.Text(r.StagingPath), r)
}

// PublishVolume implements [storage.Operations]: a pod gets a link to a staged path.
func (s *Storage) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	type request struct{ StagingPath, TargetPath string }
	_, err := task[struct{}](ctx, s, "PublishVolume", quote.Text(targetPath), request{stagingPath, targetPath})
	return err
}

// UnpublishVolume implements [storage.Operations]: a pod's link is removed.
func (s *Storage) UnpublishVolume(ctx context.Context, targetPath string) error {
	type request struct{ TargetPath string }
	_, err := task[struct{}](ctx, s, "UnpublishVolume", quote.Text(targetPath), request{targetPath})
	return err
}

// ExpandVolume implements [storage.Operations]: the volume at a path grows to the size of its disk.
func (s *Storage) ExpandVolume(ctx context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return task[storage.ExpandedVolume](ctx, s, "ExpandVolume", "at "+quote.Text(r.Path), r)
}

// GetVolume implements [storage.Operations]: what is known of the volume or share at a path.
func (s *Storage) GetVolume(ctx context.Context, path string) (storage.Volume, error) {
	type result struct{ Volume storage.Volume }
	found, err := task[result](ctx, s, "GetVolume", quote.Text(path), atPath{path})
	return found.Volume, err
}

// atPath is a request that has only a path.
type atPath struct{ Path string }

// ListVolumes implements [storage.Operations]: what is mounted where.
func (s *Storage) ListVolumes(ctx context.Context) (storage.VolumeList, error) {
	return task[storage.VolumeList](ctx, s, "ListVolumes", "", struct{}{})
}

// StageShare implements [storage.Operations]: a share is mapped and linked at a path.
func (s *Storage) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	_, err := task[struct{}](ctx, s, "StageShare", quote.Text(r.RemotePath), r)
	return err
}

// UnstageShare implements [storage.Operations]: the link to a share is removed.
func (s *Storage) UnstageShare(ctx context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return task[storage.UnstagedShare](ctx, s, "UnstageShare", "at "+quote.Text(r.StagingPath), r)
}

// CleanUp implements [storage.Operations]: what nobody needs any more is listed or removed.
func (s *Storage) CleanUp(ctx context.Context, remove bool) (storage.Leftovers, error) {
	return task[storage.Leftovers](ctx, s, "CleanUp", "", struct{ Remove bool }{remove})
}

// CheckVolume implements [storage.Operations]: a volume's file system is scanned for errors.
func (s *Storage) CheckVolume(ctx context.Context, r storage.CheckVolumeRequest) (storage.CheckedVolume, error) {
	return task[storage.CheckedVolume](ctx, s, "CheckVolume", "at "+quote.Text(r.Path), r)
}
