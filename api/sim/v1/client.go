// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simv1

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Call calls a method of the service, and returns its response: Call[simv1.DiskNumber](ctx,
// conn, "AttachDisk", request). sim.proto says which messages a method takes and returns.
func Call[Response any, Message interface {
	*Response
	proto.Message
}](ctx context.Context, conn grpc.ClientConnInterface, method string, request proto.Message) (Message, error) {
	response := Message(new(Response))
	if err := conn.Invoke(ctx, "/csiproxy.sim.v1.Sim/"+method, request, response); err != nil {
		return nil, err
	}
	return response, nil
}
