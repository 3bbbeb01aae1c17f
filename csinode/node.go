// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/storage"
)

// NodeGetInfo implements csi.NodeServer.
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	response := &csi.NodeGetInfoResponse{NodeId: s.options.NodeID, MaxVolumesPerNode: s.options.MaxVolumes}
	if s.options.Topology != nil {
		response.AccessibleTopology = &csi.Topology{Segments: s.options.Topology}
	}
	return response, nil
}

// NodeGetCapabilities implements csi.NodeServer.
func (s *Server) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
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
func (s *Server) NodeGetVolumeStats(ctx context.Context,
	r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	_, path, err := s.volumeAt(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	v, err := s.options.Storage.GetVolume(ctx, path)
	if err != nil {
		return nil, err
	}
	if v.SizeBytes == 0 {
		return nil, status.Errorf(codes.Unavailable, "the size of volume %s isn't known: %v", r.VolumeId, v.Conditions)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{
		Unit:      csi.VolumeUsage_BYTES,
		Total:     v.SizeBytes,
		Used:      v.UsedBytes,
		Available: v.FreeBytes,
	}}}, nil
}

// NodeGetVolumeHealth implements csi.NodeServer. In CSI 1.13 it replaces the volume
// condition in NodeGetVolumeStats.
func (s *Server) NodeGetVolumeHealth(ctx context.Context,
	r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	rec, err := s.records.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s isn't staged", r.VolumeId)
	}
	v, err := s.options.Storage.GetVolume(ctx, rec.StagingPath)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		v.Conditions = storage.Conditions{{Reason: storage.NotMounted, Inaccessible: true,
			Message: "nothing is mounted at the staging path"}}
	case err != nil:
		return nil, err
	}
	health := &csi.VolumeHealth{VolumeId: r.VolumeId}
	for _, c := range v.Conditions {
		entry := &csi.VolumeHealth_VolumeHealthEntry{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: string(c.Reason),
			Message: c.Message}
		if c.Inaccessible {
			entry.Status = csi.VolumeHealthErrorType_INACCESSIBLE
		}
		health.HealthStatuses = append(health.HealthStatuses, entry)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeExpandVolume implements csi.NodeServer. The file system grows to the end of the
// disk. It is a little smaller than the volume's capacity, which is the disk's size, since
// the partition table needs room.
func (s *Server) NodeExpandVolume(ctx context.Context,
	r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	rec, path, err := s.volumeAt(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if rec.Source.isShare() {
		return nil, status.Error(codes.FailedPrecondition, "a share can't be resized here, only on its server")
	}
	if r.VolumeCapability.GetBlock() != nil {
		return nil, invalid("%s", Unsupported(r.VolumeCapability, false))
	}
	unlock, err := s.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	done, err := s.options.Storage.ExpandVolume(ctx, storage.ExpandVolumeRequest{
		Path: path, DiskSizeBytes: r.GetCapacityRange().GetRequiredBytes(), Wait: s.options.Wait,
	})
	return &csi.NodeExpandVolumeResponse{CapacityBytes: done.DiskSizeBytes}, err
}

// volumeAt returns the record of a volume, and the path, if the volume is staged or
// published there.
func (s *Server) volumeAt(volumeID, volumePath string) (rec *record, path string, err error) {
	if err := required("volume_id", volumeID); err != nil {
		return nil, "", err
	}
	if err := required("volume_path", volumePath); err != nil {
		return nil, "", err
	}
	if rec, err = s.records.load(volumeID); err != nil {
		return nil, "", err
	}
	path, err = windowsPath("volume_path", volumePath)
	if err != nil || rec == nil || !rec.isAt(path) { // no volume has a relative path
		return nil, "", status.Errorf(codes.NotFound, "volume %s isn't at %s", volumeID, volumePath)
	}
	return rec, path, nil
}

// isAt reports whether the driver has staged or published the volume at a path.
func (rec *record) isAt(path string) bool {
	return samePath(rec.StagingPath, path) ||
		slices.ContainsFunc(rec.Targets, func(t target) bool { return samePath(t.Path, path) })
}
