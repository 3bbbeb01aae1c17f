// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Two calls exclude each other if they may be about an object of one owner. A driver that only presumes to own its object excludes the node.
func TestDriverLocks(t *testing.T) {
	locks := NewDriverLocks([]string{"red", "blue"})
	late, cancel := context.WithCancel(t.Context())
	cancel()
	owners := map[string][]string{
		"node":                  locks.Owners("", "", false),
		"node, nobody's object": locks.Owners("", "", true),
		"node, red's object":    locks.Owners("", "red", true),
		"red":                   locks.Owners("red", "red", true),
		"red, presumably":       locks.Owners("red", "red", false),
		"blue":                  locks.Owners("blue", "blue", true),
		"blue, presumably":      locks.Owners("blue", "blue", false),
	}
	all := slices.Sorted(maps.Keys(owners))
	for holder, excluded := range map[string][]string{
		"node":                  all,
		"node, nobody's object": {"blue, presumably", "node", "node, nobody's object", "node, red's object", "red, presumably"},
		"node, red's object":    {"blue, presumably", "node", "node, nobody's object", "node, red's object", "red", "red, presumably"},
		"red":                   {"node", "node, red's object", "red", "red, presumably"},
		"red, presumably":       {"blue, presumably", "node", "node, nobody's object", "node, red's object", "red", "red, presumably"},
		"blue":                  {"blue", "blue, presumably", "node"},
		"blue, presumably":      {"blue", "blue, presumably", "node", "node, nobody's object", "node, red's object", "red, presumably"},
	} {
		unlock, err := locks.Lock(t.Context(), owners[holder], "a", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range all {
			for key, excludes := range map[string]bool{"a": slices.Contains(excluded, other), "b": false} {
				unlockOther, err := locks.Lock(late, owners[other], key, "")
				if err == nil {
					unlockOther()
				}
				if (err != nil) != excludes {
					t.Errorf("%s has the lock: %s gets that of %s: %v", holder, other, key, err)
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
			locks := NewDriverLocks(drivers)
			unlock, err := locks.Lock(t.Context(), []string{waitsFor}, "a", "")
			if err != nil {
				t.Fatal(err)
			}
			ofNode := make(chan func())
			go func() {
				unlock, err := locks.Lock(t.Context(), locks.Owners("", "", false), "a", "")
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
				unlockOther, err := locks.Lock(late, []string{driver}, "a", "")
				if err != nil {
					t.Errorf("the node waits for %s, and %s for the node: %v", waitsFor, driver, err)
					continue
				}
				time.AfterFunc(time.Second, unlockOther) // the node waits for this one, too
			}
			unlock()
			unlockNode := <-ofNode
			for _, driver := range drivers {
				if _, err := locks.Lock(late, []string{driver}, "a", ""); err == nil {
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
