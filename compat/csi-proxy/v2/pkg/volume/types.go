// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

// FormatVolumeRequest is what FormatVolume takes.
type FormatVolumeRequest struct {
	VolumeID string
}

// FormatVolumeResponse is what FormatVolume returns.
type FormatVolumeResponse struct{}

// GetClosestVolumeIDFromTargetPathRequest is what GetClosestVolumeIDFromTargetPath takes.
type GetClosestVolumeIDFromTargetPathRequest struct {
	TargetPath string
}

// GetClosestVolumeIDFromTargetPathResponse is what GetClosestVolumeIDFromTargetPath returns.
type GetClosestVolumeIDFromTargetPathResponse struct {
	VolumeID string
}

// GetDiskNumberFromVolumeIDRequest is what GetDiskNumberFromVolumeID takes.
type GetDiskNumberFromVolumeIDRequest struct {
	VolumeID string
}

// GetDiskNumberFromVolumeIDResponse is what GetDiskNumberFromVolumeID returns.
type GetDiskNumberFromVolumeIDResponse struct {
	DiskNumber uint32
}

// GetVolumeIDFromTargetPathRequest is what GetVolumeIDFromTargetPath takes.
type GetVolumeIDFromTargetPathRequest struct {
	TargetPath string
}

// GetVolumeIDFromTargetPathResponse is what GetVolumeIDFromTargetPath returns.
type GetVolumeIDFromTargetPathResponse struct {
	VolumeID string
}

// GetVolumeStatsRequest is what GetVolumeStats takes.
type GetVolumeStatsRequest struct {
	VolumeID string
}

// GetVolumeStatsResponse is what GetVolumeStats returns.
type GetVolumeStatsResponse struct {
	TotalBytes int64
	UsedBytes  int64
}

// IsVolumeFormattedRequest is what IsVolumeFormatted takes.
type IsVolumeFormattedRequest struct {
	VolumeID string
}

// IsVolumeFormattedResponse is what IsVolumeFormatted returns.
type IsVolumeFormattedResponse struct {
	Formatted bool
}

// ListVolumesOnDiskRequest is what ListVolumesOnDisk takes.
type ListVolumesOnDiskRequest struct {
	DiskNumber      uint32
	PartitionNumber uint32
}

// ListVolumesOnDiskResponse is what ListVolumesOnDisk returns.
type ListVolumesOnDiskResponse struct {
	VolumeIDs []string
}

// MountVolumeRequest is what MountVolume takes.
type MountVolumeRequest struct {
	VolumeID   string
	TargetPath string
}

// MountVolumeResponse is what MountVolume returns.
type MountVolumeResponse struct{}

// ResizeVolumeRequest is what ResizeVolume takes.
type ResizeVolumeRequest struct {
	VolumeID  string
	SizeBytes int64
}

// ResizeVolumeResponse is what ResizeVolume returns.
type ResizeVolumeResponse struct{}

// UnmountVolumeRequest is what UnmountVolume takes.
type UnmountVolumeRequest struct {
	VolumeID   string
	TargetPath string
}

// UnmountVolumeResponse is what UnmountVolume returns.
type UnmountVolumeResponse struct{}

// WriteVolumeCacheRequest is what WriteVolumeCache takes.
type WriteVolumeCacheRequest struct {
	VolumeID string
}

// WriteVolumeCacheResponse is what WriteVolumeCache returns.
type WriteVolumeCacheResponse struct{}
