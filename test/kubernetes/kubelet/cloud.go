// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// cloud is in the place of the driver's Controller, with -cloud and when there are two nodes: it makes
// disks, and attaches them to the simulated nodes of a scenario, between which they move with their data.
type cloud struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	like    map[string]string // -cloud
	nodeOf  func(id string) string
	serials sync.Map // of the disks, by the volumes' ids

	mu    sync.Mutex // held while it is called
	s     *scenario
	disks map[string]*cloudDisk // by the volumes' ids
	moves int
}

type cloudDisk struct {
	size     int64
	attached *node // nil if to none
	last     *node // that has its data; nil if it was never attached
}

// hashWord stands for 16 digits made from a volume's name in -cloud.
const hashWord = "$HASH"

// begin gives it the nodes of a scenario, and no disks.
func (c *cloud) begin(s *scenario) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s, c.disks = s, map[string]*cloudDisk{}
}

// serialNumber returns that of a volume's disk, which is the volume's id by default.
func (c *cloud) serialNumber(volume string) string {
	if serial, ok := c.serials.Load(volume); ok {
		return serial.(string)
	}
	return volume
}

func (c *cloud) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (c *cloud) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, can := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: can}},
		})
	}
	return response, nil
}

func (c *cloud) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	named := func(text string) string {
		return os.Expand(text, func(string) string { return fmt.Sprintf("%016x", hash(r.Name)) })
	}
	id, size := cmp.Or(named(c.like["id"]), r.Name), r.CapacityRange.RequiredBytes
	c.serials.Store(id, cmp.Or(named(c.like["serial"]), id))
	if c.disks[id] == nil {
		c.disks[id] = &cloudDisk{size: size}
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, VolumeContext: r.Parameters, CapacityBytes: size}}, nil
}

// ControllerPublishVolume attaches a disk to a node. That it is attached to another one must never be.
func (c *cloud) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d := c.disks[r.VolumeId]
	if d == nil {
		return nil, status.Errorf(codes.NotFound, "no volume %s", r.VolumeId)
	}
	n, serial := c.s.nodeNamed(c.nodeOf(r.NodeId)), c.serialNumber(r.VolumeId)
	if d.attached != nil && d.attached != n {
		c.s.wrong("the disk of %s is asked for on two nodes: it is attached to %s, not detached, and should be to %s", r.VolumeId, d.attached.name, n.name)
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", r.VolumeId, d.attached.name)
	}
	if d.last != nil && d.last != n {
		c.moves++
		file := n.inNode(filepath.Join(n.dir, fmt.Sprintf("move-%d", c.moves)))
		_, err := sim[simv1.Empty](ctx, d.last, "TakeDisk", &simv1.TakeDiskRequest{SerialNumber: serial, File: file})
		if err == nil {
			_, err = sim[simv1.Empty](ctx, n, "GiveDisk", &simv1.DiskFile{File: file})
		}
		if err != nil {
			c.s.wrong("the disk of %s doesn't move from %s to %s: %v", r.VolumeId, d.last.name, n.name, err)
			return nil, err
		}
	}
	d.last = n
	on, err := n.disk(ctx, serial)
	if err == nil && on == nil {
		_, err = sim[simv1.DiskNumber](ctx, n, "AttachDisk", &simv1.DiskHardware{SerialNumber: serial, SizeBytes: d.size})
	}
	if err != nil {
		return nil, err
	}
	d.attached = n
	// What the driver is told when it stages the volume: the first is for the example driver.
	told := map[string]string{"readOnly": fmt.Sprint(r.Readonly)}
	maps.Copy(told, c.like)
	delete(told, "id")
	delete(told, "serial")
	return &csi.ControllerPublishVolumeResponse{PublishContext: told}, nil
}

// ControllerUnpublishVolume detaches a disk from a node, if it is attached there.
func (c *cloud) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	response, d := &csi.ControllerUnpublishVolumeResponse{}, c.disks[r.VolumeId]
	if d == nil || d.attached == nil || d.attached != c.s.nodeNamed(c.nodeOf(r.NodeId)) || c.s.planted == plantLie {
		return response, nil
	}
	on, err := d.attached.disk(ctx, c.serialNumber(r.VolumeId))
	if err == nil && on != nil {
		_, err = sim[simv1.Empty](ctx, d.attached, "DetachDisk", &simv1.DiskNumber{DiskNumber: on.DiskNumber})
	}
	if err == nil {
		d.attached = nil
	}
	return response, err
}

func (c *cloud) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d := c.disks[r.VolumeId]
	if d == nil || d.attached == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s isn't attached", r.VolumeId)
	}
	on, err := d.attached.disk(ctx, c.serialNumber(r.VolumeId))
	if err == nil && on != nil {
		_, err = sim[simv1.Empty](ctx, d.attached, "GrowDisk", &simv1.GrowDiskRequest{DiskNumber: *on.DiskNumber, SizeBytes: r.CapacityRange.RequiredBytes})
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: r.CapacityRange.RequiredBytes, NodeExpansionRequired: true}, err
}

// DeleteVolume deletes a disk, also one that is gone: the provisioner may ask twice.
func (c *cloud) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d := c.disks[r.VolumeId]
	if d != nil && d.attached != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", r.VolumeId, d.attached.name)
	}
	if d != nil && d.last != nil {
		if _, err := sim[simv1.Empty](ctx, d.last, "DeleteDisk", &simv1.SerialNumber{SerialNumber: c.serialNumber(r.VolumeId)}); err != nil {
			return nil, err
		}
	}
	delete(c.disks, r.VolumeId)
	return &csi.DeleteVolumeResponse{}, nil
}

// ListVolumes is what the attacher asks if the driver's own Controller has it.
func (c *cloud) ListVolumes(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	response := &csi.ListVolumesResponse{}
	for _, id := range slices.Sorted(maps.Keys(c.disks)) {
		on := &csi.ListVolumesResponse_VolumeStatus{}
		if n := c.disks[id].attached; n != nil {
			on.PublishedNodeIds = []string{n.name}
		}
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id}, Status: on})
	}
	return response, nil
}
