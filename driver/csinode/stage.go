// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// NodeStageVolume implements csi.NodeServer.
func (s *Server) NodeStageVolume(ctx context.Context,
	r *csi.NodeStageVolumeRequest) (_ *csi.NodeStageVolumeResponse, err error) {
	defer coded(&err)
	rec, err := s.recordOf(ctx, r)
	if err != nil {
		return nil, err
	}
	unlock, err := s.store.volumes.try(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := s.checkFree(ctx, rec); err != nil {
		return nil, err
	}
	known, err := s.store.load(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	if why := Unsupported(r.VolumeCapability, rec.Source.isShare()); why != "" {
		err := status.Error(codes.FailedPrecondition, why)
		if known == nil {
			s.giveUp(ctx, rec, err) // Windows has brought the disk online by itself
		}
		return nil, err
	}
	switch {
	case known == nil:
	case known.Source.equal(rec.Source) && samePath(known.StagingPath, rec.StagingPath):
		rec.Targets = known.Targets
	default:
		if err := s.unstageOther(ctx, known); err != nil {
			return nil, err
		}
	}
	if err := s.store.save(rec); err != nil {
		return nil, err
	}
	if err := s.stage(ctx, rec); err != nil {
		s.giveUp(ctx, rec, err)
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// checkFree returns an error if another volume is staged at a record's staging path. If nothing is
// mounted there, the record of the other volume is void.
func (s *Server) checkFree(ctx context.Context, rec *record) error {
	other, err := s.store.stagedAt(rec.StagingPath)
	if err != nil || other == nil || other.VolumeID == rec.VolumeID {
		return err
	}
	unlock, err := s.store.volumes.try(other.VolumeID)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.mountedAt(ctx, other.StagingPath)
	switch {
	case err == nil:
		return status.Errorf(codes.FailedPrecondition, "another volume, %s, is staged at %s", other.VolumeID, rec.StagingPath)
	case !isRefusal(err):
		return err
	}
	return s.unstage(ctx, other)
}

// unstageOther unstages a volume that is staged in another way than NodeStageVolume asks for now.
// Kubelet asks for that if it has forgotten NodeUnstageVolume, as when its directory was lost. A
// volume that is published or in use isn't unstaged, and then the call is the CO's mistake.
func (s *Server) unstageOther(ctx context.Context, known *record) error {
	err := s.unstage(ctx, known)
	if isRefusal(err) {
		return status.Errorf(codes.AlreadyExists, "volume %s is already staged differently, at %s, and in use: %v",
			known.VolumeID, known.StagingPath, err)
	}
	if err == nil {
		s.options.Logger.Info("a volume that was staged differently, and not in use, was unstaged", "volume", known.VolumeID,
			"path", known.StagingPath)
	}
	return err
}

// isRefusal reports whether an error says that the state of the node forbids what was asked for, and
// not that the state isn't known.
func isRefusal(err error) bool { return status.Code(withCode(err)) == codes.FailedPrecondition }

// stage makes a volume usable at its staging path, and grows it to the size of its disk.
func (s *Server) stage(ctx context.Context, rec *record) error {
	source := rec.Source
	if source.isShare() {
		return s.options.Storage.StageShare(ctx, csiproxy.StageShareRequest{
			RemotePath: source.Share, StagingPath: rec.StagingPath, Credentials: source.Credentials,
			Privacy: source.Privacy, ReadOnly: source.ReadOnly,
		})
	}
	_, err := s.options.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: source.Disk, Login: source.Login, StagingPath: rec.StagingPath, Partition: source.Partition,
		ReadOnly: source.ReadOnly,
		Format:   source.Format, Wait: s.options.Wait,
	})
	if err != nil || source.ReadOnly || s.options.NoExpansion {
		return err
	}
	// A disk made from a snapshot can be larger than the snapshot's volume, and kubelet doesn't ask to expand that.
	// A volume that can't grow is still of use.
	if _, err := s.options.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: rec.StagingPath}); err != nil {
		s.options.Logger.Warn("a staged volume doesn't grow to the size of its disk", "volume", rec.VolumeID, "err", err)
	}
	return nil
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
		s.options.Logger.Error("can't undo a failed staging; NodeUnstageVolume must undo it", "volume", rec.VolumeID,
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
	if source.isShare() && OnlyReads(r.VolumeCapability, false) {
		source.ReadOnly = true
	}
	if fs := r.VolumeCapability.GetMount().GetFsType(); source.Format.FileSystem == "" &&
		strings.EqualFold(fs, string(csiproxy.ReFS)) {
		source.Format.FileSystem = csiproxy.ReFS
	}
	return &record{VolumeID: r.VolumeId, Source: source, StagingPath: staging}, nil
}

// NodeUnstageVolume implements csi.NodeServer. It goes on when its caller ends: a kubelet that is
// restarted doesn't ask again, but has the disk detached (github.com/kubernetes/kubernetes/issues/121937).
func (s *Server) NodeUnstageVolume(ctx context.Context,
	r *csi.NodeUnstageVolumeRequest) (_ *csi.NodeUnstageVolumeResponse, err error) {
	defer coded(&err)
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	staging, err := windowsPath("staging_target_path", r.StagingTargetPath)
	if err != nil {
		return nil, err
	}
	unlock, err := s.store.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := withoutCaller(ctx)
	defer cancel()

	rec, err := s.store.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		err = s.unstageForgotten(ctx, staging)
	} else {
		err = s.unstageRecorded(ctx, rec, staging)
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

// unstage undoes the staging that a record is of, finished or not, and removes the record. The disk
// or share is named since an earlier call may have died half-way.
func (s *Server) unstage(ctx context.Context, rec *record) error {
	if err := s.unstageAt(ctx, rec.StagingPath, rec.Source); err != nil {
		return err
	}
	return s.store.remove(rec.VolumeID)
}

// unstageRecorded is unstage for NodeUnstageVolume with a staging path. If a volume or share is still
// mounted there, the record is of another path or disk, and void.
func (s *Server) unstageRecorded(ctx context.Context, rec *record, staging string) error {
	if err := s.unstage(ctx, rec); err != nil {
		return err
	}
	if _, err := s.mountedAt(ctx, staging); isRefusal(err) {
		return nil
	}
	return s.unstageForgotten(ctx, staging)
}

// unstageForgotten unstages whatever is at a staging path without a record, a volume or a
// share. Usually there is nothing. But if the record was lost, or is of another path or disk, the
// volume's cache must be written out before the CO has the disk detached.
func (s *Server) unstageForgotten(ctx context.Context, staging string) error {
	other, err := s.store.stagedAt(staging)
	if err != nil {
		return err
	}
	if other != nil {
		if err := s.checkStaged(ctx, other.Source, staging); !isRefusal(err) {
			return err // the path is another volume's
		}
	}
	return s.unstageAt(ctx, staging, Source{})
}

// unstageAt unstages a source at a path, or whatever is there for the zero source. If that is
// refused since the volume is published, the links of pods that are gone are removed, and it is
// tried again.
func (s *Server) unstageAt(ctx context.Context, staging string, source Source) error {
	unstage := func() (err error) {
		if source.isShare() {
			_, err = s.options.Storage.UnstageShare(ctx,
				csiproxy.UnstageShareRequest{StagingPath: staging, RemotePath: source.Share})
		} else {
			_, err = s.options.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: source.Disk})
		}
		return err
	}
	err := unstage()
	if !isRefusal(err) {
		return err
	}
	links, listErr := s.linksTo(ctx, staging)
	if listErr != nil {
		return fmt.Errorf("%w; the links to it can't be listed: %w", err, listErr)
	}
	removed, kept := s.unpublishGone(ctx, links)
	if removed {
		err = unstage()
	}
	if isRefusal(err) && kept != "" {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%s", kept) // err names the same links
	}
	return err
}
