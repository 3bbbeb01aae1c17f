// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// codeOf is the CSI code for each class of error of CSI Proxy. Calls that mean
// something else by one of them say so themselves.
var codeOf = map[error]codes.Code{
	csiproxy.ErrInvalidArgument:    codes.InvalidArgument,
	csiproxy.ErrNotFound:           codes.NotFound,
	csiproxy.ErrAlreadyExists:      codes.AlreadyExists,
	csiproxy.ErrFailedPrecondition: codes.FailedPrecondition,
	csiproxy.ErrPermissionDenied:   codes.PermissionDenied,
	csiproxy.ErrUnauthenticated:    codes.Unauthenticated,
	csiproxy.ErrResourceExhausted:  codes.ResourceExhausted,
	csiproxy.ErrUnavailable:        codes.Unavailable,
	csiproxy.ErrInternal:           codes.Internal,
	context.Canceled:               codes.Canceled,
	context.DeadlineExceeded:       codes.DeadlineExceeded,
	// Unimplemented would say that the driver doesn't have the call at all.
	csiproxy.ErrUnimplemented: codes.FailedPrecondition,
}

// withCode gives err the code that a CO tells it by.
func withCode(err error) error {
	if _, ok := status.FromError(err); ok { // nil too
		return err
	}
	return status.Error(codeOf[csiproxy.KindOf(err)], err.Error())
}

// invalid is the error for a request that is wrong whatever the node's state.
func invalid(format string, a ...any) error {
	return status.Errorf(codes.InvalidArgument, format, a...)
}

// required returns an error if a field of a request is empty.
func required(field, value string) error {
	if value == "" {
		return invalid("%s is missing", field)
	}
	return nil
}
