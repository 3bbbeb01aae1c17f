// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publishReadOnly is the key of the publish context that tells the node that the
// disk is attached read-only.
const publishReadOnly = "readOnly"

// backend stages and unstages the volumes of one type of source.
type backend interface {
	// stage makes the volume usable at rec.StagingPath. It may set fields of rec, which
	// are kept if it succeeds.
	stage(ctx context.Context, rec *record, secrets map[string]string) error
	// unstage undoes what stage has done, finished or not.
	unstage(ctx context.Context, rec *record) error
	// health says what is wrong with a volume that was staged; nothing if all is
	// well.
	health(ctx context.Context, rec *record) ([]*csi.VolumeHealth_VolumeHealthEntry, error)
}

// backend returns the backend for a type of source.
func (d *Driver) backend(sourceType string) backend {
	switch sourceType {
	case typeSMB:
		return smbShare{proxy: d.options.Proxy, records: d.records, shares: &d.shares}
	case typeISCSI:
		return ntfs{proxy: d.options.Proxy, disk: iscsiDisk{d.options.Proxy.ISCSI}}
	default:
		return ntfs{proxy: d.options.Proxy, disk: cloudDisk{d.options.Proxy.Disk}}
	}
}

// NodeStageVolume implements csi.NodeServer.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	rec, err := recordOf(r)
	if err != nil {
		return nil, err
	}
	unlock, err := d.volumes.try(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	defer unlock()

	other, err := d.records.stagedAt(rec.StagingPath)
	if err != nil {
		return nil, err
	}
	if other != nil && other.VolumeID != rec.VolumeID {
		return nil, status.Errorf(codes.FailedPrecondition, "another volume, %s, is staged at %s", other.VolumeID, rec.StagingPath)
	}
	known, err := d.records.load(rec.VolumeID)
	if err != nil {
		return nil, err
	}
	switch {
	case known == nil:
	case known.Source != rec.Source || known.ReadOnly != rec.ReadOnly || !samePath(known.StagingPath, rec.StagingPath):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is already staged differently, at %s", rec.VolumeID, known.StagingPath)
	default:
		rec = known
	}
	if err := d.records.save(rec); err != nil {
		return nil, err
	}
	if err := d.backend(rec.Source.Type).stage(ctx, rec, r.Secrets); err != nil {
		d.giveUp(ctx, rec, err)
		return nil, err
	}
	rec.Staged = true
	return &csi.NodeStageVolumeResponse{}, d.records.save(rec)
}

// giveUp undoes what NodeStageVolume has done before it failed with err. Kubelet calls
// NodeUnstageVolume only if the error leaves in doubt whether the volume is staged, so
// giveUp does it for other errors. It doesn't undo an earlier staging, which pods may use.
func (d *Driver) giveUp(ctx context.Context, rec *record, err error) {
	inDoubt := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted}
	if rec.Staged || slices.Contains(inDoubt, status.Code(withCode(err))) {
		return
	}
	if err := d.unstage(ctx, rec); err != nil {
		d.options.Logger.Error("a failed staging can't be undone now; NodeUnstageVolume must undo it", "volume", rec.VolumeID, "err", err)
	}
}

// recordOf checks a request and returns the record for it.
func recordOf(r *csi.NodeStageVolumeRequest) (*record, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	staging, err := windowsPath("staging_target_path", r.StagingTargetPath)
	if err != nil {
		return nil, err
	}
	src, err := parseSource(r.VolumeContext)
	if err != nil {
		return nil, err
	}
	if r.VolumeCapability == nil {
		return nil, invalid("volume_capability is missing")
	}
	if why := unsupported(r.VolumeCapability, src); why != "" {
		return nil, status.Error(codes.FailedPrecondition, why)
	}
	return &record{
		VolumeID:    r.VolumeId,
		Source:      src,
		StagingPath: staging,
		ReadOnly:    r.PublishContext[publishReadOnly] == "true",
	}, nil
}

// NodeUnstageVolume implements csi.NodeServer.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	staging, err := windowsPath("staging_target_path", r.StagingTargetPath)
	if err != nil {
		return nil, err
	}
	unlock, err := d.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	rec, err := d.records.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return &csi.NodeUnstageVolumeResponse{}, d.unstageForgotten(ctx, staging)
	}
	return &csi.NodeUnstageVolumeResponse{}, d.unstage(ctx, rec)
}

// unstage undoes the staging, and removes the record.
func (d *Driver) unstage(ctx context.Context, rec *record) error {
	if err := d.backend(rec.Source.Type).unstage(ctx, rec); err != nil {
		return err
	}
	return d.records.remove(rec.VolumeID)
}

// unstageForgotten unmounts a volume at a staging path without a record. Usually there is
// none. But if the record was lost, the volume's cache must be written out before the CO
// has the disk detached.
func (d *Driver) unstageForgotten(ctx context.Context, staging string) error {
	other, err := d.records.stagedAt(staging)
	if err != nil || other != nil {
		return err // the path is another volume's
	}
	return unmount(ctx, d.options.Proxy, staging, "")
}
