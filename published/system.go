// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import "context"

// SystemOperations are the operations on the machine and its Windows services.
type SystemOperations interface {
	// GetBIOSSerialNumber returns the serial number of the system as its firmware has it,
	// without blanks at its end: of a VMware machine "VMware-" and 32 hex digits in pairs.
	// It is empty if the firmware has none; tables that have no place for it give
	// csiproxy.ErrNotFound.
	GetBIOSSerialNumber(ctx context.Context) (string, error)
	// GetService returns the state and configuration of a service. An unknown one is
	// csiproxy.ErrNotFound.
	GetService(ctx context.Context, name string) (Service, error)
	// StartService starts a service and waits until it runs; a running one is a success.
	// Services that it depends on are started by Windows. An unknown service is
	// csiproxy.ErrNotFound; a disabled or paused one, and one that fails to start,
	// csiproxy.ErrFailedPrecondition; one that doesn't answer the service manager in time
	// csiproxy.ErrUnavailable. So is, without a deadline in ctx, one that doesn't run after
	// two minutes.
	StartService(ctx context.Context, name string) error
	// StopService stops a service and waits until it has stopped; a stopped one is a
	// success. With force, running services that depend on it are stopped first, and stay
	// so if a later step fails; without, they give csiproxy.ErrFailedPrecondition, as does
	// a service that can't be stopped. An unknown service is csiproxy.ErrNotFound. Without
	// a deadline in ctx, it waits two minutes for each, and then gives
	// csiproxy.ErrUnavailable.
	StopService(ctx context.Context, name string, force bool) error
}
