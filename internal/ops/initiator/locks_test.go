// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The node's calls exclude those of drivers, and are excluded by them. Drivers don't exclude each other.
func TestTargetLocks(t *testing.T) {
	locks := NewTargetLocks([]string{"red", "blue"})
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for holder, excluded := range map[string][]string{
		"": {"", "red", "blue"}, "red": {"", "red"}, "blue": {"", "blue"},
	} {
		unlock, err := locks.Lock(t.Context(), holder, "iqn.2026-01.com.example:a")
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"", "red", "blue"} {
			for target, excludes := range map[csiproxy.IQN]bool{
				"IQN.2026-01.com.example:A": slices.Contains(excluded, other), "iqn.2026-01.com.example:b": false,
			} {
				unlockOther, err := locks.Lock(late, other, target)
				if err == nil {
					unlockOther()
				}
				if (err != nil) != excludes {
					t.Errorf("%q has the lock: %q gets that of %s: %v", holder, other, target, err)
				}
			}
		}
		unlock()
	}
	unlock, err := locks.Lock(late, "", "iqn.2026-01.com.example:a")
	if err != nil {
		t.Fatal("a lock is left behind: ", err)
	}
	unlock()
}
