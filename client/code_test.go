// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want codes.Code
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
		{csiproxy.ErrInternal, codes.Internal},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.New("something else"), codes.Internal},
		{&csiproxy.Error{Kind: errors.New("somebody's own")}, codes.Internal},
		{fmt.Errorf("stage: %w", &csiproxy.Error{Op: "MountVolume", Err: winerr.ErrorBusy}), codes.Unavailable},
	} {
		if got := client.Code(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// A driver's interceptor gives the errors of CSI Proxy their codes. Handlers may also
// return a status of their own.
func ExampleCode() {
	withCode := func(err error) error {
		if _, ok := status.FromError(err); ok {
			return err // nil, or a status
		}
		return status.Error(client.Code(err), err.Error())
	}
	fmt.Println(withCode(&csiproxy.Error{Op: "PartitionDisk", Object: "disk 3", Kind: csiproxy.ErrNotFound}))
	fmt.Println(withCode(status.Error(codes.Aborted, "another call for the volume is under way")))
	// Output:
	// rpc error: code = NotFound desc = PartitionDisk disk 3: not found
	// rpc error: code = Aborted desc = another call for the volume is under way
}
