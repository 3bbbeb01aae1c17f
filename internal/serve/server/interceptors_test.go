// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPanicIsTheCallersOnly(t *testing.T) {
	var seen []codes.Code // by an interceptor, as metrics would
	r := start(t, func(_ context.Context, said string) (string, error) {
		if said == "panic" {
			panic("of the handler")
		}
		return said, nil
	}, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		seen = append(seen, status.Code(err))
		if len(seen) == 2 {
			panic("of the interceptor")
		}
		return resp, err
	})
	client := r.dial()

	_, err := say(t.Context(), client, "panic")
	wantCode(t, err, codes.Internal)
	_, err = say(t.Context(), client, "hello")
	wantCode(t, err, codes.Internal)
	if _, err = say(t.Context(), client, "hello"); err != nil {
		t.Errorf("after two panics, a call gives %v", err)
	}
	r.end()

	if len(seen) != 3 || seen[0] != codes.Internal {
		t.Errorf("the interceptor saw %v, want first Internal", seen)
	}
	panics := r.logged("panic in a call")
	if len(panics) != 2 {
		t.Fatalf("%d panics in the log, want 2", len(panics))
	}
	if !strings.Contains(panics[0], "interceptors_test.go") {
		t.Errorf("no stack of the handler in the log line %s", panics[0])
	}
	if got := len(r.logged("call failed")); got != 1 {
		t.Errorf("%d failed calls in the log, want that with the panicking handler", got)
	}
}

func TestPanicInStream(t *testing.T) {
	s := New(Config{})
	err := s.recoverStream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/v1.Echo/Shout"},
		func(any, grpc.ServerStream) error { panic("in a stream") })
	wantCode(t, err, codes.Internal)
}
