// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestWithCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{&csiproxy.Error{Op: "MountVolume", Kind: csiproxy.ErrUnavailable}, codes.Unavailable},
		{&csiproxy.Error{Op: "GetDiskState", Kind: csiproxy.ErrUnimplemented}, codes.FailedPrecondition},
		{status.Error(codes.OutOfRange, "too small"), codes.OutOfRange},
	} {
		if got := status.Code(withCode(test.err)); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
