// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTry(t *testing.T) {
	var l locks
	unlock, err := l.try("vol-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.try("vol-1"); status.Code(err) != codes.Aborted {
		t.Errorf("a second call on the volume: %v, want Aborted", err)
	}
	other, err := l.try("vol-2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	again, err := l.try("vol-1")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l locks
		unlock, err := l.wait(t.Context(), "share")
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.wait(ended, "share"); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting with a context that has ended: %v", err)
		}
		var order []string
		go func() {
			unlock, err := l.wait(t.Context(), "share")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "second")
			unlock()
		}()
		synctest.Wait()
		order = append(order, "first")
		unlock()
		synctest.Wait()
		if len(order) != 2 || order[0] != "first" {
			t.Errorf("order %q", order)
		}
	})
}
