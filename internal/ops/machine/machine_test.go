// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/published"
	"github.com/google/go-cmp/cmp"
)

var (
	must = simtest.Must
	want = simtest.WantError
)

// newMachine returns a machine with a service base, on which middle depends, on which
// top does.
func newMachine(t *testing.T, delays winsim.Delays) (*winsim.System, *machine.Machine) {
	t.Helper()
	sys := simtest.Open(t, delays)
	for _, s := range []services.Spec{
		{Name: "base", DisplayName: "The Base", StartType: win.ServiceDemandStart},
		{Name: "middle", StartType: win.ServiceAutoStart, DependsOn: []string{"base"}},
		{Name: "top", StartType: win.ServiceDemandStart, DependsOn: []string{"middle"}},
		{Name: "broken", StartType: win.ServiceDemandStart, StartError: winerr.ErrorServiceSpecificError},
		{Name: "disabled", StartType: win.ServiceDisabled},
	} {
		must(t, sys.Services().Add(s))
	}
	return sys, machine.New(sys, machine.Options{})
}

func status(t *testing.T, m *machine.Machine, name string) published.ServiceStatus {
	t.Helper()
	s, err := m.GetService(t.Context(), name)
	must(t, err)
	return s.Status
}

func TestGetBIOSSerialNumber(t *testing.T) {
	sys, m := newMachine(t, winsim.Delays{})
	const serial = "VMware-42 1c 7a 5c 9a 5f 6d 3e-8a 0b 5e 44 4f 22 10 9c"
	for set, want := range map[string]string{serial: serial, "S1  ": "S1", "": ""} {
		must(t, sys.SetBIOSSerial(set))
		if got, err := m.GetBIOSSerialNumber(t.Context()); err != nil || got != want {
			t.Errorf("%q is %q, %v", set, got, err)
		}
	}
	must(t, sys.Fail(winsim.Match{Call: "GetSystemFirmwareTable"}, winerr.ErrorInvalidFunction))
	_, err := m.GetBIOSSerialNumber(t.Context())
	want(t, err, csiproxy.ErrUnimplemented)
}

// odd is a host that answers what a simulated node doesn't.
type odd struct {
	*winsim.System
	table   []byte
	service win.Service
}

func (o odd) FirmwareTable(context.Context) ([]byte, error)             { return o.table, nil }
func (o odd) QueryService(context.Context, string) (win.Service, error) { return o.service, nil }

func TestOddHosts(t *testing.T) {
	_, err := machine.New(odd{}, machine.Options{}).GetBIOSSerialNumber(t.Context())
	want(t, err, csiproxy.ErrInternal)
	_, err = machine.New(odd{table: make([]byte, 8)}, machine.Options{}).GetBIOSSerialNumber(t.Context())
	want(t, err, csiproxy.ErrNotFound)
	got, err := machine.New(odd{service: win.Service{State: 8}}, machine.Options{}).GetService(t.Context(), "x")
	if err != nil || got.Status != published.ServiceUnknown {
		t.Errorf("a state that there isn't is %+v, %v", got, err)
	}
}

func TestGetService(t *testing.T) {
	_, m := newMachine(t, winsim.Delays{})
	for name, want := range map[string]published.Service{
		"base":     {DisplayName: "The Base", StartType: published.StartTypeManual, Status: published.ServiceStopped},
		"BASE":     {DisplayName: "The Base", StartType: published.StartTypeManual, Status: published.ServiceStopped},
		"middle":   {DisplayName: "middle", StartType: published.StartTypeAutomatic, Status: published.ServiceStopped},
		"disabled": {DisplayName: "disabled", StartType: published.StartTypeDisabled, Status: published.ServiceStopped},
	} {
		got, err := m.GetService(t.Context(), name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	must(t, m.StartService(t.Context(), "base"))
	simtest.Want(t, "a running service", status(t, m, "base"), published.ServiceRunning)
	_, err := m.GetService(t.Context(), "nothing")
	want(t, err, csiproxy.ErrNotFound)
}

func TestInvalidNames(t *testing.T) {
	sys, m := newMachine(t, winsim.Delays{})
	calls := sys.Calls()
	for _, name := range []string{"", "a/b", `a\b`, "a\x00", "a\xff", strings.Repeat("x", 257), strings.Repeat("\U0001F600", 129)} {
		_, err := m.GetService(t.Context(), name)
		for _, err := range []error{err, m.StartService(t.Context(), name), m.StopService(t.Context(), name, true)} {
			simtest.WantErrorOf(t, fmt.Sprintf("%q", name), err, csiproxy.ErrInvalidArgument)
		}
	}
	simtest.Want(t, "calls to Windows", sys.Calls(), calls)
	_, err := m.GetService(t.Context(), strings.Repeat("x", 256))
	want(t, err, csiproxy.ErrNotFound)
}

func TestStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := newMachine(t, winsim.RealisticDelays())
		ctx := t.Context()
		for range 2 {
			must(t, m.StartService(ctx, "top"))
			if got := [3]published.ServiceStatus{status(t, m, "base"), status(t, m, "middle"),
				status(t, m, "top")}; got != [3]published.ServiceStatus{published.ServiceRunning, published.ServiceRunning, published.ServiceRunning} {
				t.Errorf("after the start: %v", got)
			}
		}
		err := m.StopService(ctx, "base", false)
		want(t, err, csiproxy.ErrFailedPrecondition, "top, middle") // the services in the way
		for range 2 {
			must(t, m.StopService(ctx, "base", true))
			if got := [3]published.ServiceStatus{status(t, m, "base"), status(t, m, "middle"),
				status(t, m, "top")}; got != [3]published.ServiceStatus{published.ServiceStopped, published.ServiceStopped, published.ServiceStopped} {
				t.Errorf("after the stop: %v", got)
			}
		}
		must(t, m.StopService(ctx, "base", false))
	})
}

func TestServiceErrors(t *testing.T) {
	_, m := newMachine(t, winsim.Delays{})
	for name, number := range map[string]winerr.Errno{"broken": winerr.ErrorServiceSpecificError,
		"disabled": winerr.ErrorServiceDisabled} {
		err := m.StartService(t.Context(), name)
		want(t, err, csiproxy.ErrFailedPrecondition)
		if got, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(got) != number {
			t.Errorf("%s: the Windows error is %d, want %d", name, got, number)
		}
	}
	want(t, m.StartService(t.Context(), "nothing"), csiproxy.ErrNotFound)
	want(t, m.StopService(t.Context(), "nothing", true), csiproxy.ErrNotFound)
}

// A service that takes its time keeps nobody longer than he likes.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, m := newMachine(t, winsim.Delays{})
		must(t, sys.Delay(winsim.Match{Call: "StartServiceW"}, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := m.StartService(ctx, "base"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		must(t, m.StartService(t.Context(), "base"))
	})
}

func TestConcurrently(t *testing.T) {
	_, m := newMachine(t, winsim.Delays{})
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			simtest.WantError(t, m.StartService(t.Context(), []string{"base", "middle", "top"}[i%3]), nil)
		})
	}
	callers.Wait()
	for i := range 16 {
		callers.Go(func() {
			simtest.WantError(t, m.StopService(t.Context(), []string{"base", "middle", "top"}[i%3], true), nil)
		})
	}
	callers.Wait()
	simtest.Want(t, "service base", status(t, m, "base"), published.ServiceStopped)
}
