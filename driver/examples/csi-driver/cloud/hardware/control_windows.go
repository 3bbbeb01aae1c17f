// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"net"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func dialControl(string) (*Simulated, error) {
	return dial("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			return winio.DialPipeContext(ctx, `\\.\pipe\`+name)
		}))
}
