// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestLocksExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks
		counts := make([]int, 3)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				unlock, err := locks.Lock(ctx, fmt.Sprint(i%3), "")
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				counts[i%3]++
				time.Sleep(time.Second) // so that others wait
			})
		}
		wg.Wait()
		for key, n := range counts {
			if n != 40 {
				t.Errorf("key %d was counted %d times, want 40", key, n)
			}
		}
		if took := time.Since(begin); took != 40*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(locks.held) != 0 {
			t.Errorf("%d locks are left behind", len(locks.held))
		}
	})
}

func TestLockEndsWithContext(t *testing.T) {
	var locks Locks
	unlock, err := locks.Lock(t.Context(), "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ctx, "a", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a taken lock with an ended context gave %v", err)
	}
	other, err := locks.Lock(t.Context(), "b", "b")
	if err != nil {
		t.Fatalf("another key: %v", err)
	}
	other()
	unlock()
	again, err := locks.Lock(t.Context(), "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// Who gives up waiting for a lock learns who has held it since when, and which call to Windows the
// holder waits for.
func TestHolderIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks
		inCall := &call{Call: Call{Name: "FlushFileBuffers", Object: "volume", Since: time.Now()}}
		staging := func(calls ...*call) func() context.Context {
			return func() context.Context {
				ctx, tracker := WithTracker(t.Context())
				tracker.operation = "StageVolume"
				tracker.calls = calls
				return ctx
			}
		}
		for _, test := range []struct {
			ctx          func() context.Context
			holder, call string
		}{
			{t.Context, "another call", ""},
			{staging(), "StageVolume", ""},
			{staging(inCall), "StageVolume", inCall.String() + ": "},
		} {
			unlock, err := locks.Lock(test.ctx(), "3", "disk 3")
			if err != nil {
				t.Fatal(err)
			}
			since := time.Now().UTC().Format(time.RFC3339)
			time.Sleep(time.Minute)
			for range 2 { // the text stays the same
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err = locks.Lock(ctx, "3", "disk 3")
				cancel()
				want := "disk 3 is held by " + test.holder + " since " + since + ": " + test.call +
					context.DeadlineExceeded.Error()
				if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
			unlock()
		}
		if len(locks.held) != 0 {
			t.Errorf("%d locks are left behind", len(locks.held))
		}
	})
}

// hanging is Windows with a device tree that never answers.
type hanging struct{ win.System }

func (hanging) ReenumerateDevice(context.Context, string) error { time.Sleep(time.Hour); return nil }
