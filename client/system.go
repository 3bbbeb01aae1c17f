// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strconv"

	systemv1alpha1 "github.com/csi-proxy/csi-proxy/api/system/v1alpha1"
	"github.com/csi-proxy/csi-proxy/published"
)

// System calls the system group. A [Client] has one.
//
// Services are named as in the service manager, such as MSiSCSI. An unknown service fails with
// csiproxy.ErrNotFound.
type System struct{ group *group }

// Version returns the version in use, such as "v1alpha1". If there is none yet, Version chooses the
// newest version served.
func (s *System) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// GetBIOSSerialNumber implements [published.SystemOperations]: returns the firmware's serial
// number.
func (s *System) GetBIOSSerialNumber(ctx context.Context) (serial string, err error) {
	return ask(ctx, s.group, "GetBIOSSerialNumber", "", &systemv1alpha1.GetBIOSSerialNumberRequest{},
		func(r *systemv1alpha1.GetBIOSSerialNumberResponse) string { return r.SerialNumber })
}

// GetService implements [published.SystemOperations]: returns the state of a service.
func (s *System) GetService(ctx context.Context, name string) (service published.Service, err error) {
	return ask(ctx, s.group, "GetService", serviceObject(name), &systemv1alpha1.GetServiceRequest{Name: name},
		func(r *systemv1alpha1.GetServiceResponse) published.Service {
			// The numbers on the wire equal the numbers of the service manager.
			return published.Service{DisplayName: r.DisplayName, StartType: published.StartType(r.StartType),
				Status: published.ServiceStatus(r.Status)}
		})
}

// StartService implements [published.SystemOperations]: starts a service.
func (s *System) StartService(ctx context.Context, name string) error {
	return s.group.act(ctx, "StartService", serviceObject(name), &systemv1alpha1.StartServiceRequest{Name: name})
}

// StopService implements [published.SystemOperations]: stops a service.
func (s *System) StopService(ctx context.Context, name string, force bool) error {
	return s.group.act(ctx, "StopService", serviceObject(name),
		&systemv1alpha1.StopServiceRequest{Name: name, Force: force})
}

func serviceObject(name string) string { return "service " + strconv.Quote(name) }
