// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/csi-proxy/csi-proxy/internal/wire"
)

// request is what the only message of a client in a call is decoded into.
//
// gRPC answers an error of a codec with Internal before anybody can change that. So
// decoding a request always succeeds, and the error is found in it.
type request struct {
	message proto.Message
	bytes   int   // of the message, when it is known
	err     error // why it isn't one
}

// codec is gRPC's codec for protobuf, but that it decodes requests with
// wire.Decode. Nothing holds the bytes of a request when it is decoded.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok { // of a call with several, which reflection is
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	r.bytes = whole.Len()
	r.err = wire.Decode(whole.ReadOnlyData(), r.message)
	return nil
}
