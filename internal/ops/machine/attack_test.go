// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/published"
)

// operations are those that change the service middle, and how it and those around it
// are after that.
var operations = map[string]struct {
	running bool // all of them before
	call    func(ctx context.Context, m *machine.Machine) error
	after   [3]published.ServiceStatus // base, middle, top
}{
	"StartService": {
		false,
		func(ctx context.Context, m *machine.Machine) error { return m.StartService(ctx, "middle") },
		[3]published.ServiceStatus{published.ServiceRunning, published.ServiceRunning, published.ServiceStopped},
	},
	"StopService": {
		true,
		func(ctx context.Context, m *machine.Machine) error { return m.StopService(ctx, "middle", true) },
		[3]published.ServiceStatus{published.ServiceRunning, published.ServiceStopped, published.ServiceStopped},
	},
}

// prepared returns a machine on which the operation can begin.
func prepared(t *testing.T, running bool) (*winsim.System, *machine.Machine) {
	t.Helper()
	sys, m := newMachine(t, winsim.Delays{})
	if running {
		must(t, m.StartService(t.Context(), "top"))
	}
	return sys, m
}

func checkStates(t *testing.T, m *machine.Machine, want [3]published.ServiceStatus) {
	t.Helper()
	simtest.Want(t, "the services", [3]published.ServiceStatus{status(t, m, "base"), status(t, m, "middle"), status(t, m, "top")},
		want)
}

// Before each call, the service is replaced by another one of its name. Neither that nor
// what depends on it is left half-way, or the error says what is wrong.
func TestServiceIsSwapped(t *testing.T) {
	for what, op := range operations {
		t.Run(what, func(t *testing.T) {
			simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				sys, m := newMachine(t, winsim.Delays{})
				must(t, sys.Services().Add(services.Spec{Name: "alone", StartType: win.ServiceDemandStart}))
				call := func() error {
					if op.running {
						return m.StopService(t.Context(), "alone", true)
					}
					return m.StartService(t.Context(), "alone")
				}
				if op.running {
					must(t, m.StartService(t.Context(), "alone"))
				}
				before(sys, func(winsim.Call) {
					must(t, sys.Services().Remove("alone"))
					must(t, sys.Services().Add(services.Spec{Name: "alone", DisplayName: "another",
						StartType: win.ServiceDemandStart}))
				})
				err := call()
				sys.OnCall(nil)
				// The new service is stopped: to a start it looks as if the old one had.
				if err != nil && (op.running || csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition) {
					t.Error(err)
				}
				want := published.ServiceRunning
				if op.running {
					want = published.ServiceStopped
				}
				if got := status(t, m, "alone"); err == nil && got != want {
					t.Errorf("success, and it is %v", got)
				}
				must(t, call())
			})
		})
	}
}

// Before each call, another process does the same, or the opposite.
func TestAnotherProcess(t *testing.T) {
	for what, op := range operations {
		for against, other := range operations {
			t.Run(what+" against "+against, func(t *testing.T) {
				simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
					sys, m := prepared(t, op.running)
					second := machine.New(sys, machine.Options{})
					before(sys, func(winsim.Call) { must(t, other.call(t.Context(), second)) })
					err := op.call(t.Context(), m)
					sys.OnCall(nil)
					// A service that another process stops looks as if it had failed.
					if err != nil && (what == against || csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition) {
						t.Error(err)
					}
					must(t, op.call(t.Context(), m))
					checkStates(t, m, [3]published.ServiceStatus{published.ServiceRunning, op.after[1], op.after[2]})
				})
			})
		}
	}
}
