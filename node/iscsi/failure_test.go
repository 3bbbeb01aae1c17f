// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/node/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
)

// The initiator's service is started by whichever call needs it.
func TestServiceIsStarted(t *testing.T) {
	for what, call := range map[string]func(ctx context.Context, i *iscsi.Initiator) error{
		"AddTargetPortal":    func(ctx context.Context, i *iscsi.Initiator) error { return i.AddTargetPortal(ctx, portal) },
		"ListTargetPortals":  func(ctx context.Context, i *iscsi.Initiator) error { _, err := i.ListTargetPortals(ctx); return err },
		"ConnectTarget":      func(ctx context.Context, i *iscsi.Initiator) error { return i.ConnectTarget(ctx, portal, name, noAuth) },
		"DisconnectTarget":   func(ctx context.Context, i *iscsi.Initiator) error { return i.DisconnectTarget(ctx, portal, name) },
		"RemoveTargetPortal": func(ctx context.Context, i *iscsi.Initiator) error { return i.RemoveTargetPortal(ctx, portal) },
		"GetTargetDisks": func(ctx context.Context, i *iscsi.Initiator) error {
			_, err := i.GetTargetDisks(ctx, portal, name)
			return err
		},
		"DiscoverTargetPortal": func(ctx context.Context, i *iscsi.Initiator) error {
			_, err := i.DiscoverTargetPortal(ctx, portal)
			return err
		},
		"SetMutualCHAPSecret": func(ctx context.Context, i *iscsi.Initiator) error {
			return i.SetMutualCHAPSecret(ctx, secret.New("secretsecret"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, i := newNode(t, winsim.RealisticDelays(), target(name, 1))
				discovered(t, i)
				must(t, sys.StopService(t.Context(), "MSiSCSI"))
				sys.Settle()
				if err := call(t.Context(), i); err != nil {
					t.Error(err)
				}
				if s, err := sys.QueryService(t.Context(), "MSiSCSI"); err != nil || s.State != win.ServiceRunning {
					t.Errorf("the service is %+v, %v", s, err)
				}
			})
		})
	}
}

func TestServiceCanNotBeStarted(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	must(t, sys.Fail(winsim.Match{Call: "StartServiceW"}, win.ErrorServiceDisabled))
	err := i.AddTargetPortal(t.Context(), portal)
	want(t, err, csiproxy.ErrFailedPrecondition)
	if number, _ := csiproxy.WindowsErrorOf(err); win.Errno(number) != win.ErrorServiceDisabled {
		t.Errorf("the Windows error is %d", number)
	}
}

// A service that runs and doesn't answer isn't asked for ever.
func TestServiceDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.Delays{}, target(name, 1))
		discovered(t, i)
		must(t, sys.Fail(winsim.Match{Call: login}, win.ISDSCDidNotRespond))
		begin := time.Now()
		err := i.ConnectTarget(t.Context(), portal, name, noAuth)
		want(t, err, csiproxy.ErrUnavailable)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		sys.ResetRules()
		must(t, sys.Fail(winsim.Match{Call: login, Count: 3}, win.ISDSCServiceUnavailable))
		must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
	})
}

// Wherever a call is given up or fails, the next one succeeds.
func TestGivenUpAndRepeated(t *testing.T) {
	steps := map[string]func(ctx context.Context, i *iscsi.Initiator) error{
		"ConnectTarget":    func(ctx context.Context, i *iscsi.Initiator) error { return i.ConnectTarget(ctx, portal, name, noAuth) },
		"DisconnectTarget": func(ctx context.Context, i *iscsi.Initiator) error { return i.DisconnectTarget(ctx, portal, name) },
	}
	for step, run := range steps {
		for how, end := range map[string]func(sys *winsim.System, c winsim.Call, cancel func()) error{
			"given up": func(_ *winsim.System, _ winsim.Call, cancel func()) error { cancel(); return nil },
			"fails": func(sys *winsim.System, c winsim.Call, _ func()) error {
				return sys.Fail(winsim.Match{Call: c.Name, Count: 1}, win.ErrorGenFailure)
			},
		} {
			t.Run(step+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for at, more := 0, true; more; at++ {
						sys, i := newNode(t, winsim.Delays{DiskArrival: 50 * time.Millisecond}, target(name, 1))
						discovered(t, i)
						if step == "DisconnectTarget" {
							must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
							must(t, sys.SetISCSIPersistentLogin(win.ISCSILogin{Target: string(name), Portal: win.ISCSIPortal{Address: portal.Address, Port: 3260}}))
						}
						ctx, cancel := context.WithCancel(operation.Inline(t.Context()))
						calls := 0
						sys.OnCall(func(c winsim.Call) {
							if calls++; calls == at+1 {
								must(t, end(sys, c, cancel))
							}
						})
						_ = run(ctx, i) // it may succeed all the same
						sys.OnCall(nil)
						sys.ResetRules()
						cancel()
						more = at < calls
						if err := run(t.Context(), i); err != nil {
							t.Fatalf("after call %d: %v", at, err)
						}
						disks, err := i.GetTargetDisks(t.Context(), portal, name)
						must(t, err)
						logins, err := sys.ISCSIPersistentLogins(t.Context())
						must(t, err)
						if (len(disks) == 1) != (step == "ConnectTarget") || len(logins) != 0 {
							t.Fatalf("after call %d: disks %v, persistent logins %v", at, disks, logins)
						}
					}
				})
			})
		}
	}
}

// counted returns how often a call was made since the function was called.
func counted(sys *winsim.System, call string) func() int {
	before := sys.Calls()[call]
	return func() int { return sys.Calls()[call] - before }
}

func TestConcurrently(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	discovered(t, i)
	logins := counted(sys, login)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			if err := i.ConnectTarget(t.Context(), portal, name, noAuth); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := logins(); n != 1 {
		t.Errorf("there were %d logins", n)
	}
	logouts := counted(sys, logout)
	for range 16 {
		callers.Go(func() {
			if err := i.DisconnectTarget(t.Context(), portal, name); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := logouts(); n != 1 {
		t.Errorf("there were %d logouts", n)
	}
}
