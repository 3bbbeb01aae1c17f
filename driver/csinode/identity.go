// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GetPluginInfo implements csi.IdentityServer.
func (s *Server) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: s.options.Name, VendorVersion: s.options.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer. Volumes grow while pods use them.
func (s *Server) GetPluginCapabilities(ctx context.Context,
	_ *csi.GetPluginCapabilitiesRequest) (_ *csi.GetPluginCapabilitiesResponse, err error) {
	defer coded(&err)
	expands, err := s.expands(ctx)
	if err != nil {
		return nil, err
	}
	var capabilities []*csi.PluginCapability
	service := func(t csi.PluginCapability_Service_Type) {
		capabilities = append(capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}},
		})
	}
	if s.options.Controller != nil {
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE)
	}
	if s.options.Controller != nil && expands {
		capabilities = append(capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE,
			}},
		})
	}
	if s.options.Topology != nil {
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: capabilities}, nil
}

// Probe implements csi.IdentityServer. The answer is always that the driver is ready. Kubelet
// asks by way of the livenessprobe, which takes "not ready" for dead, so kubelet would restart
// the driver while only CSI Proxy is away, and then wait longer and longer before it starts it
// again. client.Client.Ready says whether CSI Proxy is there.
func (s *Server) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
