// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// request is decoded from the one message that a client sends in a call.
//
// If a codec returns an error, gRPC answers with Internal before anybody can change that.
// So decoding a request always succeeds, and the error is kept in the request.
type request struct {
	message proto.Message
	err     error // of decoding
}

// codec is gRPC's codec for protobuf, but decodes requests with wire.Decode.
// After decoding, nothing refers to the bytes of a request.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok { // a message of a call in which the client sends several, as in reflection
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	r.err = wire.Decode(whole.ReadOnlyData(), r.message)
	return nil
}

// decoding registers services so that requests of their unary calls are decoded by codec.
// requestStream does that for streaming ones.
type decoding struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (d decoding) RegisterService(desc *grpc.ServiceDesc, service any) {
	decoded := *desc
	decoded.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		decoded.Methods[i].Handler = decodeFirst("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)
	}
	d.ServiceRegistrar.RegisterService(&decoded, service)
}

// decodeFirst wraps handler, so that it gets requests that codec decodes.
func decodeFirst(method string, handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		var undecodable error
		resp, err := handler(srv, ctx, func(message any) error {
			r := &request{message: message.(proto.Message)}
			if err := decode(r); err != nil {
				return err
			}
			undecodable = r.err
			return undecodable
		}, interceptor)
		if undecodable == nil {
			return resp, err
		}
		// If decoding fails, the handler doesn't call the interceptor, which logs and counts.
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: method}
		return interceptor(ctx, nil, info, func(context.Context, any) (any, error) {
			return nil, toStatus(method, undecodable)
		})
	}
}
