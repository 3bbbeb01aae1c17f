// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	volumev1beta2 "github.com/csi-proxy/csi-proxy/api/volume/v1beta2"
	volumev2alpha1 "github.com/csi-proxy/csi-proxy/api/volume/v2alpha1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/volume"
)

func volumeVersions(ops volume.Operations) versions {
	h := volumeHandler{ops}
	stable := methods{
		"ListVolumesOnDisk":         unary(h.ListVolumesOnDisk),
		"MountVolume":               unary(h.MountVolume),
		"UnmountVolume":             unary(h.UnmountVolume),
		"IsVolumeFormatted":         unary(h.IsVolumeFormatted),
		"FormatVolume":              unary(h.FormatVolume),
		"ResizeVolume":              unary(h.ResizeVolume),
		"GetVolumeStats":            unary(h.GetVolumeStats),
		"GetDiskNumberFromVolumeID": unary(h.GetDiskNumberFromVolumeID),
		"GetVolumeIDFromTargetPath": unary(h.GetVolumeIDFromTargetPath),
		"WriteVolumeCache":          unary(h.WriteVolumeCache),
	}
	closest := methods{
		"GetClosestVolumeIDFromTargetPath": unary(h.GetClosestVolumeIDFromTargetPath),
	}

	old := oldVolumeHandler{ops}
	first := methods{
		"ListVolumesOnDisk": unary(old.ListVolumesOnDisk),
		"MountVolume":       unary(old.MountVolume),
		"DismountVolume":    unary(old.DismountVolume),
		"IsVolumeFormatted": unary(h.IsVolumeFormatted),
		"FormatVolume":      unary(h.FormatVolume),
		"ResizeVolume":      unary(old.ResizeVolume),
	}
	lookUps := methods{
		"VolumeStats":          unary(old.VolumeStats),
		"GetVolumeDiskNumber":  unary(old.GetVolumeDiskNumber),
		"GetVolumeIDFromMount": unary(old.GetVolumeIDFromMount),
	}
	writeCache := methods{
		"WriteVolumeCache": unary(h.WriteVolumeCache),
	}

	return versions{
		"v2alpha1": {stable, closest},
		"v1":       {stable},
		"v1beta3":  {stable},
		"v1beta2":  {first, lookUps, writeCache},
		"v1beta1":  {first, lookUps},
		"v1alpha1": {first},
	}
}

// volumeHandler answers the messages of v2alpha1.
type volumeHandler struct{ ops volume.Operations }

func (h volumeHandler) ListVolumesOnDisk(ctx context.Context,
	req *volumev2alpha1.ListVolumesOnDiskRequest) (*volumev2alpha1.ListVolumesOnDiskResponse, error) {
	ids, err := h.ops.ListVolumesOnDisk(ctx, disk.Number(req.DiskNumber), req.PartitionNumber)
	return &volumev2alpha1.ListVolumesOnDiskResponse{VolumeIds: volumeIDStrings(ids)}, err
}

func (h volumeHandler) MountVolume(ctx context.Context,
	req *volumev2alpha1.MountVolumeRequest) (*volumev2alpha1.MountVolumeResponse, error) {
	return &volumev2alpha1.MountVolumeResponse{}, h.ops.MountVolume(ctx, volume.ID(req.VolumeId), req.TargetPath)
}

func (h volumeHandler) UnmountVolume(ctx context.Context,
	req *volumev2alpha1.UnmountVolumeRequest) (*volumev2alpha1.UnmountVolumeResponse, error) {
	return &volumev2alpha1.UnmountVolumeResponse{}, h.ops.UnmountVolume(ctx, volume.ID(req.VolumeId), req.TargetPath)
}

func (h volumeHandler) IsVolumeFormatted(ctx context.Context,
	req *volumev2alpha1.IsVolumeFormattedRequest) (*volumev2alpha1.IsVolumeFormattedResponse, error) {
	formatted, err := h.ops.IsVolumeFormatted(ctx, volume.ID(req.VolumeId))
	return &volumev2alpha1.IsVolumeFormattedResponse{Formatted: formatted}, err
}

func (h volumeHandler) FormatVolume(ctx context.Context,
	req *volumev2alpha1.FormatVolumeRequest) (*volumev2alpha1.FormatVolumeResponse, error) {
	return &volumev2alpha1.FormatVolumeResponse{}, h.ops.FormatVolume(ctx, volume.ID(req.VolumeId))
}

func (h volumeHandler) ResizeVolume(ctx context.Context,
	req *volumev2alpha1.ResizeVolumeRequest) (*volumev2alpha1.ResizeVolumeResponse, error) {
	return &volumev2alpha1.ResizeVolumeResponse{}, resizeVolume(ctx, h.ops, req.VolumeId, req.SizeBytes)
}

func (h volumeHandler) GetVolumeStats(ctx context.Context,
	req *volumev2alpha1.GetVolumeStatsRequest) (*volumev2alpha1.GetVolumeStatsResponse, error) {
	stats, err := h.ops.GetVolumeStats(ctx, volume.ID(req.VolumeId))
	return &volumev2alpha1.GetVolumeStatsResponse{TotalBytes: stats.SizeBytes, UsedBytes: stats.UsedBytes}, err
}

