// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

type DiskIDs struct {
	Page83       string
	SerialNumber string
}

type DiskLocation struct {
	Adapter string
	Bus     string
	Target  string
	LUNID   string
}

// GetDiskStateRequest is what GetDiskState takes.
type GetDiskStateRequest struct {
	DiskNumber uint32
}

// GetDiskStateResponse is what GetDiskState returns.
type GetDiskStateResponse struct {
	IsOnline bool
}

// GetDiskStatsRequest is what GetDiskStats takes.
type GetDiskStatsRequest struct {
	DiskNumber uint32
}

// GetDiskStatsResponse is what GetDiskStats returns.
type GetDiskStatsResponse struct {
	TotalBytes int64
}

// ListDiskIDsRequest is what ListDiskIDs takes.
type ListDiskIDsRequest struct{}

// ListDiskIDsResponse is what ListDiskIDs returns.
type ListDiskIDsResponse struct {
	DiskIDs map[uint32]*DiskIDs
}

// ListDiskLocationsRequest is what ListDiskLocations takes.
type ListDiskLocationsRequest struct{}

// ListDiskLocationsResponse is what ListDiskLocations returns.
type ListDiskLocationsResponse struct {
	DiskLocations map[uint32]*DiskLocation
}

// PartitionDiskRequest is what PartitionDisk takes.
type PartitionDiskRequest struct {
	DiskNumber uint32
}

// PartitionDiskResponse is what PartitionDisk returns.
type PartitionDiskResponse struct{}

// RescanRequest is what Rescan takes.
type RescanRequest struct{}

// RescanResponse is what Rescan returns.
type RescanResponse struct{}

// SetDiskStateRequest is what SetDiskState takes.
type SetDiskStateRequest struct {
	DiskNumber uint32
	IsOnline   bool
}

// SetDiskStateResponse is what SetDiskState returns.
type SetDiskStateResponse struct{}
