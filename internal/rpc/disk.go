// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	diskv1alpha1 "github.com/csi-proxy/csi-proxy/api/disk/v1alpha1"
	diskv1beta2 "github.com/csi-proxy/csi-proxy/api/disk/v1beta2"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

func diskVersions(ops disk.Operations) versions {
	h := diskHandler{ops}
	current := methods{
		"ListDiskLocations": unary(h.ListDiskLocations),
		"PartitionDisk":     unary(h.PartitionDisk),
		"Rescan":            unary(h.Rescan),
		"ListDiskIDs":       unary(h.ListDiskIDs),
		"GetDiskStats":      unary(h.GetDiskStats),
		"SetDiskState":      unary(h.SetDiskState),
		"GetDiskState":      unary(h.GetDiskState),
	}

	byString := diskByStringHandler{ops}
	first := methods{
		"ListDiskLocations": unary(byString.ListDiskLocations),
		"PartitionDisk":     unary(byString.PartitionDisk),
		"Rescan":            unary(h.Rescan),
	}
	byName := methods{
		"GetDiskNumberByName": unary(byString.GetDiskNumberByName),
	}
	stats := methods{
		"ListDiskIDs": unary(byString.ListDiskIDs),
		"DiskStats":   unary(byString.DiskStats),
	}
	attachState := methods{
		"SetAttachState": unary(byString.SetAttachState),
		"GetAttachState": unary(byString.GetAttachState),
	}

	return versions{
		"v1":       {current},
		"v1beta3":  {current},
		"v1beta2":  {first, stats, attachState},
		"v1beta1":  {first, stats},
		"v1alpha1": {first, byName},
	}
}

// diskHandler answers the messages of v1.
type diskHandler struct{ ops disk.Operations }

func (h diskHandler) ListDiskLocations(ctx context.Context,
	_ *diskv1.ListDiskLocationsRequest) (*diskv1.ListDiskLocationsResponse, error) {
	locations, err := h.ops.ListDiskLocations(ctx)
	if err != nil {
		return nil, err
	}
	resp := &diskv1.ListDiskLocationsResponse{DiskLocations: make(map[uint32]*diskv1.DiskLocation)}
	for n, location := range locations {
		resp.DiskLocations[uint32(n)] = &diskv1.DiskLocation{
			Adapter: location.Adapter,
			Bus:     location.Bus,
			Target:  location.Target,
			LUNID:   location.LUNID,
		}
	}
	return resp, nil
}

func (h diskHandler) PartitionDisk(ctx context.Context,
	req *diskv1.PartitionDiskRequest) (*diskv1.PartitionDiskResponse, error) {
	return &diskv1.PartitionDiskResponse{}, h.ops.PartitionDisk(ctx, disk.Number(req.DiskNumber))
}

func (h diskHandler) Rescan(ctx context.Context, _ *diskv1.RescanRequest) (*diskv1.RescanResponse, error) {
	return &diskv1.RescanResponse{}, h.ops.Rescan(ctx)
}

func (h diskHandler) ListDiskIDs(ctx context.Context,
	_ *diskv1.ListDiskIDsRequest) (*diskv1.ListDiskIDsResponse, error) {
	disks, err := h.ops.ListDiskIDs(ctx)
	if err != nil {
		return nil, err
	}
	resp := &diskv1.ListDiskIDsResponse{DiskIDs: make(map[uint32]*diskv1.DiskIDs)}
	for n, ids := range disks {
		resp.DiskIDs[uint32(n)] = &diskv1.DiskIDs{Page83: wire.ValidText(ids.Page83),
			SerialNumber: wire.ValidText(ids.SerialNumber)}
	}
	return resp, nil
}

func (h diskHandler) GetDiskStats(ctx context.Context,
	req *diskv1.GetDiskStatsRequest) (*diskv1.GetDiskStatsResponse, error) {
	stats, err := h.ops.GetDiskStats(ctx, disk.Number(req.DiskNumber))
	return &diskv1.GetDiskStatsResponse{TotalBytes: stats.SizeBytes}, err
}

func (h diskHandler) SetDiskState(ctx context.Context,
	req *diskv1.SetDiskStateRequest) (*diskv1.SetDiskStateResponse, error) {
	return &diskv1.SetDiskStateResponse{}, h.ops.SetDiskState(ctx, disk.Number(req.DiskNumber), req.IsOnline)
}

