// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

// What the methods take and return.
type (
	GetDiskReadOnlyRequest    struct{ DiskNumber uint32 }
	GetDiskReadOnlyResponse   struct{ IsReadOnly bool }
	GetDiskStateRequest       struct{ DiskNumber uint32 }
	GetDiskStateResponse      struct{ IsOnline bool }
	GetDiskStatsRequest       struct{ DiskNumber uint32 }
	GetDiskStatsResponse      struct{ TotalBytes int64 }
	ListDiskIDsRequest        struct{}
	ListDiskIDsResponse       struct{ DiskIDs map[uint32]*DiskIDs }
	ListDiskLocationsRequest  struct{}
	ListDiskLocationsResponse struct{ DiskLocations map[uint32]*DiskLocation }
	PartitionDiskRequest      struct{ DiskNumber uint32 }
	PartitionDiskResponse     struct{}
	RescanRequest             struct{}
	RescanResponse            struct{}
	SetDiskStateRequest       struct {
		DiskNumber uint32
		IsOnline   bool
	}
	SetDiskStateResponse   struct{}
	SetDiskReadOnlyRequest struct {
		DiskNumber uint32
		IsReadOnly bool
	}
	SetDiskReadOnlyResponse struct{}
)

// What these have in their fields.
type (
	DiskIDs      struct{ Page83, SerialNumber string }
	DiskLocation struct{ Adapter, Bus, Target, LUNID string }
)
