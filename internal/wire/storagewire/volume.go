// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	"math"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// FromStageVolume returns the message for a request.
func FromStageVolume(r storage.StageVolumeRequest) (*storagev1alpha1.StageVolumeRequest, error) {
	m := &storagev1alpha1.StageVolumeRequest{
		Disk: FromSelector(r.Disk), StagingPath: r.StagingPath, Partition: r.Partition, ReadOnly: r.ReadOnly,
		Format: &storagev1alpha1.FormatOptions{
			FileSystem: string(r.Format.FileSystem), AllocationUnitBytes: r.Format.AllocationUnitBytes, Label: r.Format.Label,
			NoShortNames: r.Format.NoShortNames, IntegrityStreams: r.Format.IntegrityStreams,
		},
		Grow: r.Grow, NewIdsForClones: r.NewIDsForClones, WaitMilliseconds: fromWait(r.Wait),
	}
	auth, ok := authTypes[r.Login.Type]
	if !ok {
		return nil, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown authentication type %d", r.Login.Type)
	}
	m.Login = &storagev1alpha1.ISCSILogin{
		AuthType: auth, ChapUsername: r.Login.Username, ChapSecret: r.Login.Secret.Reveal(),
		MutualChapSecret: r.Login.MutualSecret.Reveal(),
	}
	return m, nil
}

// ToStageVolume returns the request in a message.
func ToStageVolume(m *storagev1alpha1.StageVolumeRequest) (r storage.StageVolumeRequest, err error) {
	if r.Disk, err = ToSelector(m.Disk); err != nil {
		return r, err
	}
	if r.Wait, err = toWait(m.WaitMilliseconds); err != nil {
		return r, err
	}
	r.Login.Username, r.Login.Secret = m.Login.GetChapUsername(), secret.New(m.Login.GetChapSecret())
	r.Login.MutualSecret = secret.New(m.Login.GetMutualChapSecret())
	known := false
	for auth, number := range authTypes {
		if number == m.Login.GetAuthType() {
			r.Login.Type, known = auth, true
		}
	}
	if !known {
		return r, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown authentication type %d", m.Login.GetAuthType())
	}
	r.StagingPath, r.Partition, r.ReadOnly, r.Grow, r.NewIDsForClones = m.StagingPath, m.Partition, m.ReadOnly, m.Grow,
		m.NewIdsForClones
	r.Format = storage.FormatOptions{
		FileSystem: storage.FileSystem(m.Format.GetFileSystem()), AllocationUnitBytes: m.Format.GetAllocationUnitBytes(),
		Label:        m.Format.GetLabel(),
		NoShortNames: m.Format.GetNoShortNames(), IntegrityStreams: m.Format.GetIntegrityStreams(),
	}
	return r, nil
}

var authTypes = map[iscsi.AuthType]storagev1alpha1.AuthenticationType{
	iscsi.NoAuth:     storagev1alpha1.AuthenticationType_NONE,
	iscsi.OneWayCHAP: storagev1alpha1.AuthenticationType_ONE_WAY_CHAP,
	iscsi.MutualCHAP: storagev1alpha1.AuthenticationType_MUTUAL_CHAP,
}

// fromWait returns a time in milliseconds. A shorter one that isn't 0, which stands for the
// default, is one millisecond.
func fromWait(wait time.Duration) int64 {
	switch ms := wait.Milliseconds(); {
	case wait < 0:
		return -1
	case ms == 0 && wait > 0:
		return 1
	default:
		return ms
	}
}

func toWait(milliseconds int64) (time.Duration, error) {
	if milliseconds > math.MaxInt64/int64(time.Millisecond) {
		return 0, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%d milliseconds are too long to wait", milliseconds)
	}
	return time.Duration(max(milliseconds, -1)) * time.Millisecond, nil
}

// FromStaged returns the message for a result of StageVolume.
func FromStaged(v storage.StagedVolume) *storagev1alpha1.StageVolumeResponse {
	return &storagev1alpha1.StageVolumeResponse{
		DiskNumber: uint32(v.Disk), VolumeId: string(v.VolumeID), FileSystem: wire.ValidText(v.FileSystem),
		SizeBytes:   v.SizeBytes,
		Partitioned: v.Partitioned, Formatted: v.Formatted, Grown: v.Grown,
	}
}

// ToStaged returns the result in a message.
func ToStaged(m *storagev1alpha1.StageVolumeResponse) storage.StagedVolume {
	return storage.StagedVolume{
		Disk: disk.Number(m.DiskNumber), VolumeID: volume.ID(m.VolumeId), FileSystem: m.FileSystem, SizeBytes: m.SizeBytes,
		Partitioned: m.Partitioned, Formatted: m.Formatted, Grown: m.Grown,
	}
}

// FromUnstageVolume returns the message for a request.
func FromUnstageVolume(r storage.UnstageVolumeRequest) *storagev1alpha1.UnstageVolumeRequest {
	return &storagev1alpha1.UnstageVolumeRequest{StagingPath: r.StagingPath, Force: r.Force, Disk: FromSelector(r.Disk)}
}

// ToUnstageVolume returns the request in a message.
func ToUnstageVolume(m *storagev1alpha1.UnstageVolumeRequest) (r storage.UnstageVolumeRequest, err error) {
	r.StagingPath, r.Force = m.StagingPath, m.Force
	r.Disk, err = ToSelector(m.Disk)
	return r, err
}

// FromUnstaged returns the message for a result of UnstageVolume.
func FromUnstaged(v storage.UnstagedVolume) *storagev1alpha1.UnstageVolumeResponse {
	return &storagev1alpha1.UnstageVolumeResponse{Unmounted: v.Unmounted, DiskOffline: v.DiskOffline,
		LoggedOut: v.LoggedOut, Unmapped: v.Unmapped}
}

// ToUnstaged returns the result in a message.
func ToUnstaged(m *storagev1alpha1.UnstageVolumeResponse) storage.UnstagedVolume {
	return storage.UnstagedVolume{Unmounted: m.Unmounted, DiskOffline: m.DiskOffline, LoggedOut: m.LoggedOut,
		Unmapped: m.Unmapped}
}

// FromExpanded returns the message for a result of ExpandVolume.
func FromExpanded(v storage.ExpandedVolume) *storagev1alpha1.ExpandVolumeResponse {
	return &storagev1alpha1.ExpandVolumeResponse{SizeBytes: v.SizeBytes, DiskSizeBytes: v.DiskSizeBytes, Grown: v.Grown}
}

// ToExpanded returns the result in a message.
func ToExpanded(m *storagev1alpha1.ExpandVolumeResponse) storage.ExpandedVolume {
	return storage.ExpandedVolume{SizeBytes: m.SizeBytes, DiskSizeBytes: m.DiskSizeBytes, Grown: m.Grown}
}

// FromExpandVolume returns the message for a request.
func FromExpandVolume(r storage.ExpandVolumeRequest) *storagev1alpha1.ExpandVolumeRequest {
	return &storagev1alpha1.ExpandVolumeRequest{Path: r.Path, DiskSizeBytes: r.DiskSizeBytes,
		WaitMilliseconds: fromWait(r.Wait)}
}

// ToExpandVolume returns the request in a message.
func ToExpandVolume(m *storagev1alpha1.ExpandVolumeRequest) (r storage.ExpandVolumeRequest, err error) {
	r.Path, r.DiskSizeBytes = m.Path, m.DiskSizeBytes
	r.Wait, err = toWait(m.WaitMilliseconds)
	return r, err
}
