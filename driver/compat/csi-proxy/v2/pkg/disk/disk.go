// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disk has the published library's methods for the node's disks, over CSI Proxy's operations.
package disk

import (
	"context"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/disk/hostapi"
)

// Interface is the node's disks.
type Interface interface {
	// GetDiskReadOnly reports whether nothing can be written to a disk.
	GetDiskReadOnly(context.Context, *GetDiskReadOnlyRequest) (*GetDiskReadOnlyResponse, error)
	// GetDiskState reports whether a disk is online.
	GetDiskState(context.Context, *GetDiskStateRequest) (*GetDiskStateResponse, error)
	// GetDiskStats returns the size of a disk in bytes.
	GetDiskStats(context.Context, *GetDiskStatsRequest) (*GetDiskStatsResponse, error)
	// ListDiskIDs returns what each disk says of itself, by disk number.
	ListDiskIDs(context.Context, *ListDiskIDsRequest) (*ListDiskIDsResponse, error)
	// ListDiskLocations returns where each disk is attached, by disk number.
	ListDiskLocations(context.Context, *ListDiskLocationsRequest) (*ListDiskLocationsResponse, error)
	// PartitionDisk gives a disk a GPT and a data partition, unless it has one.
	PartitionDisk(context.Context, *PartitionDiskRequest) (*PartitionDiskResponse, error)
	// Rescan has Windows look for new disks.
	Rescan(context.Context, *RescanRequest) (*RescanResponse, error)
	// SetDiskState takes a disk online or offline.
	SetDiskState(context.Context, *SetDiskStateRequest) (*SetDiskStateResponse, error)
	// SetDiskReadOnly makes a disk writable, and refuses to make it read-only.
	SetDiskReadOnly(context.Context, *SetDiskReadOnlyRequest) (*SetDiskReadOnlyResponse, error)
}

// Disk implements [Interface] over a HostAPI.
type Disk struct{ hostAPI api.HostAPI }

var _ Interface = (*Disk)(nil)

// New returns the node's disks. The error is always nil.
func New(hostAPI api.HostAPI) (*Disk, error) { return &Disk{hostAPI}, nil }

func (d *Disk) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, d.hostAPI) }

func (d *Disk) GetDiskState(ctx context.Context, request *GetDiskStateRequest) (*GetDiskStateResponse, error) {
	isOnline, err := d.host(ctx).GetDiskState(request.DiskNumber)
	return &GetDiskStateResponse{isOnline}, err
}

func (d *Disk) GetDiskStats(ctx context.Context, request *GetDiskStatsRequest) (*GetDiskStatsResponse, error) {
	totalBytes, err := d.host(ctx).GetDiskStats(request.DiskNumber)
	return &GetDiskStatsResponse{totalBytes}, err
}

func (d *Disk) Rescan(ctx context.Context, _ *RescanRequest) (*RescanResponse, error) {
	return &RescanResponse{}, d.host(ctx).Rescan()
}

func (d *Disk) SetDiskState(ctx context.Context, request *SetDiskStateRequest) (*SetDiskStateResponse, error) {
	return &SetDiskStateResponse{}, d.host(ctx).SetDiskState(request.DiskNumber, request.IsOnline)
}

func (d *Disk) GetDiskReadOnly(ctx context.Context, request *GetDiskReadOnlyRequest) (*GetDiskReadOnlyResponse, error) {
	isReadOnly, err := d.host(ctx).GetDiskReadOnly(request.DiskNumber)
	return &GetDiskReadOnlyResponse{isReadOnly}, err
}

func (d *Disk) SetDiskReadOnly(ctx context.Context, request *SetDiskReadOnlyRequest) (*SetDiskReadOnlyResponse, error) {
	return &SetDiskReadOnlyResponse{}, d.host(ctx).SetDiskReadOnly(request.DiskNumber, request.IsReadOnly)
}

func (d *Disk) ListDiskIDs(ctx context.Context, _ *ListDiskIDsRequest) (*ListDiskIDsResponse, error) {
	all, err := d.host(ctx).ListDiskIDs()
	if err != nil {
		return nil, err
	}
	ids := make(map[uint32]*DiskIDs, len(all))
	for number, one := range all {
		ids[number] = &DiskIDs{one.Page83, one.SerialNumber}
	}
	return &ListDiskIDsResponse{ids}, nil
}

func (d *Disk) ListDiskLocations(ctx context.Context, _ *ListDiskLocationsRequest) (*ListDiskLocationsResponse, error) {
	all, err := d.host(ctx).ListDiskLocations()
	if err != nil {
		return nil, err
	}
	locations := make(map[uint32]*DiskLocation, len(all))
	for number, one := range all {
		locations[number] = &DiskLocation{one.Adapter, one.Bus, one.Target, one.LUNID}
	}
	return &ListDiskLocationsResponse{locations}, nil
}

func (d *Disk) PartitionDisk(ctx context.Context, request *PartitionDiskRequest) (*PartitionDiskResponse, error) {
	host := d.host(ctx)
	partitioned, err := host.BasicPartitionsExist(request.DiskNumber)
	if err != nil || partitioned {
		return &PartitionDiskResponse{}, err
	}
	initialized, err := host.IsDiskInitialized(request.DiskNumber)
	if err != nil {
		return nil, err
	}
	if !initialized {
		if err := host.InitializeDisk(request.DiskNumber); err != nil {
			return nil, err
		}
	}
	return &PartitionDiskResponse{}, host.CreateBasicPartition(request.DiskNumber)
}
