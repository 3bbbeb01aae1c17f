// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/client"
)

// withCode gives err the code of its class. A call for which the class means something
// else sets the code itself.
func withCode(err error) error {
	if _, ok := status.FromError(err); ok { // nil too
		return err
	}
	code := client.Code(err)
	if code == codes.Unimplemented {
		code = codes.FailedPrecondition // Unimplemented would mean that the driver doesn't have the call
	}
	return &codedError{err, code}
}

// codedError is an error with a gRPC code, which a caller in process can still take apart.
type codedError struct {
	error
	code codes.Code
}

func (e *codedError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }
func (e *codedError) Unwrap() error              { return e.error }

// coded gives the error that a method of the service returns the code of its class. It is deferred
// by each, so that a driver that calls one directly gets the codes, too.
func coded(err *error) { *err = withCode(*err) }

// invalid is the error for a request that is wrong in any state of the node.
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
