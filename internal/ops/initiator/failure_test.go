// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The initiator's service is started by whichever call needs it.
func TestServiceIsStarted(t *testing.T) {
	for what, call := range map[string]func(ctx context.Context, i *initiator.Initiator) error{
		"AddTargetPortal": func(ctx context.Context, i *initiator.Initiator) error { return i.AddTargetPortal(ctx, portal) },
		"ListTargetPortals": func(ctx context.Context, i *initiator.Initiator) error {
			_, err := i.ListTargetPortals(ctx)
			return err
		},
		"ConnectTarget": func(ctx context.Context, i *initiator.Initiator) error {
			return i.ConnectTarget(ctx, portal, name, noAuth)
		},
		"DisconnectTarget": func(ctx context.Context,
			i *initiator.Initiator) error {
			return i.DisconnectTarget(ctx, portal, name)
		},
		"RemoveTargetPortal": func(ctx context.Context,
			i *initiator.Initiator) error {
			return i.RemoveTargetPortal(ctx, portal)
		},
		"GetTargetDisks": func(ctx context.Context, i *initiator.Initiator) error {
			_, err := i.GetTargetDisks(ctx, portal, name)
			return err
		},
		"DiscoverTargetPortal": func(ctx context.Context, i *initiator.Initiator) error {
			_, err := i.DiscoverTargetPortal(ctx, portal)
			return err
		},
		"SetMutualCHAPSecret": func(ctx context.Context, i *initiator.Initiator) error {
			return i.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("secretsecret"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, i := newNode(t, winsim.RealisticDelays(), target(name, 1))
				discovered(t, i)
				must(t, sys.StopService(t.Context(), "MSiSCSI"))
				sys.Settle()
				simtest.WantError(t, call(t.Context(), i), nil)
				if s, err := sys.QueryService(t.Context(), "MSiSCSI"); err != nil || s.State != win.ServiceRunning {
					t.Errorf("the service is %+v, %v", s, err)
				}
			})
		})
	}
}

func TestServiceCanNotBeStarted(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	must(t, sys.Fail(winsim.Match{Call: "StartServiceW"}, winerr.ErrorServiceDisabled))
	err := i.AddTargetPortal(t.Context(), portal)
	want(t, err, csiproxy.ErrFailedPrecondition)
	if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != winerr.ErrorServiceDisabled {
		t.Errorf("the Windows error is %d", number)
	}
}

// Which error the initiator returns without its service doesn't matter, nor while the
// service begins.
func TestServiceIsStartedAfterAnyError(t *testing.T) {
	const addPortal, rpcServerUnavailable, endpointNotFound = "AddIScsiSendTargetPortalW", winerr.Errno(1722), winerr.Errno(1753)
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.Delays{}, target(name, 1))
		must(t, sys.Fail(winsim.Match{Call: "GetIScsiSessionListW", Count: 3}, endpointNotFound))
		must(t, i.AddTargetPortal(t.Context(), portal))
		stopped := false
		sys.OnCall(func(c winsim.Call) {
			if c.Name == addPortal && !stopped {
				stopped = true
				must(t, sys.StopService(context.Background(), "MSiSCSI"))
			}
		})
		must(t, i.RemoveTargetPortal(t.Context(), portal))
		must(t, sys.Fail(winsim.Match{Call: addPortal, Count: 1}, rpcServerUnavailable))
		must(t, i.AddTargetPortal(t.Context(), portal))
		if !stopped {
			t.Error("the service wasn't stopped")
		}
	})
}

// A service that runs and doesn't answer isn't asked forever.
func TestServiceDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.Delays{}, target(name, 1))
		must(t, sys.Fail(winsim.Match{Call: "GetIScsiSessionListW"}, winerr.ISDSCDidNotRespond))
		begin := time.Now()
		want(t, i.AddTargetPortal(t.Context(), portal), csiproxy.ErrUnavailable)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		sys.ResetRules()
		discovered(t, i)
		must(t, sys.Fail(winsim.Match{Call: login}, winerr.ISDSCDidNotRespond))
		calls := counted(sys, login)
		want(t, i.ConnectTarget(t.Context(), portal, name, noAuth), csiproxy.ErrUnavailable)
		if n := calls()[0]; n != 1 {
			t.Errorf("a running service is asked %d times", n)
		}
	})
}

// Those who wait for disks at the same time don't have the adapters asked each for
// himself: it is once for those whose turn it is and once for those who come then.
func TestRescansAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rescan = "CM_Reenumerate_DevNode"
		sys, i := newNode(t, winsim.Delays{DiskArrival: time.Hour}, target(name, 1))
		discovered(t, i)
		must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
		must(t, sys.Delay(winsim.Match{Call: rescan}, 10*time.Millisecond))
		rescans := counted(sys, rescan)
		if _, err := i.GetTargetDisks(t.Context(), portal, name); err != nil {
			t.Error(err)
		}
		ofOne := rescans()[0]
		rescans = counted(sys, rescan)
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				if _, err := i.GetTargetDisks(t.Context(), portal, name); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if n := rescans()[0]; ofOne == 0 || n > 8*ofOne {
			t.Errorf("32 callers have the adapters asked %d times, one %d times", n, ofOne)
		}
	})
}

func TestConcurrently(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	discovered(t, i)
	logins := counted(sys, login)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			simtest.WantError(t, i.ConnectTarget(t.Context(), portal, name, noAuth), nil)
		})
	}
	callers.Wait()
	simtest.Want(t, "logins", logins()[0], 1)
	logouts := counted(sys, logout)
	for range 16 {
		callers.Go(func() {
			simtest.WantError(t, i.DisconnectTarget(t.Context(), portal, name), nil)
		})
	}
	callers.Wait()
	simtest.Want(t, "logouts", logouts()[0], 1)
}
