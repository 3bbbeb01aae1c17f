// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func (s *Service) AddService(r *simv1.WindowsService) error {
	spec := services.Spec{
		Name:        r.Name,
		DisplayName: r.DisplayName,
		StartType:   win.ServiceDemandStart,
		DependsOn:   r.DependsOn,
		Running:     r.Running,
		StartError:  winerr.Errno(r.StartError),
	}
	if r.StartType != nil {
		spec.StartType = win.ServiceStartType(*r.StartType)
	}
	return s.sys.Services().Add(spec)
}

func (s *Service) RemoveService(r *simv1.WindowsService) error {
	return s.sys.Services().Remove(r.Name)
}

func (s *Service) ListServices() (*simv1.ListServicesResponse, error) {
	response := &simv1.ListServicesResponse{}
	for _, spec := range s.sys.Services().List() {
		response.Services = append(response.Services, &simv1.WindowsService{
			Name:        spec.Name,
			DisplayName: spec.DisplayName,
			StartType:   simv1.StartType(spec.StartType).Enum(),
			DependsOn:   spec.DependsOn,
			Running:     spec.Running,
			StartError:  uint32(spec.StartError),
		})
	}
	return response, nil
}

func (s *Service) SetBiosSerial(r *simv1.SerialNumber) error {
	return s.sys.SetBIOSSerial(r.SerialNumber)
}
