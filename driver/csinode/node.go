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
func (s *Server) NodeGetCapabilities(ctx context.Context,
	_ *csi.NodeGetCapabilitiesRequest) (_ *csi.NodeGetCapabilitiesResponse, err error) {
	defer coded(&err)
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if expands, err := s.expands(ctx); err != nil {
		return nil, err
	} else if expands {
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

// expands reports whether the driver's volumes can grow.
func (s *Server) expands(ctx context.Context) (bool, error) {
	if s.options.NoExpansion || s.options.Controller == nil {
		return !s.options.NoExpansion, nil
	}
	offered, err := s.options.Controller.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(offered.Capabilities, func(c *csi.ControllerServiceCapability) bool {
		return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_EXPAND_VOLUME
	}), nil
}

// NodeGetVolumeStats implements csi.NodeServer.
func (s *Server) NodeGetVolumeStats(ctx context.Context,
	r *csi.NodeGetVolumeStatsRequest) (_ *csi.NodeGetVolumeStatsResponse, err error) {
	defer coded(&err)
	_, path, err := s.volumeAt(ctx, r.VolumeId, r.VolumePath)
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
	r *csi.NodeGetVolumeHealthRequest) (_ *csi.NodeGetVolumeHealthResponse, err error) {
	defer coded(&err)
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	rec, err := s.store.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s isn't staged", r.VolumeId)
	}
	v, err := s.options.Storage.GetVolume(ctx, rec.StagingPath)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		v.Conditions = csiproxy.Conditions{{Reason: csiproxy.ReasonNotMounted, Inaccessible: true,
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
// disk. The capacity in the response is the file system's: a little less than the disk's size, since
// the partition table needs room. If more is lost, the error says what is in the way.
func (s *Server) NodeExpandVolume(ctx context.Context,
	r *csi.NodeExpandVolumeRequest) (_ *csi.NodeExpandVolumeResponse, err error) {
	defer coded(&err)
	if expands, err := s.expands(ctx); err != nil {
		return nil, err
	} else if !expands {
		return nil, status.Error(codes.Unimplemented, "the driver's volumes can't grow")
	}
	isShare, path, err := s.volumeAt(ctx, r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if isShare {
		return nil, status.Error(codes.FailedPrecondition, "a share can't be resized here, only on its server")
	}
	if r.VolumeCapability.GetBlock() != nil {
		return nil, invalid("%s", Unsupported(r.VolumeCapability, false))
	}
	unlock, err := s.store.volumes.try(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()

	expanded, err := s.options.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{
		StagingPath: path, DiskSizeBytes: r.GetCapacityRange().GetRequiredBytes(), Wait: s.options.Wait,
	})
	return &csi.NodeExpandVolumeResponse{CapacityBytes: expanded.SizeBytes}, err
}

// volumeAt returns a path, and whether the volume is a share, if the volume is staged or published
// there.
func (s *Server) volumeAt(ctx context.Context, volumeID, volumePath string) (isShare bool, path string, err error) {
	if err := required("volume_id", volumeID); err != nil {
		return false, "", err
	}
	if err := required("volume_path", volumePath); err != nil {
		return false, "", err
	}
	notThere := status.Errorf(codes.NotFound, "volume %s isn't at %s", volumeID, volumePath)
	if path, err = windowsPath("volume_path", volumePath); err != nil {
		return false, "", notThere // no volume has a relative path
	}
	rec, err := s.store.load(volumeID)
	switch {
	case err != nil:
		return false, "", err
	case rec != nil && rec.isAt(path):
		return rec.Source.isShare(), path, nil
	}
	isShare, is, err := s.isAtByKubelet(ctx, volumeID, path)
	if err == nil && !is {
		err = notThere
	}
	return isShare, path, err
}

// isAt reports whether the driver has staged or published the volume at a path.
func (rec *record) isAt(path string) bool {
	return samePath(rec.StagingPath, path) ||
		slices.ContainsFunc(rec.Targets, func(t target) bool { return samePath(t.Path, path) })
}
