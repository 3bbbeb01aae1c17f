// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"google.golang.org/grpc/codes"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Code returns the gRPC code of err's class (see csiproxy.KindOf): codes.OK for nil, codes.Internal
// for csiproxy.ErrInternal and for errors without a class. A gRPC status in err is ignored.
//
// CSI drivers can return the code to kubelet, because CSI uses gRPC codes too. Code also works for
// errors of package node. The daemon's responses carry the same codes.
func Code(err error) codes.Code { return wire.CodeOf(err) }
