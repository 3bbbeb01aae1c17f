// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package system

// What the methods take and return.
type (
	GetBIOSSerialNumberRequest  struct{}
	GetBIOSSerialNumberResponse struct{ SerialNumber string }
	GetServiceRequest           struct{ Name string }
	GetServiceResponse          struct {
		DisplayName string
		StartType   StartType
		Status      ServiceStatus
	}
	StartServiceRequest  struct{ Name string }
	StartServiceResponse struct{}
	StopServiceRequest   struct {
		Name  string
		Force bool
	}
	StopServiceResponse struct{}
)
