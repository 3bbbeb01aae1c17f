// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud"
)

// Controller creates volumes in a cloud and attaches them to nodes.
type Controller struct {
	csi.UnimplementedControllerServer
	cloud *cloud.Cloud
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// CreateVolume implements csi.ControllerServer. For a volume on a share or a target, it
// only records the name, since the storage exists already.
func (c *Controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := required("name", r.Name); err != nil {
		return nil, err
	}
	src, err := parseSource(r.Parameters)
	if err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, invalid("volume_capabilities is missing")
	}
	for _, capability := range r.VolumeCapabilities {
		if why := csinode.Unsupported(capability, src.Type == typeSMB); why != "" {
			return nil, invalid("%s", why)
		}
		if _, err := csinode.FormatOptions(capability.GetMount().GetFsType(), r.Parameters, sourceParameters...); err != nil {
			return nil, err
		}
	}
	if r.VolumeContentSource != nil {
		return nil, invalid("a volume can't be made from a snapshot or another volume")
	}
	size := cloud.Range{Required: r.GetCapacityRange().GetRequiredBytes(), Limit: r.GetCapacityRange().GetLimitBytes()}
	if src.Type != typeDisk {
		size = cloud.Range{}
	}
	v, err := c.cloud.Create(r.Name, size, src.Type == typeDisk, parametersOf(r.Parameters))
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: asVolume(v)}, nil
}

// parametersOf returns the parameters that this driver uses.
func parametersOf(params map[string]string) map[string]string {
	ours := make(map[string]string)
	for _, key := range slices.Concat(sourceParameters, csinode.FormatParameters) {
		if value, ok := params[key]; ok {
			ours[key] = value
		}
	}
	return ours
}

func asVolume(v cloud.Volume) *csi.Volume {
	return &csi.Volume{VolumeId: v.ID, CapacityBytes: v.SizeBytes, VolumeContext: maps.Clone(v.Parameters)}
}

// DeleteVolume implements csi.ControllerServer.
func (c *Controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, c.cloud.Delete(ctx, r.VolumeId)
}

// ControllerPublishVolume implements csi.ControllerServer.
func (c *Controller) ControllerPublishVolume(ctx context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	if err := required("node_id", r.NodeId); err != nil {
		return nil, err
	}
	if r.VolumeCapability == nil {
		return nil, invalid("volume_capability is missing")
	}
	v, err := c.cloud.Get(r.VolumeId)
	if err != nil {
		return nil, err
	}
	src, err := parseSource(v.Parameters)
	if err != nil {
		return nil, err
	}
	if why := csinode.Unsupported(r.VolumeCapability, src.Type == typeSMB); why != "" {
		return nil, status.Error(codes.FailedPrecondition, why)
	}
	readOnly := csinode.OnlyReads(r.VolumeCapability, r.Readonly)
	if err := c.cloud.Attach(ctx, r.VolumeId, r.NodeId, readOnly); err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{
		PublishContext: map[string]string{publishReadOnly: strconv.FormatBool(readOnly)},
	}, nil
}

// ControllerUnpublishVolume implements csi.ControllerServer.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, c.cloud.Detach(ctx, r.VolumeId, r.NodeId)
}

// ControllerExpandVolume implements csi.ControllerServer. NodeExpandVolume must follow.
func (c *Controller) ControllerExpandVolume(ctx context.Context,
	r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	if r.CapacityRange == nil {
		return nil, invalid("capacity_range is missing")
	}
	v, err := c.cloud.Grow(ctx, r.VolumeId,
		cloud.Range{Required: r.CapacityRange.RequiredBytes, Limit: r.CapacityRange.LimitBytes})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.SizeBytes, NodeExpansionRequired: true}, nil
}

// ListVolumes implements csi.ControllerServer. A token is the sequence number of the
// last volume listed, so that volumes may be created and deleted between two pages.
func (c *Controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if r.MaxEntries < 0 {
		return nil, invalid("max_entries is %d", r.MaxEntries)
	}
	var after int64
	if r.StartingToken != "" {
		var err error
		if after, err = strconv.ParseInt(r.StartingToken, 10, 64); err != nil {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is invalid: list from the start", r.StartingToken)
		}
	}
	response := &csi.ListVolumesResponse{}
	for _, v := range c.cloud.List() {
		if v.Sequence <= after {
			continue
		}
		if r.MaxEntries > 0 && len(response.Entries) == int(r.MaxEntries) {
			response.NextToken = strconv.FormatInt(after, 10)
			break
		}
		after = v.Sequence
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: asVolume(v),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.Nodes()},
		})
	}
	return response, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(_ context.Context,
	r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, invalid("volume_capabilities is missing")
	}
	v, err := c.cloud.Get(r.VolumeId)
	if err != nil {
		return nil, err
	}
	src, err := parseSource(v.Parameters)
	if err != nil {
		return nil, err
	}
	for _, capability := range r.VolumeCapabilities {
		if why := csinode.Unsupported(capability, src.Type == typeSMB); why != "" {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: why}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      r.VolumeContext,
		VolumeCapabilities: r.VolumeCapabilities,
		Parameters:         r.Parameters,
	}}, nil
}
