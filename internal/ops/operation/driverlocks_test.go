// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The node's calls exclude those of drivers, and are excluded by them. Drivers don't exclude each other.
func TestDriverLocks(t *testing.T) {
	locks := NewDriverLocks[string]([]string{"red", "blue"})
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for holder, excluded := range map[string][]string{
		"": {"", "red", "blue"}, "red": {"", "red"}, "blue": {"", "blue"},
	} {
		unlock, err := locks.Lock(t.Context(), holder, "a", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"", "red", "blue"} {
			for key, excludes := range map[string]bool{"a": slices.Contains(excluded, other), "b": false} {
				unlockOther, err := locks.Lock(late, other, key, "")
				if err == nil {
					unlockOther()
				}
				if (err != nil) != excludes {
					t.Errorf("%q has the lock: %q gets that of %s: %v", holder, other, key, err)
				}
			}
		}
		unlock()
	}
	if len(locks.locks.held) > 0 {
		t.Errorf("%d locks are left behind", len(locks.locks.held))
	}
}

// While the node's call waits for one driver, it keeps no other driver waiting. Then it gets all locks.
func TestNodeHoldsNoLockWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waitsFor := range []string{"red", "blue", "green"} {
			drivers := []string{"red", "blue", "green"}
			locks := NewDriverLocks[int](drivers)
			unlock, err := locks.Lock(t.Context(), waitsFor, 1, "")
			if err != nil {
				t.Fatal(err)
			}
			ofNode := make(chan func())
			go func() {
				unlock, err := locks.Lock(t.Context(), "", 1, "")
				if err != nil {
					t.Error(err)
				}
				ofNode <- unlock
			}()
			synctest.Wait()
			late, cancel := context.WithCancel(t.Context())
			cancel()
			for _, driver := range drivers {
				if driver == waitsFor {
					continue
				}
				unlockOther, err := locks.Lock(late, driver, 1, "")
				if err != nil {
					t.Errorf("the node waits for %s, and %s for the node: %v", waitsFor, driver, err)
					continue
				}
				time.AfterFunc(time.Second, unlockOther) // the node waits for this one, too
			}
			unlock()
			unlockNode := <-ofNode
			for _, driver := range drivers {
				if _, err := locks.Lock(late, driver, 1, ""); err == nil {
					t.Errorf("the node has the lock, and %s gets it", driver)
				}
			}
			unlockNode()
			synctest.Wait() // the timers' releases let the node in before they return
			if len(locks.locks.held) > 0 {
				t.Errorf("%d locks are left behind", len(locks.locks.held))
			}
		}
	})
}
