// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
)

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

// gRPC answers bytes that are no request before any code of ours runs.
func TestUndecodableRequests(t *testing.T) {
	r := start(t, func(context.Context, string) (string, error) {
		t.Error("the handler was called")
		return "", nil
	})
	client := r.dial()
	for name, request := range map[string]string{
		"text that isn't UTF-8": "\x0a\x08secret \xff",
		"length beyond the end": "\x0a\x7fsecret",
	} {
		force := grpc.ForceCodec(bytesCodec{})
		for call, err := range map[string]error{
			"unary":  client.Invoke(t.Context(), sayMethod, []byte(request), new([]byte), force),
			"stream": shout(t, t.Context(), client, []byte(request), force).RecvMsg(new([]byte)),
		} {
			wantCode(t, err, codes.Internal)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: the error has contents of the message: %v", call, name, err)
			}
		}
	}
	r.end()
	if leaked := r.logged("secret"); len(leaked) > 0 {
		t.Errorf("the log has contents of messages: %q", leaked)
	}
}

// Requests that differ in unknown fields alone are the same request.
func TestUnknownFieldsAreDiscarded(t *testing.T) {
	want := &apipb.Api{Name: "hello", Mixins: []*apipb.Mixin{{Name: "inner"}}}
	sent := proto.CloneOf(want)
	for _, message := range []proto.Message{sent, sent.Mixins[0]} {
		message.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1))
	}
	encoded, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got apipb.Api
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("%v, %v, want %v", &got, err, want)
	}
}
