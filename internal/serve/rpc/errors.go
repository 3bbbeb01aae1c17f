// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// ErrorInterceptor turns the error of a handler, or of an interceptor between the
// two, into a status as [wire.ToStatus] does. Interceptors outside it, for metrics and
// logs, see the status.
func ErrorInterceptor(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return resp, nil
}

// StreamErrorInterceptor is ErrorInterceptor for streaming calls.
func StreamErrorInterceptor(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return wire.ToStatus(handler(srv, stream))
}
