// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/storage"
)

// NodeStageVolume implements csi.NodeServer.
func (s *Server) NodeStageVolume(ctx context.Context,
	r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	rec, err := s.recordOf(ctx, r)
	if err != nil {
		return nil, err
	}
	unlock, err := s.volumes.try(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	defer unlock()

	other, err := s.records.stagedAt(rec.StagingPath)
	if err != nil {
		return nil, err
	}
	if other != nil && other.VolumeID != rec.VolumeID {
		return nil, status.Errorf(codes.FailedPrecondition, "another volume, %s, is staged at %s", other.VolumeID,
			rec.StagingPath)
	}
	known, err := s.records.load(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	switch {
	case known == nil:
	case !known.Source.equal(rec.Source) || !samePath(known.StagingPath, rec.StagingPath):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is already staged differently, at %s", rec.VolumeID,
			known.StagingPath)
	default:
		rec.Targets = known.Targets
	}
	if err := s.records.save(rec); err != nil {
		return nil, err
	}
	if err := s.stage(ctx, rec); err != nil {
		s.giveUp(ctx, rec, err)
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage makes a volume usable at its staging path.
func (s *Server) stage(ctx context.Context, rec *record) error {
	source := rec.Source
	if source.isShare() {
		return s.options.Storage.StageShare(ctx, storage.StageShareRequest{
			RemotePath: source.Share, StagingPath: rec.StagingPath, Credentials: source.Credentials,
		})
	}
	_, err := s.options.Storage.StageVolume(ctx, storage.StageVolumeRequest{
		Disk: source.Disk, Login: source.Login, StagingPath: rec.StagingPath, Partition: source.Partition,
		ReadOnly: source.ReadOnly,
		Format:   source.Format, NewIDsForClones: source.NewIDsForClones, Wait: s.options.Wait,
	})
	return err
}

// giveUp undoes what NodeStageVolume has done before it failed with err. Kubelet calls
// NodeUnstageVolume only if the error leaves in doubt whether the volume is staged, so
// giveUp does it for other errors. It doesn't undo an earlier staging, which pods use.
func (s *Server) giveUp(ctx context.Context, rec *record, err error) {
	inDoubt := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted,
		codes.Aborted}
	if len(rec.Targets) > 0 || slices.Contains(inDoubt, status.Code(withCode(err))) {
		return
	}
	if err := s.unstage(ctx, rec); err != nil {
		s.options.Logger.Error("a failed staging can't be undone now; NodeUnstageVolume must undo it", "volume", rec.VolumeID,
			"err", err)
	}
}

// recordOf checks a request and returns the record for it, with the secrets, which aren't saved.
func (s *Server) recordOf(ctx context.Context, r *csi.NodeStageVolumeRequest) (*record, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	staging, err := windowsPath("staging_target_path", r.StagingTargetPath)
	if err != nil {
		return nil, err
	}
	if r.VolumeCapability == nil {
		return nil, invalid("volume_capability is missing")
	}
	source, err := s.options.Source(ctx, r)
	if err != nil {
		return nil, err
	}
	if why := Unsupported(r.VolumeCapability, source.isShare()); why != "" {
		return nil, status.Error(codes.FailedPrecondition, why)
	}
	if fs := r.VolumeCapability.GetMount().GetFsType(); source.Format.FileSystem == "" &&
		strings.EqualFold(fs, string(storage.ReFS)) {
		source.Format.FileSystem = storage.ReFS
	}
	return &record{VolumeID: r.VolumeId, Source: source, StagingPath: staging}, nil
}

// NodeUnstageVolume implements csi.NodeServer. It goes on when its caller ends: a kubelet that is
// restarted doesn't ask again, but has the disk detached (github.com/kubernetes/kubernetes/issues/121937).
func (s *Server) NodeUnstageVolume(ctx context.Context,
	r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	staging, err := windowsPath("staging_target_path", r.StagingTargetPath)
	if err != nil {
		return nil, err
	}
	unlock, err := s.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := withoutCaller(ctx)
	defer cancel()

	rec, err := s.records.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		err = s.unstageForgotten(ctx, staging)
	} else {
		err = s.unstage(ctx, rec)
	}
	if err != nil {
		s.warnOfUnstage(ctx, r.VolumeId, err)
	}
	return &csi.NodeUnstageVolumeResponse{}, err
}

// withoutCaller returns a context with the deadline of ctx that doesn't end with the caller.
func withoutCaller(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// unstage undoes the staging, finished or not, and removes the record. The disk or share is
// named since an earlier call may have died half-way, and since another volume may be staged
// at the path, whose record was lost: that one stays.
func (s *Server) unstage(ctx context.Context, rec *record) (err error) {
	if rec.Source.isShare() {
		_, err = s.options.Storage.UnstageShare(ctx,
			storage.UnstageShareRequest{StagingPath: rec.StagingPath, RemotePath: rec.Source.Share})
	} else {
		_, err = s.options.Storage.UnstageVolume(ctx,
			storage.UnstageVolumeRequest{StagingPath: rec.StagingPath, Disk: rec.Source.Disk})
	}
	if err != nil {
		return err
	}
	return s.records.remove(rec.VolumeID)
}

// unstageForgotten unstages whatever is at a staging path without a record, a volume or a
// share. Usually there is nothing. But if the record was lost, the volume's cache must be
// written out before the CO has the disk detached.
func (s *Server) unstageForgotten(ctx context.Context, staging string) error {
	other, err := s.records.stagedAt(staging)
	if err != nil || other != nil {
		return err // the path is another volume's
	}
	_, err = s.options.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
	return err
}
