// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package system

// GetBIOSSerialNumberRequest is what GetBIOSSerialNumber takes.
type GetBIOSSerialNumberRequest struct{}

// GetBIOSSerialNumberResponse is what GetBIOSSerialNumber returns.
type GetBIOSSerialNumberResponse struct {
	SerialNumber string
}

// GetServiceRequest is what GetService takes.
type GetServiceRequest struct {
	Name string
}

// GetServiceResponse is what GetService returns.
type GetServiceResponse struct {
	DisplayName string
	StartType   Startype
	Status      ServiceStatus
}

// StartServiceRequest is what StartService takes.
type StartServiceRequest struct {
	Name string
}

// StartServiceResponse is what StartService returns.
type StartServiceResponse struct{}

// StopServiceRequest is what StopService takes.
type StopServiceRequest struct {
	Name  string
	Force bool
}

// StopServiceResponse is what StopService returns.
type StopServiceResponse struct{}
