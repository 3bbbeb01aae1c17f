// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	systemv1alpha1 "github.com/csi-proxy/csi-proxy/api/system/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/csi-proxy/csi-proxy/system"
)

func systemVersions(ops system.Operations) versions {
	h := systemHandler{ops}
	return versions{
		"v1alpha1": {{
			"GetBIOSSerialNumber": unary(h.GetBIOSSerialNumber),
			"GetService":          unary(h.GetService),
			"StartService":        unary(h.StartService),
			"StopService":         unary(h.StopService),
		}},
	}
}

// systemHandler answers the messages of v1alpha1.
type systemHandler struct{ ops system.Operations }

func (h systemHandler) GetBIOSSerialNumber(ctx context.Context,
	_ *systemv1alpha1.GetBIOSSerialNumberRequest) (*systemv1alpha1.GetBIOSSerialNumberResponse, error) {
	serial, err := h.ops.GetBIOSSerialNumber(ctx)
	return &systemv1alpha1.GetBIOSSerialNumberResponse{SerialNumber: wire.ValidText(serial)}, err
}

// GetService converts neither enum: on the wire both have the service manager's
// numbers, as package system has.
func (h systemHandler) GetService(ctx context.Context,
	req *systemv1alpha1.GetServiceRequest) (*systemv1alpha1.GetServiceResponse, error) {
	s, err := h.ops.GetService(ctx, req.Name)
	return &systemv1alpha1.GetServiceResponse{
		DisplayName: s.DisplayName,
		StartType:   systemv1alpha1.StartType(s.StartType),
		Status:      systemv1alpha1.ServiceStatus(s.Status),
	}, err
}

func (h systemHandler) StartService(ctx context.Context,
	req *systemv1alpha1.StartServiceRequest) (*systemv1alpha1.StartServiceResponse, error) {
	return &systemv1alpha1.StartServiceResponse{}, h.ops.StartService(ctx, req.Name)
}

func (h systemHandler) StopService(ctx context.Context,
	req *systemv1alpha1.StopServiceRequest) (*systemv1alpha1.StopServiceResponse, error) {
	return &systemv1alpha1.StopServiceResponse{}, h.ops.StopService(ctx, req.Name, req.Force)
}
