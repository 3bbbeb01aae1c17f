// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodePublishVolume implements csi.NodeServer: the target path becomes a link to the
// staging path.
//
// A link can't be read-only. If the disk is attached read-only (a PersistentVolume with
// readOnly), nobody can write to the volume. Otherwise the CO enforces it: kubelet tells
// the container runtime to mount the volume read-only into the container, as it also
// does for volumeMounts with readOnly. A process outside of such a container can write
// to the path if it has the rights.
func (s *Server) NodePublishVolume(ctx context.Context,
	r *csi.NodePublishVolumeRequest) (_ *csi.NodePublishVolumeResponse, err error) {
	defer coded(&err)
	staging, wanted, err := checkPublish(r)
	if err != nil {
		return nil, err
	}
	unlock, err := s.store.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	rec, err := s.stagedRecord(ctx, r, staging)
	if err != nil {
		return nil, err
	}
	if why := Unsupported(r.VolumeCapability, rec.Source.isShare()); why != "" {
		return nil, status.Error(codes.FailedPrecondition, why)
	}
	if err := rec.publish(wanted); err != nil {
		// A link that Windows doesn't have is void: kubelet's directory may have been lost.
		if err := s.dropVoidTargets(ctx, rec); err != nil {
			return nil, err
		}
		if err := rec.publish(wanted); err != nil {
			return nil, err
		}
	}
	if err := s.store.save(rec); err != nil {
		return nil, err
	}
	// It is refused if nothing is staged, as after a restart of the node.
	return &csi.NodePublishVolumeResponse{}, s.options.Storage.PublishVolume(ctx, rec.StagingPath, wanted.Path)
}

// checkPublish checks a request without looking at the node.
func checkPublish(r *csi.NodePublishVolumeRequest) (staging string, wanted target, err error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return "", target{}, err
	}
	wanted = target{Mode: r.GetVolumeCapability().GetAccessMode().GetMode(), ReadOnly: r.Readonly}
	if wanted.Path, err = windowsPath("target_path", r.TargetPath); err != nil {
		return "", target{}, err
	}
	if r.VolumeCapability == nil {
		return "", target{}, invalid("volume_capability is missing")
	}
	if r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		return "", target{}, invalid("volume %s is an inline volume of its pod (volumes[].csi), which this driver doesn't have: "+
			"use a claim, or a generic ephemeral volume (volumes[].ephemeral)", r.VolumeId)
	}
	if r.StagingTargetPath == "" {
		return "", target{}, status.Error(codes.FailedPrecondition, "staging_target_path is missing")
	}
	staging, err = windowsPath("staging_target_path", r.StagingTargetPath)
	return staging, wanted, err
}

// publish adds a target to a record. It refuses what CSI's table for
// NodePublishVolume refuses.
func (rec *record) publish(at target) error {
	for i, other := range rec.Targets {
		same := samePath(other.Path, at.Path)
		switch {
		case same && other.Mode == csi.VolumeCapability_AccessMode_UNKNOWN: // its record was lost
			rec.Targets[i] = at
			return nil
		case same && (other.Mode != at.Mode || other.ReadOnly != at.ReadOnly):
			return status.Errorf(codes.AlreadyExists, "volume %s is published at %s with another capability or readonly",
				rec.VolumeID, at.Path)
		case same:
			return nil
		case slices.Contains(publishedOnce, at.Mode) || slices.Contains(publishedOnce, other.Mode):
			return status.Errorf(codes.FailedPrecondition, "volume %s is published at %s; with %v it can be published only once",
				rec.VolumeID, other.Path, at.Mode)
		}
	}
	rec.Targets = append(rec.Targets, at)
	return nil
}

// NodeUnpublishVolume implements csi.NodeServer.
func (s *Server) NodeUnpublishVolume(ctx context.Context,
	r *csi.NodeUnpublishVolumeRequest) (_ *csi.NodeUnpublishVolumeResponse, err error) {
	defer coded(&err)
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	targetPath, err := windowsPath("target_path", r.TargetPath)
	if err != nil {
		return nil, err
	}
	unlock, err := s.store.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := s.options.Storage.UnpublishVolume(ctx, targetPath); err != nil {
		return nil, err
	}
	// The link is gone, and the record only helps: that it can't be written, as on a full disk, must
	// not keep the pod.
	rec, err := s.store.load(r.VolumeId)
	if err == nil && rec != nil {
		rec.Targets = slices.DeleteFunc(rec.Targets, func(t target) bool { return samePath(t.Path, targetPath) })
		err = s.store.save(rec)
	}
	if err != nil {
		s.options.Logger.Warn("can't remove a path from a volume's record after the unpublish", "volume",
			r.VolumeId, "path", targetPath, "err", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
