// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestExclusionPerKey(t *testing.T) {
	var locks Locks[int]
	counts := make([]int, 3) // guarded by the lock of the index
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			unlock, err := locks.Lock(t.Context(), i%3)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			counts[i%3]++
		})
	}
	wg.Wait()
	for key, n := range counts {
		if n != 100 {
			t.Errorf("key %d was counted %d times, want 100", key, n)
		}
	}
	if len(locks.held) != 0 {
		t.Errorf("%d locks are left behind", len(locks.held))
	}
}

func TestLockEndsWithContext(t *testing.T) {
	var locks Locks[string]
	unlock, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting on a taken lock with an ended context gave %v", err)
	}
	if other, err := locks.Lock(t.Context(), "b"); err != nil {
		t.Errorf("another key is blocked: %v", err)
	} else {
		other()
	}
	unlock()
	again, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	again()
}
