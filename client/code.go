// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"google.golang.org/grpc/codes"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Code returns the gRPC code of err's class, which is that of csiproxy.KindOf: codes.OK for nil,
// codes.Internal for csiproxy.ErrInternal and for errors without a class. It doesn't look for a
// gRPC status in err.
//
// CSI drivers can return it, since CSI uses gRPC codes too, also for errors of package node. The
// daemon's responses have the same codes.
func Code(err error) codes.Code { return wire.CodeOf(err) }
