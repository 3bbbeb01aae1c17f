// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"

	"google.golang.org/protobuf/proto"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// AddService implements simv1.SimServer.
func (s *Service) AddService(_ context.Context, r *simv1.AddServiceRequest) (*simv1.AddServiceResponse, error) {
	spec := services.Spec{
		Name:        r.GetService().GetName(),
		DisplayName: r.GetService().GetDisplayName(),
		StartType:   win.ServiceDemandStart,
		DependsOn:   r.GetService().GetDependsOn(),
		Running:     r.GetService().GetRunning(),
		StartError:  win.Errno(r.GetService().GetStartError()),
	}
	if r.GetService() != nil && r.Service.StartType != nil {
		spec.StartType = win.ServiceStartType(*r.Service.StartType)
	}
	return &simv1.AddServiceResponse{}, classify(s.sys.Services().Add(spec))
}

// RemoveService implements simv1.SimServer.
func (s *Service) RemoveService(_ context.Context, r *simv1.RemoveServiceRequest) (*simv1.RemoveServiceResponse, error) {
	return &simv1.RemoveServiceResponse{}, classify(s.sys.Services().Remove(r.Name))
}

// ListServices implements simv1.SimServer.
func (s *Service) ListServices(context.Context, *simv1.ListServicesRequest) (*simv1.ListServicesResponse, error) {
	response := &simv1.ListServicesResponse{}
	for _, spec := range s.sys.Services().List() {
		response.Services = append(response.Services, &simv1.WindowsService{
			Name:        spec.Name,
			DisplayName: spec.DisplayName,
			StartType:   proto.Uint32(uint32(spec.StartType)),
			DependsOn:   spec.DependsOn,
			Running:     spec.Running,
			StartError:  uint32(spec.StartError),
		})
	}
	return response, nil
}

// SetBiosSerial implements simv1.SimServer.
func (s *Service) SetBiosSerial(_ context.Context, r *simv1.SetBiosSerialRequest) (*simv1.SetBiosSerialResponse, error) {
	return &simv1.SetBiosSerialResponse{}, classify(s.sys.SetBIOSSerial(r.SerialNumber))
}
