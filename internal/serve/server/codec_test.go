// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A request holds what the API knows of, for as long as its call lasts, and not one
// byte more.
func TestUnknownFieldsAreDiscarded(t *testing.T) {
	held := make(chan int, 1)
	r := start(t, upper, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		held <- len(req.(*wrapperspb.StringValue).ProtoReflect().GetUnknown())
		return handler(ctx, req)
	})
	defer r.end()
	request := wrapperspb.String("hello")
	request.ProtoReflect().SetUnknown(append([]byte{0x7a, 0x80, 0x08}, make([]byte, 1024)...))
	var answer wrapperspb.StringValue
	if err := r.dial().Invoke(t.Context(), sayMethod, request, &answer); err != nil || answer.GetValue() != "hello!" {
		t.Fatalf("answer %q, %v", answer.GetValue(), err)
	}
	if n := <-held; n != 0 {
		t.Errorf("the request holds %d bytes of unknown fields", n)
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

func TestUndecodableRequests(t *testing.T) {
	var counted []codes.Code // as metrics do
	r := start(t, func(context.Context, string) (string, error) {
		t.Error("the handler was called")
		return "", nil
	}, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		counted = append(counted, status.Code(err))
		return resp, err
	})
	client := r.dial()
	for request, want := range map[string]string{
		"\x0a\x08secret \xff": "Say: field value isn't valid UTF-8",
		"\x0a\x7fsecret":      "Say: the StringValue can't be decoded: it isn't a valid protobuf message",
	} {
		err := client.Invoke(t.Context(), sayMethod, []byte(request), new([]byte), grpc.ForceCodec(bytesCodec{}))
		wantCode(t, err, codes.InvalidArgument)
		if got := status.Convert(err).Message(); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	r.end()
	if len(counted) != 2 || counted[0] != codes.InvalidArgument || counted[1] != codes.InvalidArgument {
		t.Errorf("the interceptor saw %v", counted)
	}
	if got := len(r.logged("call failed")); got != 2 {
		t.Errorf("%d failed calls in the log, want 2", got)
	}
	if leaked := r.logged("secret"); len(leaked) > 0 {
		t.Errorf("the log has contents of messages: %q", leaked)
	}
}
