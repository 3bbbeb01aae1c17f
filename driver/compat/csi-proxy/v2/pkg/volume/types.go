// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

// What the methods take and return.
type (
	FormatVolumeRequest                      struct{ VolumeID string }
	FormatVolumeResponse                     struct{}
	GetClosestVolumeIDFromTargetPathRequest  struct{ TargetPath string }
	GetClosestVolumeIDFromTargetPathResponse struct{ VolumeID string }
	GetDiskNumberFromVolumeIDRequest         struct{ VolumeID string }
	GetDiskNumberFromVolumeIDResponse        struct{ DiskNumber uint32 }
	GetVolumeIDFromTargetPathRequest         struct{ TargetPath string }
	GetVolumeIDFromTargetPathResponse        struct{ VolumeID string }
	GetVolumeStatsRequest                    struct{ VolumeID string }
	GetVolumeStatsResponse                   struct{ TotalBytes, UsedBytes int64 }
	IsVolumeFormattedRequest                 struct{ VolumeID string }
	IsVolumeFormattedResponse                struct{ Formatted bool }
	ListVolumesOnDiskRequest                 struct{ DiskNumber, PartitionNumber uint32 }
	ListVolumesOnDiskResponse                struct{ VolumeIDs []string }
	MountVolumeRequest                       struct{ VolumeID, TargetPath string }
	MountVolumeResponse                      struct{}
	ResizeVolumeRequest                      struct {
		VolumeID  string
		SizeBytes int64
	}
	ResizeVolumeResponse     struct{}
	UnmountVolumeRequest     struct{ VolumeID, TargetPath string }
	UnmountVolumeResponse    struct{}
	WriteVolumeCacheRequest  struct{ VolumeID string }
	WriteVolumeCacheResponse struct{}
)
