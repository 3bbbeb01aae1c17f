// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	systemv1alpha1 "github.com/csi-proxy/csi-proxy/api/system/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/published"
)

func systemVersions(ops published.SystemOperations) versions {
	current := methods{
		"GetBIOSSerialNumber": unary(func(ctx context.Context,
			_ *systemv1alpha1.GetBIOSSerialNumberRequest) (*systemv1alpha1.GetBIOSSerialNumberResponse, error) {
			serial, err := ops.GetBIOSSerialNumber(ctx)
			return &systemv1alpha1.GetBIOSSerialNumberResponse{SerialNumber: wire.ValidText(serial)}, err
		}),
		// GetService converts neither enum: the wire and package published both use the service
		// manager's numbers.
		"GetService": unary(func(ctx context.Context,
			req *systemv1alpha1.GetServiceRequest) (*systemv1alpha1.GetServiceResponse, error) {
			s, err := ops.GetService(ctx, req.Name)
			return &systemv1alpha1.GetServiceResponse{
				DisplayName: s.DisplayName,
				StartType:   systemv1alpha1.StartType(s.StartType),
				Status:      systemv1alpha1.ServiceStatus(s.Status),
			}, err
		}),
		"StartService": action(func(ctx context.Context, req *systemv1alpha1.StartServiceRequest) error {
			return ops.StartService(ctx, req.Name)
		}),
		"StopService": action(func(ctx context.Context, req *systemv1alpha1.StopServiceRequest) error {
			return ops.StopService(ctx, req.Name, req.Force)
		}),
	}
	return versions{"v1alpha1": {current}}
}
