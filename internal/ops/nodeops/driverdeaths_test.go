// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"testing"
	"testing/synctest"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A driver's operation that dies at any of its calls to Windows, by a panic that the daemon survives or with the process,
// leaves no handle open, and the driver's repetition succeeds.
func TestDeathOfDriverAtEachCall(t *testing.T) {
	for i, operation := range lifeOfDriver {
		for _, restarts := range []bool{false, true} {
			if simtest.Sampled() && restarts != (i%2 == 0) {
				continue
			}
			t.Run(operation.name, func(t *testing.T) {
				t.Parallel()
				step := 1
				if simtest.Sampled() {
					step = 9
				}
				for at, died := i%step, true; died && !t.Failed(); at += step {
					synctest.Test(t, func(t *testing.T) { died = diesAt(t, i, at, restarts) })
				}
			})
		}
	}
}

// diesAt has one of lifeOfDriver die right before one of its calls, and reports whether it makes so many.
func diesAt(t *testing.T, i, at int, restarts bool) (hasDied bool) {
	const died = "the process died"
	w := newTenants(t)
	d := w.own[red]
	w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial})
	w.sim.Settle()
	for _, before := range lifeOfDriver[:i] {
		w.must(before.do(t, d.Operations, d))
	}
	simtest.BeforeCalls(w.sim, func(call int, _ winsim.Call) {
		if call == at {
			hasDied = true
			panic(died)
		}
	})
	func() {
		defer func() {
			if p := recover(); p != nil && !isDeath(p, died) {
				panic(p)
			}
		}()
		_ = lifeOfDriver[i].do(t, d.Operations, d) // a death that costs nothing may be survived
	}()
	synctest.Wait()
	w.sim.OnCall(nil)
	if handles := w.sim.OpenHandles(); len(handles) > 0 {
		t.Errorf("after its death at call %d, %s has left handles open: %q", at, lifeOfDriver[i].name, handles)
	}
	if restarts {
		node, err := nodeops.New(w.sim, nodeops.Options{}, w.drivers...)
		w.must(err)
		d.Operations = node.Driver(d.name)
	}
	if err := lifeOfDriver[i].do(t, d.Operations, d); err != nil {
		t.Errorf("after its death at call %d, %s is repeated: %v", at, lifeOfDriver[i].name, err)
	}
	return hasDied
}
