// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import "context"

// SystemOperations are the operations on the machine and its Windows services.
type SystemOperations interface {
	// GetBIOSSerialNumber returns the serial number in the system's firmware, without blanks at
	// its end. A VMware machine has "VMware-" and 32 hex digits in pairs. If the firmware has no
	// number, the result is empty. If the firmware's tables have no place for a number, the
	// error is csiproxy.ErrNotFound.
	GetBIOSSerialNumber(ctx context.Context) (string, error)
	// GetService returns the state and configuration of a service. An unknown service is
	// csiproxy.ErrNotFound.
	GetService(ctx context.Context, name string) (Service, error)
	// StartService starts a service and waits until the service runs. A running service is a
	// success. Windows starts the service's dependencies. An unknown service is
	// csiproxy.ErrNotFound. A disabled or paused service, or a service that fails to start, is
	// csiproxy.ErrFailedPrecondition. If the service is too slow for the service manager, or,
	// without a deadline in ctx, isn't running after two minutes, the error is
	// csiproxy.ErrUnavailable.
	StartService(ctx context.Context, name string) error
	// StopService stops a service and waits until the service has stopped. A stopped service is
	// a success. With force, running dependents are stopped first, and stay stopped if a later
	// step fails. Without force, running dependents are csiproxy.ErrFailedPrecondition, as is a
	// service that can't be stopped. An unknown service is csiproxy.ErrNotFound. Without a
	// deadline in ctx, StopService waits two minutes for each service, and then returns
	// csiproxy.ErrUnavailable.
	StopService(ctx context.Context, name string, force bool) error
}
