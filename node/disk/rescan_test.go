// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCoalescerSharesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coalescer
		var runs atomic.Int32
		f := func() error {
			runs.Add(1)
			time.Sleep(time.Second)
			return nil
		}
		go c.do(t.Context(), f)
		synctest.Wait() // the first run is under way
		for range 10 {
			go func() {
				if err := c.do(t.Context(), f); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if n := runs.Load(); n != 2 {
			t.Errorf("11 callers caused %d runs, want the one under way and one more", n)
		}
	})
}

func TestCoalescerCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coalescer
		var ended atomic.Bool
		f := func() error { time.Sleep(time.Minute); ended.Store(true); return errors.New("x") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.do(ctx, f); !errors.Is(err, context.DeadlineExceeded) || ended.Load() {
			t.Errorf("the caller got %v; the run had ended: %v", err, ended.Load())
		}
		time.Sleep(time.Hour)
		if !ended.Load() {
			t.Error("the run ended with its caller")
		}
	})
}

func TestCoalescerPassesPanicsOn(t *testing.T) {
	var c coalescer
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		c.do(t.Context(), func() error { panic("a bug") })
	}()
	if err := c.do(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("the next run: %v", err)
	}
}