func (h volumeHandler) GetDiskNumberFromVolumeID(ctx context.Context,
	req *volumev2alpha1.GetDiskNumberFromVolumeIDRequest) (*volumev2alpha1.GetDiskNumberFromVolumeIDResponse, error) {
	n, err := h.ops.GetDiskNumberFromVolumeID(ctx, volume.ID(req.VolumeId))
	return &volumev2alpha1.GetDiskNumberFromVolumeIDResponse{DiskNumber: uint32(n)}, err
}

func (h volumeHandler) GetVolumeIDFromTargetPath(ctx context.Context,
	req *volumev2alpha1.GetVolumeIDFromTargetPathRequest) (*volumev2alpha1.GetVolumeIDFromTargetPathResponse, error) {
	id, err := h.ops.GetVolumeIDFromTargetPath(ctx, req.TargetPath)
	return &volumev2alpha1.GetVolumeIDFromTargetPathResponse{VolumeId: string(id)}, err
}

func (h volumeHandler) GetClosestVolumeIDFromTargetPath(ctx context.Context,
	req *volumev2alpha1.GetClosestVolumeIDFromTargetPathRequest) (*volumev2alpha1.GetClosestVolumeIDFromTargetPathResponse,
	error) {
	id, err := h.ops.GetClosestVolumeIDFromTargetPath(ctx, req.TargetPath)
	return &volumev2alpha1.GetClosestVolumeIDFromTargetPathResponse{VolumeId: string(id)}, err
}

func (h volumeHandler) WriteVolumeCache(ctx context.Context,
	req *volumev2alpha1.WriteVolumeCacheRequest) (*volumev2alpha1.WriteVolumeCacheResponse, error) {
	return &volumev2alpha1.WriteVolumeCacheResponse{}, h.ops.WriteVolumeCache(ctx, volume.ID(req.VolumeId))
}

// oldVolumeHandler answers those messages of v1beta2 that later versions changed.
type oldVolumeHandler struct{ ops volume.Operations }

func (h oldVolumeHandler) ListVolumesOnDisk(ctx context.Context,
	req *volumev1beta2.ListVolumesOnDiskRequest) (*volumev1beta2.ListVolumesOnDiskResponse, error) {
	n, err := parseDiskNumber(req.DiskId)
	if err != nil {
		return nil, err
	}
	ids, err := h.ops.ListVolumesOnDisk(ctx, n, 0)
	return &volumev1beta2.ListVolumesOnDiskResponse{VolumeIds: volumeIDStrings(ids)}, err
}

func (h oldVolumeHandler) MountVolume(ctx context.Context,
	req *volumev1beta2.MountVolumeRequest) (*volumev1beta2.MountVolumeResponse, error) {
	return &volumev1beta2.MountVolumeResponse{}, h.ops.MountVolume(ctx, volume.ID(req.VolumeId), req.Path)
}

func (h oldVolumeHandler) DismountVolume(ctx context.Context,
	req *volumev1beta2.DismountVolumeRequest) (*volumev1beta2.DismountVolumeResponse, error) {
	return &volumev1beta2.DismountVolumeResponse{}, h.ops.UnmountVolume(ctx, volume.ID(req.VolumeId), req.Path)
}

func (h oldVolumeHandler) ResizeVolume(ctx context.Context,
	req *volumev1beta2.ResizeVolumeRequest) (*volumev1beta2.ResizeVolumeResponse, error) {
	return &volumev1beta2.ResizeVolumeResponse{}, resizeVolume(ctx, h.ops, req.VolumeId, req.Size)
}

func (h oldVolumeHandler) VolumeStats(ctx context.Context,
	req *volumev1beta2.VolumeStatsRequest) (*volumev1beta2.VolumeStatsResponse, error) {
	stats, err := h.ops.GetVolumeStats(ctx, volume.ID(req.VolumeId))
	return &volumev1beta2.VolumeStatsResponse{VolumeSize: stats.SizeBytes, VolumeUsedSize: stats.UsedBytes}, err
}

func (h oldVolumeHandler) GetVolumeDiskNumber(ctx context.Context,
	req *volumev1beta2.VolumeDiskNumberRequest) (*volumev1beta2.VolumeDiskNumberResponse, error) {
	n, err := h.ops.GetDiskNumberFromVolumeID(ctx, volume.ID(req.VolumeId))
	return &volumev1beta2.VolumeDiskNumberResponse{DiskNumber: int64(n)}, err
}

func (h oldVolumeHandler) GetVolumeIDFromMount(ctx context.Context,
	req *volumev1beta2.VolumeIDFromMountRequest) (*volumev1beta2.VolumeIDFromMountResponse, error) {
	id, err := h.ops.GetVolumeIDFromTargetPath(ctx, req.Mount)
	return &volumev1beta2.VolumeIDFromMountResponse{VolumeId: string(id)}, err
}

// resizeVolume resizes the volume that a request names: Azure Disk's driver sends
// a disk number where the volume id belongs and means that disk's data volume.
func resizeVolume(ctx context.Context, ops volume.Operations, target string, sizeBytes int64) error {
	id := volume.ID(target)
	if n, err := disk.ParseNumber(target); err == nil {
		if id, err = ops.DataVolumeOfDisk(ctx, n); err != nil {
			return err
		}
	}
	return ops.ResizeVolume(ctx, id, sizeBytes)
}

func volumeIDStrings(ids []volume.ID) []string {
	var s []string
	for _, id := range ids {
		s = append(s, string(id))
	}
	return s
}
