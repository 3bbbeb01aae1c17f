// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		done := make([]bool, 7)
		bad := errors.New("bad")
		err := Each(len(done), 3, func(i int) error {
			time.Sleep(time.Second)
			done[i] = true
			if i == 4 {
				return bad
			}
			return nil
		})
		if !errors.Is(err, bad) || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		for i, ok := range done {
			if !ok {
				t.Errorf("%d wasn't called", i)
			}
		}
	})
	if err := Each(0, 1, nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if p := recover(); p != "died" {
			t.Errorf("the caller's goroutine panics with %v", p)
		}
	}()
	_ = Each(3, 1, func(i int) error {
		if i == 1 {
			panic("died")
		}
		return nil
	})
}

func TestInTurn(t *testing.T) {
	const overlap = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		takes := []time.Duration{overlap / 2, time.Hour, 0, overlap / 2, -1} // -1: there is nothing to run
		begin := func(i int) (func(), time.Duration) {
			if takes[i] < 0 {
				return nil, time.Since(start)
			}
			return func() { time.Sleep(takes[i]) }, time.Since(start)
		}
		// The second one is waited for as long as overlap.
		want := []time.Duration{0, overlap / 2, 3 * overlap / 2, 3 * overlap / 2, 2 * overlap}
		if begun := InTurn(t.Context(), len(takes), overlap, begin); !slices.Equal(begun, want) {
			t.Errorf("begun after %v, want %v", begun, want)
		}
		if took := time.Since(start); took != 2*overlap {
			t.Errorf("it returns after %v", took)
		}
		if begun := InTurn(t.Context(), 0, overlap, begin); len(begun) != 0 {
			t.Errorf("%v of none", begun)
		}
		time.Sleep(time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), overlap/2)
		defer cancel()
		var count atomic.Int64
		begun := InTurn(ctx, 3, overlap, func(int) (func(), int64) {
			return func() { time.Sleep(overlap) }, count.Add(1)
		})
		if time.Sleep(time.Hour); begun != nil || count.Load() != 1 {
			t.Errorf("%v, and %d have begun after the caller's context has ended", begun, count.Load())
		}
	})
}
