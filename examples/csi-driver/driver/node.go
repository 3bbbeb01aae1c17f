// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.options.NodeID}, nil
}

// NodeGetCapabilities implements csi.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// NodeGetVolumeStats implements csi.NodeServer.
func (d *Driver) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	rec, err := d.volumeAt(ctx, r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if rec.Source.Type == typeSMB {
		// CSI Proxy's API has no call for the size of a share.
		return &csi.NodeGetVolumeStatsResponse{}, nil
	}
	stats, err := d.options.Proxy.Volume.GetVolumeStats(ctx, rec.Volume)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{
		Unit:      csi.VolumeUsage_BYTES,
		Total:     stats.TotalBytes,
		Used:      stats.UsedBytes,
		Available: stats.TotalBytes - stats.UsedBytes,
	}}}, nil
}

// NodeExpandVolume implements csi.NodeServer. The file system grows to the end of the
// disk. It is a little smaller than the volume's capacity, since the partition table
// needs room.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	rec, err := d.volumeAt(ctx, r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if rec.Source.Type == typeSMB {
		return nil, status.Error(codes.FailedPrecondition, "a share can't be resized here, only on its server")
	}
	if r.VolumeCapability.GetBlock() != nil {
		return nil, invalid("%s", unsupported(r.VolumeCapability, rec.Source))
	}
	unlock, err := d.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	p := d.options.Proxy
	if err := p.Disk.Rescan(ctx); err != nil {
		return nil, err
	}
	number, err := p.Volume.GetDiskNumberFromVolumeID(ctx, rec.Volume)
	if err != nil {
		return nil, err
	}
	stats, err := p.Disk.GetDiskStats(ctx, number)
	if err != nil {
		return nil, err
	}
	if wanted := r.GetCapacityRange().GetRequiredBytes(); stats.TotalBytes < wanted {
		return nil, status.Errorf(codes.OutOfRange, "the disk of volume %s has %d bytes, not %d", r.VolumeId, stats.TotalBytes, wanted)
	}
	if err := p.Volume.ResizeVolume(ctx, rec.Volume, 0); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: stats.TotalBytes}, nil
}

// volumeAt returns the record of a volume, if the volume is staged or published at a path.
func (d *Driver) volumeAt(ctx context.Context, volumeID, path string) (*record, error) {
	if err := required("volume_id", volumeID); err != nil {
		return nil, err
	}
	if err := required("volume_path", path); err != nil {
		return nil, err
	}
	isNot := status.Errorf(codes.NotFound, "volume %s isn't at %s", volumeID, path)
	rec, err := d.records.load(volumeID)
	if err != nil {
		return nil, err
	}
	path, err = windowsPath("volume_path", path)
	if err != nil || rec == nil {
		return nil, isNot // no volume has a relative path
	}
	if rec.Source.Type == typeSMB {
		if !rec.isAt(path) {
			return nil, isNot
		}
		return rec, nil
	}
	id, err := d.options.Proxy.Volume.GetVolumeIDFromTargetPath(ctx, path)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound) || err == nil && !id.Equal(rec.Volume):
		return nil, isNot
	case err != nil:
		return nil, err
	}
	return rec, nil
}

// isAt reports whether the driver has staged or published the volume at a path.
func (rec *record) isAt(path string) bool {
	if samePath(rec.StagingPath, path) {
		return true
	}
	for _, t := range rec.Targets {
		if samePath(t.Path, path) {
			return true
		}
	}
	return false
}
