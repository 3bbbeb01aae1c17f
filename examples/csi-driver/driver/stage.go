// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
)

// publishReadOnly is the key of the publish context that tells the node that the
// disk is attached read-only.
const publishReadOnly = "readOnly"

// Keys of the node-stage secret, for an SMB share and for an iSCSI target that requires
// CHAP.
const (
	secretUsername = "username"
	secretPassword = "password"
	// With this one an iSCSI target proves its identity to the node.
	secretMutual = "mutualPassword"
)

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
	if err := d.stage(ctx, rec, r.Secrets); err != nil {
		d.giveUp(ctx, rec, err)
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage makes a volume usable at its staging path.
func (d *Driver) stage(ctx context.Context, rec *record, secrets map[string]string) error {
	user, password := secrets[secretUsername], secret.New(secrets[secretPassword])
	if rec.Source.Type == typeSMB {
		return d.options.Proxy.Storage.StageShare(ctx, storage.StageShareRequest{
			RemotePath: rec.Source.Share, StagingPath: rec.StagingPath, Credentials: smb.Credentials{Username: user, Password: password},
		})
	}
	var login storage.Login
	if secrets[secretPassword] != "" {
		login.Type, login.Username, login.Secret = iscsi.OneWayCHAP, user, password
	}
	if mutual := secrets[secretMutual]; mutual != "" {
		login.Type, login.MutualSecret = iscsi.MutualCHAP, secret.New(mutual)
	}
	_, err := d.options.Proxy.Storage.StageVolume(ctx, storage.StageVolumeRequest{
		Disk: rec.disk(), Login: login, StagingPath: rec.StagingPath, ReadOnly: rec.ReadOnly, Wait: d.options.DiskWait,
	})
	return err
}

// giveUp undoes what NodeStageVolume has done before it failed with err. Kubelet calls
// NodeUnstageVolume only if the error leaves in doubt whether the volume is staged, so
// giveUp does it for other errors. It doesn't undo an earlier staging, which pods use.
func (d *Driver) giveUp(ctx context.Context, rec *record, err error) {
	inDoubt := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted}
	if len(rec.Targets) > 0 || slices.Contains(inDoubt, status.Code(withCode(err))) {
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

// unstage undoes the staging, finished or not, and removes the record. The disk or share is
// named since an earlier call may have died half-way, and since another volume may be staged
// at the path, whose record was lost: that one stays.
func (d *Driver) unstage(ctx context.Context, rec *record) (err error) {
	if rec.Source.Type == typeSMB {
		_, err = d.options.Proxy.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: rec.StagingPath, RemotePath: rec.Source.Share})
	} else {
		_, err = d.options.Proxy.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: rec.StagingPath, Disk: rec.disk()})
	}
	if err != nil {
		return err
	}
	return d.records.remove(rec.VolumeID)
}

// unstageForgotten unstages whatever is at a staging path without a record, a volume or a
// share. Usually there is nothing. But if the record was lost, the volume's cache must be
// written out before the CO has the disk detached.
func (d *Driver) unstageForgotten(ctx context.Context, staging string) error {
	other, err := d.records.stagedAt(staging)
	if err != nil || other != nil {
		return err // the path is another volume's
	}
	_, err = d.options.Proxy.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
	return err
}
