// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A volume that takes a while to arrive costs no queries as long as nothing arrives.
func TestCallsWhileAVolumeArrives(t *testing.T) {
	calls := make(map[time.Duration]int)
	const soon, late = time.Millisecond, 240 * time.Millisecond
	for _, after := range []time.Duration{soon, late} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, winsim.Delays{VolumeArrival: after})
			simtest.Partition(t, r.sim, r.attach(winsim.DiskSpec{Serial: "vol-1"}), 1)
			r.sim.Settle()
			n, ctx := r.process().Disk, t.Context()
			r.must(n.SetDiskState(ctx, 1, false))
			calls[after] = r.calls(func() { r.must(n.SetDiskState(ctx, 1, true)) })
		})
	}
	if calls[soon] != calls[late] {
		t.Errorf("%d calls if the volume arrives after %v, and %d after %v", calls[soon], soon, calls[late], late)
	}
}

// calls counts the calls to Windows while f runs.
func (r *rig) calls(f func()) (n int) {
	before := r.sim.Calls()
	f()
	for name, after := range r.sim.Calls() {
		n += after - before[name]
	}
	return n
}
