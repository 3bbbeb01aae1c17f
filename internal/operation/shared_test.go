// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/operation"
)

func TestSharedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		var runs atomic.Int32
		f := func(context.Context) error {
			runs.Add(1)
			time.Sleep(time.Second)
			return nil
		}
		go s.Do(t.Context(), f)
		synctest.Wait() // the first run is under way
		for range 10 {
			go func() {
				if err := s.Do(t.Context(), f); err != nil {
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

func TestSharedCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		var ended atomic.Bool
		f := func(ctx context.Context) error {
			time.Sleep(time.Minute)
			ended.Store(ctx.Err() == nil)
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Do(ctx, f); !errors.Is(err, context.DeadlineExceeded) || ended.Load() {
			t.Errorf("the caller got %v; the run had ended: %v", err, ended.Load())
		}
		time.Sleep(time.Hour)
		if !ended.Load() {
			t.Error("the run ended with its caller")
		}
		if err := s.Do(t.Context(), f); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a run without end gives %v", err)
		}
	})
}

func TestSharedPassesPanicsOn(t *testing.T) {
	var s operation.Shared
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		s.Do(t.Context(), func(context.Context) error { panic("a bug") })
	}()
	if err := s.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// Those who wait for a run leave room for other operations.
func TestSharedLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		r := operation.NewRunner(1, nil)
		for range 3 {
			go operation.Do(t.Context(), r, "shared", "", func(ctx context.Context) error {
				return s.Do(ctx, func(context.Context) error { time.Sleep(time.Minute); return nil })
			})
		}
		synctest.Wait()
		begin := time.Now()
		err := operation.Do(t.Context(), r, "other", "", func(context.Context) error { return nil })
		if took := time.Since(begin); err != nil || took != 0 {
			t.Errorf("another operation took %v: %v", took, err)
		}
		time.Sleep(time.Hour)
	})
}