func (h diskHandler) GetDiskState(ctx context.Context,
	req *diskv1.GetDiskStateRequest) (*diskv1.GetDiskStateResponse, error) {
	online, err := h.ops.GetDiskState(ctx, disk.Number(req.DiskNumber))
	return &diskv1.GetDiskStateResponse{IsOnline: online}, err
}

// diskByStringHandler answers the messages of v1beta2, where disk numbers are
// decimal strings, and what only v1alpha1 has.
type diskByStringHandler struct{ ops disk.Operations }

func (h diskByStringHandler) ListDiskLocations(ctx context.Context,
	_ *diskv1beta2.ListDiskLocationsRequest) (*diskv1beta2.ListDiskLocationsResponse, error) {
	locations, err := h.ops.ListDiskLocations(ctx)
	if err != nil {
		return nil, err
	}
	resp := &diskv1beta2.ListDiskLocationsResponse{DiskLocations: make(map[string]*diskv1beta2.DiskLocation)}
	for n, location := range locations {
		resp.DiskLocations[n.String()] = &diskv1beta2.DiskLocation{
			Adapter: location.Adapter,
			Bus:     location.Bus,
			Target:  location.Target,
			LUNID:   location.LUNID,
		}
	}
	return resp, nil
}

func (h diskByStringHandler) PartitionDisk(ctx context.Context,
	req *diskv1beta2.PartitionDiskRequest) (*diskv1beta2.PartitionDiskResponse, error) {
	n, err := parseDiskNumber(req.DiskID)
	if err != nil {
		return nil, err
	}
	return &diskv1beta2.PartitionDiskResponse{}, h.ops.PartitionDisk(ctx, n)
}

func (h diskByStringHandler) ListDiskIDs(ctx context.Context,
	_ *diskv1beta2.ListDiskIDsRequest) (*diskv1beta2.ListDiskIDsResponse, error) {
	disks, err := h.ops.ListDiskIDs(ctx)
	if err != nil {
		return nil, err
	}
	resp := &diskv1beta2.ListDiskIDsResponse{DiskIDs: make(map[string]*diskv1beta2.DiskIDs)}
	for n, ids := range disks {
		resp.DiskIDs[n.String()] = &diskv1beta2.DiskIDs{Identifiers: map[string]string{
			"page83":       wire.ValidText(ids.Page83),
			"serialNumber": wire.ValidText(ids.SerialNumber),
		}}
	}
	return resp, nil
}

func (h diskByStringHandler) DiskStats(ctx context.Context,
	req *diskv1beta2.DiskStatsRequest) (*diskv1beta2.DiskStatsResponse, error) {
	n, err := parseDiskNumber(req.DiskID)
	if err != nil {
		return nil, err
	}
	stats, err := h.ops.GetDiskStats(ctx, n)
	return &diskv1beta2.DiskStatsResponse{DiskSize: stats.SizeBytes}, err
}

func (h diskByStringHandler) SetAttachState(ctx context.Context,
	req *diskv1beta2.SetAttachStateRequest) (*diskv1beta2.SetAttachStateResponse, error) {
	n, err := parseDiskNumber(req.DiskID)
	if err != nil {
		return nil, err
	}
	return &diskv1beta2.SetAttachStateResponse{}, h.ops.SetDiskState(ctx, n, req.IsOnline)
}

func (h diskByStringHandler) GetAttachState(ctx context.Context,
	req *diskv1beta2.GetAttachStateRequest) (*diskv1beta2.GetAttachStateResponse, error) {
	n, err := parseDiskNumber(req.DiskID)
	if err != nil {
		return nil, err
	}
	online, err := h.ops.GetDiskState(ctx, n)
	return &diskv1beta2.GetAttachStateResponse{IsOnline: online}, err
}

func (h diskByStringHandler) GetDiskNumberByName(ctx context.Context,
	req *diskv1alpha1.GetDiskNumberByNameRequest) (*diskv1alpha1.GetDiskNumberByNameResponse, error) {
	n, err := h.ops.FindDiskByPage83(ctx, req.DiskName)
	return &diskv1alpha1.GetDiskNumberByNameResponse{DiskNumber: n.String()}, err
}

// parseDiskNumber reads the decimal disk number of an old version.
func parseDiskNumber(s string) (disk.Number, error) {
	n, err := disk.ParseNumber(s)
	if err != nil {
		return 0, &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Err: err}
	}
	return n, nil
}
