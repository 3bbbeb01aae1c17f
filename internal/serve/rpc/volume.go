// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	volumev1beta2 "github.com/csi-proxy/csi-proxy/api/volume/v1beta2"
	volumev2alpha1 "github.com/csi-proxy/csi-proxy/api/volume/v2alpha1"
	"github.com/csi-proxy/csi-proxy/published"
)

func volumeVersions(ops published.VolumeOperations) versions {
	stable := methods{
		"ListVolumesOnDisk": unary(func(ctx context.Context,
			req *volumev2alpha1.ListVolumesOnDiskRequest) (*volumev2alpha1.ListVolumesOnDiskResponse, error) {
			ids, err := ops.ListVolumesOnDisk(ctx, csiproxy.DiskNumber(req.DiskNumber), req.PartitionNumber)
			return &volumev2alpha1.ListVolumesOnDiskResponse{VolumeIds: volumeIDStrings(ids)}, err
		}),
		"MountVolume": action(func(ctx context.Context, req *volumev2alpha1.MountVolumeRequest) error {
			return ops.MountVolume(ctx, csiproxy.VolumeID(req.VolumeId), req.TargetPath)
		}),
		"UnmountVolume": action(func(ctx context.Context, req *volumev2alpha1.UnmountVolumeRequest) error {
			return ops.UnmountVolume(ctx, csiproxy.VolumeID(req.VolumeId), req.TargetPath)
		}),
		"IsVolumeFormatted": unary(func(ctx context.Context,
			req *volumev2alpha1.IsVolumeFormattedRequest) (*volumev2alpha1.IsVolumeFormattedResponse, error) {
			formatted, err := ops.IsVolumeFormatted(ctx, csiproxy.VolumeID(req.VolumeId))
			return &volumev2alpha1.IsVolumeFormattedResponse{Formatted: formatted}, err
		}),
		"FormatVolume": action(func(ctx context.Context, req *volumev2alpha1.FormatVolumeRequest) error {
			return ops.FormatVolume(ctx, csiproxy.VolumeID(req.VolumeId))
		}),
		"ResizeVolume": action(func(ctx context.Context, req *volumev2alpha1.ResizeVolumeRequest) error {
			return resizeVolume(ctx, ops, req.VolumeId, req.SizeBytes)
		}),
		"GetVolumeStats": unary(func(ctx context.Context,
			req *volumev2alpha1.GetVolumeStatsRequest) (*volumev2alpha1.GetVolumeStatsResponse, error) {
			stats, err := ops.GetVolumeStats(ctx, csiproxy.VolumeID(req.VolumeId))
			return &volumev2alpha1.GetVolumeStatsResponse{TotalBytes: stats.SizeBytes, UsedBytes: stats.UsedBytes}, err
		}),
		"GetDiskNumberFromVolumeID": unary(func(ctx context.Context,
			req *volumev2alpha1.GetDiskNumberFromVolumeIDRequest) (*volumev2alpha1.GetDiskNumberFromVolumeIDResponse, error) {
			n, err := ops.GetDiskNumberFromVolumeID(ctx, csiproxy.VolumeID(req.VolumeId))
			return &volumev2alpha1.GetDiskNumberFromVolumeIDResponse{DiskNumber: uint32(n)}, err
		}),
		"GetVolumeIDFromTargetPath": unary(func(ctx context.Context,
			req *volumev2alpha1.GetVolumeIDFromTargetPathRequest) (*volumev2alpha1.GetVolumeIDFromTargetPathResponse, error) {
			id, err := ops.GetVolumeIDFromTargetPath(ctx, req.TargetPath)
			return &volumev2alpha1.GetVolumeIDFromTargetPathResponse{VolumeId: string(id)}, err
		}),
		"WriteVolumeCache": action(func(ctx context.Context, req *volumev2alpha1.WriteVolumeCacheRequest) error {
			return ops.WriteVolumeCache(ctx, csiproxy.VolumeID(req.VolumeId))
		}),
	}
	closest := methods{
		"GetClosestVolumeIDFromTargetPath": unary(func(ctx context.Context,
			req *volumev2alpha1.GetClosestVolumeIDFromTargetPathRequest,
		) (*volumev2alpha1.GetClosestVolumeIDFromTargetPathResponse, error) {
			id, err := ops.GetClosestVolumeIDFromTargetPath(ctx, req.TargetPath)
			return &volumev2alpha1.GetClosestVolumeIDFromTargetPathResponse{VolumeId: string(id)}, err
		}),
	}

	first := methods{
		"ListVolumesOnDisk": unary(func(ctx context.Context,
			req *volumev1beta2.ListVolumesOnDiskRequest) (*volumev1beta2.ListVolumesOnDiskResponse, error) {
			n, err := parseDiskNumber(req.DiskId)
			if err != nil {
				return nil, err
			}
			ids, err := ops.ListVolumesOnDisk(ctx, n, 0)
			return &volumev1beta2.ListVolumesOnDiskResponse{VolumeIds: volumeIDStrings(ids)}, err
		}),
		"MountVolume": action(func(ctx context.Context, req *volumev1beta2.MountVolumeRequest) error {
			return ops.MountVolume(ctx, csiproxy.VolumeID(req.VolumeId), req.Path)
		}),
		"DismountVolume": action(func(ctx context.Context, req *volumev1beta2.DismountVolumeRequest) error {
			return ops.UnmountVolume(ctx, csiproxy.VolumeID(req.VolumeId), req.Path)
		}),
		"IsVolumeFormatted": stable["IsVolumeFormatted"],
		"FormatVolume":      stable["FormatVolume"],
		"ResizeVolume": action(func(ctx context.Context, req *volumev1beta2.ResizeVolumeRequest) error {
			return resizeVolume(ctx, ops, req.VolumeId, req.Size)
		}),
	}
	lookUps := methods{
		"VolumeStats": unary(func(ctx context.Context,
			req *volumev1beta2.VolumeStatsRequest) (*volumev1beta2.VolumeStatsResponse, error) {
			stats, err := ops.GetVolumeStats(ctx, csiproxy.VolumeID(req.VolumeId))
			return &volumev1beta2.VolumeStatsResponse{VolumeSize: stats.SizeBytes, VolumeUsedSize: stats.UsedBytes}, err
		}),
		"GetVolumeDiskNumber": unary(func(ctx context.Context,
			req *volumev1beta2.VolumeDiskNumberRequest) (*volumev1beta2.VolumeDiskNumberResponse, error) {
			n, err := ops.GetDiskNumberFromVolumeID(ctx, csiproxy.VolumeID(req.VolumeId))
			return &volumev1beta2.VolumeDiskNumberResponse{DiskNumber: int64(n)}, err
		}),
		"GetVolumeIDFromMount": unary(func(ctx context.Context,
			req *volumev1beta2.VolumeIDFromMountRequest) (*volumev1beta2.VolumeIDFromMountResponse, error) {
			id, err := ops.GetVolumeIDFromTargetPath(ctx, req.Mount)
			return &volumev1beta2.VolumeIDFromMountResponse{VolumeId: string(id)}, err
		}),
	}
	writeCache := methods{
		"WriteVolumeCache": stable["WriteVolumeCache"],
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

// resizeVolume resizes the volume named by a request. Azure Disk's driver sends a disk number in
// place of the volume id, and means the disk's data volume.
func resizeVolume(ctx context.Context, ops published.VolumeOperations, target string, sizeBytes int64) error {
	id := csiproxy.VolumeID(target)
	if n, err := csiproxy.ParseDiskNumber(target); err == nil {
		if id, err = ops.DataVolumeOfDisk(ctx, n); err != nil {
			return err
		}
	}
	return ops.ResizeVolume(ctx, id, sizeBytes)
}

func volumeIDStrings(ids []csiproxy.VolumeID) []string {
	var s []string
	for _, id := range ids {
		s = append(s, string(id))
	}
	return s
}
