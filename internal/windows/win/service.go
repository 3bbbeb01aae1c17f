// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ServiceStartType is the dwStartType of QUERY_SERVICE_CONFIGW.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/ns-winsvc-query_service_configw
type ServiceStartType uint32

// Start types.
const (
	ServiceBootStart   ServiceStartType = 0
	ServiceSystemStart ServiceStartType = 1
	ServiceAutoStart   ServiceStartType = 2 // also a delayed one
	ServiceDemandStart ServiceStartType = 3
	ServiceDisabled    ServiceStartType = 4
)

// ServiceState is the dwCurrentState of SERVICE_STATUS_PROCESS.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/ns-winsvc-service_status_process
type ServiceState uint32

// States.
const (
	ServiceStopped         ServiceState = 1
	ServiceStartPending    ServiceState = 2
	ServiceStopPending     ServiceState = 3
	ServiceRunning         ServiceState = 4
	ServiceContinuePending ServiceState = 5
	ServicePausePending    ServiceState = 6
	ServicePaused          ServiceState = 7
)

// Service is the configuration and state of a service.
type Service struct {
	DisplayName string
	StartType   ServiceStartType
	State       ServiceState
	// ExitCode is the error with which the service stopped. With ErrorServiceSpecificError,
	// SpecificExitCode has the service's own number.
	ExitCode         winerr.Errno
	SpecificExitCode uint32
}
