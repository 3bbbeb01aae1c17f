// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// wantService checks the state of a service.
func wantService(t *testing.T, s *System, name string, state win.ServiceState) {
	t.Helper()
	v, err := s.QueryService(t.Context(), name)
	if err != nil || v.State != state {
		t.Errorf("%s is in the state %d (%v), want %d", name, v.State, err, state)
	}
}

// TestServiceDelays: a delay of the call that starts or stops a service is how long
// the service takes, and the call returns at once.
func TestServiceDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNode(t, Delays{Calls: map[string]time.Duration{win.CallStartService: time.Second,
			win.CallStopService: 2 * time.Second}})
		ctx := t.Context()
		must(t, s.Services().Add(services.Spec{Name: "Base", StartType: win.ServiceAutoStart}))
		must(t, s.Services().Add(services.Spec{Name: "Top", StartType: win.ServiceDemandStart, DependsOn: []string{"Base"}}))
		must(t, s.Delay(Match{Call: win.CallStartService, Object: "top", Count: 1}, time.Minute))
		start := time.Now()
		must(t, s.StartService(ctx, "Top"))
		if took := time.Since(start); took != 0 {
			t.Errorf("the call took %v", took)
		}
		time.Sleep(time.Second + 1)
		wantService(t, s, "Base", win.ServiceRunning)
		time.Sleep(time.Minute)
		wantService(t, s, "Top", win.ServiceStartPending) // a second of its own, and the rule's minute
		time.Sleep(time.Second)
		wantService(t, s, "Top", win.ServiceRunning)
		must(t, s.StopService(ctx, "Top"))
		time.Sleep(2*time.Second - 1)
		wantService(t, s, "Top", win.ServiceStopPending)
		time.Sleep(2 * time.Nanosecond)
		wantService(t, s, "Top", win.ServiceStopped)

		must(t, s.PowerLoss())
		wantService(t, s, "Base", win.ServiceStartPending)
		s.Settle()
		wantService(t, s, "Base", win.ServiceRunning)
	})
}

func TestServiceRules(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	must(t, s.Fail(Match{Call: win.CallStopService, Object: "kubelet", Count: 1}, winerr.ErrorInvalidServiceControl))
	wantErr(t, "a call that a rule is for", s.StopService(ctx, "kubelet"), winerr.ErrorInvalidServiceControl)
	must(t, s.StopService(ctx, "kubelet"))
	wantErr(t, "remove no service", s.Services().Remove("x"), winerr.ErrorNotFound)
	must(t, s.Services().Remove("kubelet"))
	for _, spec := range s.Services().List() {
		if spec.Name == "kubelet" {
			t.Error("it is still there")
		}
	}
}
