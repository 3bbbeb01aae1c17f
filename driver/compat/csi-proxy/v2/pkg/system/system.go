// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package system has the published library's methods for the node's firmware and services, over CSI Proxy's operations.
package system

import (
	"context"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
)

// Interface is the node's firmware and services.
type Interface interface {
	// GetBIOSSerialNumber returns the serial number of the machine.
	GetBIOSSerialNumber(context.Context, *GetBIOSSerialNumberRequest) (*GetBIOSSerialNumberResponse, error)
	// GetService returns the state of a service.
	GetService(context.Context, *GetServiceRequest) (*GetServiceResponse, error)
	// StartService starts a service and waits until it runs.
	StartService(context.Context, *StartServiceRequest) (*StartServiceResponse, error)
	// StopService stops a service and waits until it has stopped.
	StopService(context.Context, *StopServiceRequest) (*StopServiceResponse, error)
}

// StartType tells when a service starts, with the numbers of the service manager.
type StartType uint32

// Startype is the name of StartType in v2.0.0-alpha.1.
type Startype = StartType

// Start types of a service.
const (
	START_TYPE_BOOT StartType = iota
	START_TYPE_SYSTEM
	START_TYPE_AUTOMATIC
	START_TYPE_MANUAL
	START_TYPE_DISABLED
)

// ServiceStatus is the state of a service, with the numbers of the service manager.
type ServiceStatus uint32

// States of a service.
const (
	SERVICE_STATUS_UNKNOWN ServiceStatus = iota
	SERVICE_STATUS_STOPPED
	SERVICE_STATUS_START_PENDING
	SERVICE_STATUS_STOP_PENDING
	SERVICE_STATUS_RUNNING
	SERVICE_STATUS_CONTINUE_PENDING
	SERVICE_STATUS_PAUSE_PENDING
	SERVICE_STATUS_PAUSED
)

// System implements [Interface] over a HostAPI.
type System struct{ hostAPI api.HostAPI }

var _ Interface = (*System)(nil)

// New returns the node's firmware and services. The error is always nil.
func New(hostAPI api.HostAPI) (*System, error) { return &System{hostAPI}, nil }

func (s *System) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, s.hostAPI) }

func (s *System) GetBIOSSerialNumber(ctx context.Context,
	_ *GetBIOSSerialNumberRequest) (*GetBIOSSerialNumberResponse, error) {
	serialNumber, err := s.host(ctx).GetBIOSSerialNumber()
	return &GetBIOSSerialNumberResponse{serialNumber}, err
}

func (s *System) StartService(ctx context.Context, request *StartServiceRequest) (*StartServiceResponse, error) {
	return &StartServiceResponse{}, s.host(ctx).StartService(request.Name)
}

func (s *System) StopService(ctx context.Context, request *StopServiceRequest) (*StopServiceResponse, error) {
	return &StopServiceResponse{}, s.host(ctx).StopService(request.Name, request.Force)
}

func (s *System) GetService(ctx context.Context, request *GetServiceRequest) (*GetServiceResponse, error) {
	service, err := s.host(ctx).GetService(request.Name)
	if err != nil {
		return nil, err
	}
	return &GetServiceResponse{service.DisplayName, StartType(host.StartTypes.Number(service.StartType)),
		ServiceStatus(host.States.Number(service.Status))}, nil
}
