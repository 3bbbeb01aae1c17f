// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	diskv1alpha1 "github.com/csi-proxy/csi-proxy/api/disk/v1alpha1"
	diskv1beta2 "github.com/csi-proxy/csi-proxy/api/disk/v1beta2"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/published"
)

func diskVersions(ops published.DiskOperations) versions {
	current := methods{
		"ListDiskLocations": shared(func(ctx context.Context,
			_ *diskv1.ListDiskLocationsRequest) (*diskv1.ListDiskLocationsResponse, error) {
			locations, err := ops.ListDiskLocations(ctx)
			resp := &diskv1.ListDiskLocationsResponse{DiskLocations: make(map[uint32]*diskv1.DiskLocation)}
			for n, l := range locations {
				resp.DiskLocations[uint32(n)] = &diskv1.DiskLocation{
					Adapter: l.Adapter, Bus: l.Bus, Target: l.Target, LUNID: l.LUNID}
			}
			return resp, err
		}),
		"PartitionDisk": action(func(ctx context.Context, req *diskv1.PartitionDiskRequest) error {
			return ops.PartitionDisk(ctx, csiproxy.DiskNumber(req.DiskNumber))
		}),
		"Rescan": action(func(ctx context.Context, _ *diskv1.RescanRequest) error {
			return ops.Rescan(ctx)
		}),
		"ListDiskIDs": shared(func(ctx context.Context, _ *diskv1.ListDiskIDsRequest) (*diskv1.ListDiskIDsResponse, error) {
			disks, err := ops.ListDiskIDs(ctx)
			resp := &diskv1.ListDiskIDsResponse{DiskIDs: make(map[uint32]*diskv1.DiskIDs)}
			for n, ids := range disks {
				resp.DiskIDs[uint32(n)] = &diskv1.DiskIDs{Page83: wire.ValidText(ids.Page83),
					SerialNumber: wire.ValidText(ids.SerialNumber)}
			}
			return resp, err
		}),
		"GetDiskStats": unary(func(ctx context.Context,
			req *diskv1.GetDiskStatsRequest) (*diskv1.GetDiskStatsResponse, error) {
			stats, err := ops.GetDiskStats(ctx, csiproxy.DiskNumber(req.DiskNumber))
			return &diskv1.GetDiskStatsResponse{TotalBytes: stats.SizeBytes}, err
		}),
		"SetDiskState": action(func(ctx context.Context, req *diskv1.SetDiskStateRequest) error {
			return ops.SetDiskState(ctx, csiproxy.DiskNumber(req.DiskNumber), req.IsOnline)
		}),
		"GetDiskState": unary(func(ctx context.Context,
			req *diskv1.GetDiskStateRequest) (*diskv1.GetDiskStateResponse, error) {
			online, err := ops.GetDiskState(ctx, csiproxy.DiskNumber(req.DiskNumber))
			return &diskv1.GetDiskStateResponse{IsOnline: online}, err
		}),
	}

	// In v1beta2 and before, disk numbers are decimal strings.
	first := methods{
		"ListDiskLocations": shared(func(ctx context.Context,
			_ *diskv1beta2.ListDiskLocationsRequest) (*diskv1beta2.ListDiskLocationsResponse, error) {
			locations, err := ops.ListDiskLocations(ctx)
			resp := &diskv1beta2.ListDiskLocationsResponse{DiskLocations: make(map[string]*diskv1beta2.DiskLocation)}
			for n, l := range locations {
				resp.DiskLocations[n.String()] = &diskv1beta2.DiskLocation{
					Adapter: l.Adapter, Bus: l.Bus, Target: l.Target, LUNID: l.LUNID}
			}
			return resp, err
		}),
		"PartitionDisk": action(func(ctx context.Context, req *diskv1beta2.PartitionDiskRequest) error {
			n, err := parseDiskNumber(req.DiskID)
			if err != nil {
				return err
			}
			return ops.PartitionDisk(ctx, n)
		}),
		"Rescan": current["Rescan"],
	}
	byName := methods{
		"GetDiskNumberByName": unary(func(ctx context.Context,
			req *diskv1alpha1.GetDiskNumberByNameRequest) (*diskv1alpha1.GetDiskNumberByNameResponse, error) {
			n, err := ops.FindDiskByPage83(ctx, req.DiskName)
			return &diskv1alpha1.GetDiskNumberByNameResponse{DiskNumber: n.String()}, err
		}),
	}
	stats := methods{
		"ListDiskIDs": shared(func(ctx context.Context,
			_ *diskv1beta2.ListDiskIDsRequest) (*diskv1beta2.ListDiskIDsResponse, error) {
			disks, err := ops.ListDiskIDs(ctx)
			resp := &diskv1beta2.ListDiskIDsResponse{DiskIDs: make(map[string]*diskv1beta2.DiskIDs)}
			for n, ids := range disks {
				resp.DiskIDs[n.String()] = &diskv1beta2.DiskIDs{Identifiers: map[string]string{
					"page83": wire.ValidText(ids.Page83), "serialNumber": wire.ValidText(ids.SerialNumber)}}
			}
			return resp, err
		}),
		"DiskStats": unary(func(ctx context.Context,
			req *diskv1beta2.DiskStatsRequest) (*diskv1beta2.DiskStatsResponse, error) {
			n, err := parseDiskNumber(req.DiskID)
			if err != nil {
				return nil, err
			}
			stats, err := ops.GetDiskStats(ctx, n)
			return &diskv1beta2.DiskStatsResponse{DiskSize: stats.SizeBytes}, err
		}),
	}
	attachState := methods{
		"SetAttachState": action(func(ctx context.Context, req *diskv1beta2.SetAttachStateRequest) error {
			n, err := parseDiskNumber(req.DiskID)
			if err != nil {
				return err
			}
			return ops.SetDiskState(ctx, n, req.IsOnline)
		}),
		"GetAttachState": unary(func(ctx context.Context,
			req *diskv1beta2.GetAttachStateRequest) (*diskv1beta2.GetAttachStateResponse, error) {
			n, err := parseDiskNumber(req.DiskID)
			if err != nil {
				return nil, err
			}
			online, err := ops.GetDiskState(ctx, n)
			return &diskv1beta2.GetAttachStateResponse{IsOnline: online}, err
		}),
	}

	return versions{
		"v1":       {current},
		"v1beta3":  {current},
		"v1beta2":  {first, stats, attachState},
		"v1beta1":  {first, stats},
		"v1alpha1": {first, byName},
	}
}

// parseDiskNumber reads the decimal disk number of an old version.
func parseDiskNumber(s string) (csiproxy.DiskNumber, error) {
	n, err := csiproxy.ParseDiskNumber(s)
	if err != nil {
		return 0, &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Err: err}
	}
	return n, nil
}
