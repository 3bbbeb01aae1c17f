// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

// ServiceStatus is the state of a service, with the numbers of the service manager.
type ServiceStatus uint32

// States of a service.
const (
	ServiceUnknown         ServiceStatus = 0
	ServiceStopped         ServiceStatus = 1
	ServiceStartPending    ServiceStatus = 2
	ServiceStopPending     ServiceStatus = 3
	ServiceRunning         ServiceStatus = 4
	ServiceContinuePending ServiceStatus = 5
	ServicePausePending    ServiceStatus = 6
	ServicePaused          ServiceStatus = 7
)

// StartType says when a service starts, with the numbers of the service manager.
type StartType uint32

// Start types of a service.
const (
	StartTypeBoot      StartType = 0 // a driver, started by the boot loader
	StartTypeSystem    StartType = 1 // a driver, started by the kernel
	StartTypeAutomatic StartType = 2 // when the node starts
	StartTypeManual    StartType = 3 // on demand
	StartTypeDisabled  StartType = 4 // never
)

// Service is a Windows service.
type Service struct {
	DisplayName string
	StartType   StartType
	Status      ServiceStatus
}
