// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grpccode gives the gRPC code of an error of CSI Proxy. CSI drivers can
// return it, since CSI uses gRPC codes too. The daemon's responses have the same codes.
package grpccode

import (
	"context"

	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// classes is the only table of classes and their codes. Each code stands for one
// class, so that a client can get the class from the code.
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

// Of returns the code of err's class, which is that of csiproxy.KindOf: codes.OK for
// nil, codes.Internal for csiproxy.ErrInternal and for errors without a class. It
// doesn't look for a gRPC status in err.
func Of(err error) codes.Code {
	kind := csiproxy.KindOf(err)
	for _, class := range classes {
		if class.kind == kind {
			return class.code
		}
	}
	return codes.Internal
}
