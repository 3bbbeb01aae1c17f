// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grpccode tells the gRPC code of an error of CSI Proxy, for CSI drivers: CSI
// answers with gRPC codes too. The daemon's own answers have the same.
package grpccode

import (
	"context"

	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// classes is the one place that says which code a class of errors has. Codes are
// unique, so that a client can tell the class by its code.
var classes = []struct {
	kind error
	code codes.Code
}{
	{nil, codes.OK},
	{csiproxy.ErrInvalidArgument, codes.InvalidArgument},
	{csiproxy.ErrNotFound, codes.NotFound},
	{csiproxy.ErrAlreadyExists, codes.AlreadyExists},
	{csiproxy.ErrFailedPrecondition, codes.FailedPrecondition},
	{csiproxy.ErrPermissionDenied, codes.PermissionDenied},
	{csiproxy.ErrUnauthenticated, codes.Unauthenticated},
	{csiproxy.ErrResourceExhausted, codes.ResourceExhausted},
	{csiproxy.ErrUnavailable, codes.Unavailable},
	{csiproxy.ErrUnimplemented, codes.Unimplemented},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// Of returns the code of the class of err, as csiproxy.KindOf tells it: codes.OK for
// nil, and codes.Internal for csiproxy.ErrInternal and what has no class. It doesn't
// look for a gRPC status in err.
func Of(err error) codes.Code {
	kind := csiproxy.KindOf(err)
	for _, class := range classes {
		if class.kind == kind {
			return class.code
		}
	}
	return codes.Internal
}
