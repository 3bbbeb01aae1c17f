// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The names of targets compare without regard to case. The node's calls exclude those of drivers.
func TestTargetLocks(t *testing.T) {
	locks := NewTargetLocks([]string{"red"})
	unlock, err := locks.Lock(t.Context(), "", "iqn.2026-01.com.example:a")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for target, excludes := range map[csiproxy.IQN]bool{"IQN.2026-01.com.example:A": true, "iqn.2026-01.com.example:b": false} {
		if _, err := locks.Lock(late, "red", target); (err != nil) != excludes {
			t.Errorf("while a is locked, the lock of %s: %v", target, err)
		}
	}
}
