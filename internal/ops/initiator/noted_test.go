// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The records of connected targets stay few, however many targets a driver connects.
func TestNotedTargetsAreBounded(t *testing.T) {
	i := New(nil, Options{})
	for n := range 3 * maxOfDrivers {
		iqn := csiproxy.IQN(fmt.Sprintf("iqn.2026-01.com.example:%d", n))
		if !i.noteDriver(iqn) || i.noteDriver(iqn) || !i.isOfDriver(iqn) {
			t.Errorf("%s isn't recorded once", iqn)
		}
	}
	if len(i.ofDrivers) != maxOfDrivers {
		t.Errorf("there are %d records", len(i.ofDrivers))
	}
}
