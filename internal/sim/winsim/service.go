// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// QueryService is QueryServiceConfigW and QueryServiceStatusEx.
func (s *System) QueryService(ctx context.Context, name string) (win.Service, error) {
	return ask(ctx, s, Call{win.CallQueryService, name}, func() (win.Service, error) { return s.services.Query(name) })
}

// StartService is StartServiceW. It returns when the service is starting; a delay
// of the call is how long that takes.
func (s *System) StartService(ctx context.Context, name string) error {
	return s.serviceRequest(ctx, Call{win.CallStartService, name}, s.services.Start)
}

// StopService is ControlService(SERVICE_CONTROL_STOP). It returns when the service
// is stopping; a delay of the call is how long that takes.
func (s *System) StopService(ctx context.Context, name string) error {
	return s.serviceRequest(ctx, Call{win.CallStopService, name}, s.services.Stop)
}

// serviceRequest runs a call that changes the state of a service. Its delay isn't
// the call's but the change's.
func (s *System) serviceRequest(ctx context.Context, c Call, f func(name string, takes time.Duration) error) error {
	a, err := s.gate.admit(ctx, c)
	switch {
	case err != nil:
		return err
	case a.fault != 0:
		return a.fault
	}
	return s.control(func() error { return f(c.Object, a.delay+a.stuck) })
}

// ActiveDependentServices is EnumDependentServicesW(SERVICE_ACTIVE).
func (s *System) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return ask(ctx, s, Call{win.CallActiveDependentServices, name}, func() ([]string, error) {
		return s.services.ActiveDependents(name)
	})
}

// serviceRuns is told of each service that has come to run.
func (s *System) serviceRuns(name string) {
	if win.SameName(name, services.ISCSIInitiator) {
		s.iscsi.Start()
	}
}

// Services is the node's service manager, for control calls. Each method is that of
// [services.Manager], under the node's lock.
type Services struct{ sys *System }

// Services returns the service manager.
func (s *System) Services() Services { return Services{s} }

// Add adds a service, which runs already if the spec says so.
func (m Services) Add(spec services.Spec) error {
	return m.sys.control(func() error { return m.sys.services.Add(spec) })
}

// Remove takes a service away at once, whatever its state.
func (m Services) Remove(name string) error {
	return m.sys.control(func() error { return m.sys.services.Remove(name) })
}

// List lists the services by name. One that is on its way to another state isn't
// Running.
func (m Services) List() []services.Spec { return look(m.sys, m.sys.services.List) }
