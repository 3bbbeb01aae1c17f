// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/grpccode"
)

// withCode gives err the code that a CO tells it by. Calls that mean something else
// by a class of errors say so themselves.
func withCode(err error) error {
	if _, ok := status.FromError(err); ok { // nil too
		return err
	}
	code := grpccode.Of(err)
	if code == codes.Unimplemented {
		code = codes.FailedPrecondition // it would say that the driver doesn't have the call at all
	}
	return status.Error(code, err.Error())
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
