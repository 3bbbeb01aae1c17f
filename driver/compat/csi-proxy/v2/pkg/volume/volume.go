// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume has the published library's methods for the node's volumes, over CSI Proxy's operations.
package volume

import (
	"context"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
)

// Interface is the node's volumes.
type Interface interface {
	// FormatVolume formats a raw volume with NTFS.
	FormatVolume(context.Context, *FormatVolumeRequest) (*FormatVolumeResponse, error)
	// GetClosestVolumeIDFromTargetPath returns the volume that a path is on.
	GetClosestVolumeIDFromTargetPath(context.Context,
		*GetClosestVolumeIDFromTargetPathRequest) (*GetClosestVolumeIDFromTargetPathResponse, error)
	// GetDiskNumberFromVolumeID returns the disk that a volume is on.
	GetDiskNumberFromVolumeID(context.Context,
		*GetDiskNumberFromVolumeIDRequest) (*GetDiskNumberFromVolumeIDResponse, error)
	// GetVolumeIDFromTargetPath returns the volume that is mounted at a path.
	GetVolumeIDFromTargetPath(context.Context,
		*GetVolumeIDFromTargetPathRequest) (*GetVolumeIDFromTargetPathResponse, error)
	// GetVolumeStats returns the size of a volume and what is in use, in bytes.
	GetVolumeStats(context.Context, *GetVolumeStatsRequest) (*GetVolumeStatsResponse, error)
	// IsVolumeFormatted reports whether a volume has a file system.
	IsVolumeFormatted(context.Context, *IsVolumeFormattedRequest) (*IsVolumeFormattedResponse, error)
	// ListVolumesOnDisk lists the volumes of a disk, or of one partition if that isn't 0.
	ListVolumesOnDisk(context.Context, *ListVolumesOnDiskRequest) (*ListVolumesOnDiskResponse, error)
	// MountVolume mounts a volume at a directory.
	MountVolume(context.Context, *MountVolumeRequest) (*MountVolumeResponse, error)
	// ResizeVolume grows a volume; 0 is as far as the disk allows.
	ResizeVolume(context.Context, *ResizeVolumeRequest) (*ResizeVolumeResponse, error)
	// UnmountVolume writes a volume's cache out and unmounts it.
	UnmountVolume(context.Context, *UnmountVolumeRequest) (*UnmountVolumeResponse, error)
	// WriteVolumeCache writes a volume's cache out.
	WriteVolumeCache(context.Context, *WriteVolumeCacheRequest) (*WriteVolumeCacheResponse, error)
}

// Volume implements [Interface] over a HostAPI.
type Volume struct{ hostAPI api.HostAPI }

var _ Interface = (*Volume)(nil)

// New returns the node's volumes. The error is always nil.
func New(hostAPI api.HostAPI) (*Volume, error) { return &Volume{hostAPI}, nil }

func (v *Volume) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, v.hostAPI) }

func (v *Volume) FormatVolume(ctx context.Context, request *FormatVolumeRequest) (*FormatVolumeResponse, error) {
	return &FormatVolumeResponse{}, v.host(ctx).FormatVolume(request.VolumeID)
}

func (v *Volume) GetClosestVolumeIDFromTargetPath(ctx context.Context,
	request *GetClosestVolumeIDFromTargetPathRequest) (*GetClosestVolumeIDFromTargetPathResponse, error) {
	volumeID, err := v.host(ctx).GetClosestVolumeIDFromTargetPath(request.TargetPath)
	return &GetClosestVolumeIDFromTargetPathResponse{volumeID}, err
}

func (v *Volume) GetDiskNumberFromVolumeID(ctx context.Context,
	request *GetDiskNumberFromVolumeIDRequest) (*GetDiskNumberFromVolumeIDResponse, error) {
	diskNumber, err := v.host(ctx).GetDiskNumberFromVolumeID(request.VolumeID)
	return &GetDiskNumberFromVolumeIDResponse{diskNumber}, err
}

func (v *Volume) GetVolumeIDFromTargetPath(ctx context.Context,
	request *GetVolumeIDFromTargetPathRequest) (*GetVolumeIDFromTargetPathResponse, error) {
	volumeID, err := v.host(ctx).GetVolumeIDFromTargetPath(request.TargetPath)
	return &GetVolumeIDFromTargetPathResponse{volumeID}, err
}

func (v *Volume) GetVolumeStats(ctx context.Context, request *GetVolumeStatsRequest) (*GetVolumeStatsResponse, error) {
	totalBytes, usedBytes, err := v.host(ctx).GetVolumeStats(request.VolumeID)
	return &GetVolumeStatsResponse{totalBytes, usedBytes}, err
}

func (v *Volume) IsVolumeFormatted(ctx context.Context,
	request *IsVolumeFormattedRequest) (*IsVolumeFormattedResponse, error) {
	formatted, err := v.host(ctx).IsVolumeFormatted(request.VolumeID)
	return &IsVolumeFormattedResponse{formatted}, err
}

func (v *Volume) ListVolumesOnDisk(ctx context.Context,
	request *ListVolumesOnDiskRequest) (*ListVolumesOnDiskResponse, error) {
	volumeIDs, err := v.host(ctx).ListVolumesOnDisk(request.DiskNumber, request.PartitionNumber)
	return &ListVolumesOnDiskResponse{volumeIDs}, err
}

func (v *Volume) MountVolume(ctx context.Context, request *MountVolumeRequest) (*MountVolumeResponse, error) {
	return &MountVolumeResponse{}, v.host(ctx).MountVolume(request.VolumeID, request.TargetPath)
}

func (v *Volume) ResizeVolume(ctx context.Context, request *ResizeVolumeRequest) (*ResizeVolumeResponse, error) {
	return &ResizeVolumeResponse{}, v.host(ctx).ResizeVolume(request.VolumeID, request.SizeBytes)
}

func (v *Volume) UnmountVolume(ctx context.Context, request *UnmountVolumeRequest) (*UnmountVolumeResponse, error) {
	return &UnmountVolumeResponse{}, v.host(ctx).UnmountVolume(request.VolumeID, request.TargetPath)
}

func (v *Volume) WriteVolumeCache(ctx context.Context,
	request *WriteVolumeCacheRequest) (*WriteVolumeCacheResponse, error) {
	return &WriteVolumeCacheResponse{}, v.host(ctx).WriteVolumeCache(request.VolumeID)
}
