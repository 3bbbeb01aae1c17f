// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPanicIsTheCallersOnly(t *testing.T) {
	var counted []string
	r := startWith(t, Config{Count: func(callType, method string) func(error) {
		return func(err error) {
			counted = append(counted, fmt.Sprint(callType, " ", method, " ", status.Code(err)))
			if len(counted) == 2 {
				panic("of the count")
			}
		}
	}}, func(_ context.Context, said string) (string, error) {
		if said == "panic" {
			panic("of the handler")
		}
		return said, nil
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

	ok := "unary " + sayMethod + " OK"
	if want := []string{"unary " + sayMethod + " Internal", ok, ok}; !slices.Equal(counted, want) {
		t.Errorf("counted %q, want %q", counted, want)
	}
	panics := r.logged("panic in a call")
	if len(panics) != 2 || !strings.Contains(panics[0], "handle_test.go") {
		t.Errorf("the panics in the log, the first with the handler's stack: %q", panics)
	}
	if got := len(r.logged("call failed")); got != 1 {
		t.Errorf("%d failed calls in the log, want that with the panicking handler", got)
	}
}
