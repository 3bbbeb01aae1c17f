// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/google/go-cmp/cmp"
)

var discard = slog.New(slog.DiscardHandler)

// manager is a service manager whose services do what a test says: which a simulated
// node's can't, since they behave.
type manager struct {
	states map[string][]win.ServiceState // what the next queries give; the last one stays
	exit   win.Service                   // with what services stop
	start  func(name string) error       // what StartService gives
	stop   func(name string) error       // what StopService gives
	// dependents are what ActiveDependentServices gives.
	dependents func(name string) ([]string, error)
	asked      []string // the requests to start and stop
}

func (m *manager) QueryService(ctx context.Context, name string) (win.Service, error) {
	states, ok := m.states[name]
	if !ok {
		return win.Service{}, winerr.ErrorServiceDoesNotExist
	}
	if len(states) > 1 {
		m.states[name] = states[1:]
	}
	s := m.exit
	s.State = states[0]
	return s, ctx.Err()
}

func (m *manager) StartService(_ context.Context, name string) error {
	m.asked = append(m.asked, "start "+name)
	return m.start(name)
}

func (m *manager) StopService(_ context.Context, name string) error {
	m.asked = append(m.asked, "stop "+name)
	return m.stop(name)
}

func (m *manager) ActiveDependentServices(_ context.Context, name string) ([]string, error) {
	return m.dependents(name)
}

func accept(string) error { return nil }

const (
	stopped      = win.ServiceStopped
	startPending = win.ServiceStartPending
	stopPending  = win.ServiceStopPending
	running      = win.ServiceRunning
	paused       = win.ServicePaused
)

// give returns a function that fails so many times.
func give(err error, times int) func(string) error {
	return func(string) error {
		if times--; times >= 0 {
			return err
		}
		return nil
	}
}

// states are those that the service gives, in this order.
type states = []win.ServiceState

// asked is a request to a manager, and what becomes of it.
type asked struct {
	states states
	answer func(string) error // to the request to start or stop; nil for success
	asked  int                // how often it is made
	want   error              // of csiproxy; nil is success
	cause  winerr.Errno
	exit   win.Service
}

func (a asked) test(t *testing.T, do func(context.Context, *manager) error) {
	synctest.Test(t, func(t *testing.T) {
		m := &manager{states: map[string][]win.ServiceState{}, exit: a.exit, start: a.answer, stop: a.answer}
		if a.states != nil {
			m.states["svc"] = a.states
		}
		if a.answer == nil {
			m.start, m.stop = accept, accept
		}
		check(t, do(t.Context(), m), a.want, a.cause)
		if len(m.asked) != a.asked {
			t.Errorf("it was asked %q", m.asked)
		}
	})
}

func TestStart(t *testing.T) {
	for name, test := range map[string]asked{
		"stopped":       {states: states{stopped, startPending, startPending, running}, asked: 1},
		"running":       {states: states{running}},
		"about to run":  {states: states{startPending, startPending, running}},
		"about to stop": {states: states{stopPending, stopPending, stopped, startPending, running}, asked: 1},
		"started by somebody else": {states: states{stopped, running},
			answer: give(winerr.ErrorServiceAlreadyRunning, 1), asked: 1},
		"continuing": {states: states{win.ServiceContinuePending, running}},
		"paused":     {states: states{paused}, want: csiproxy.ErrFailedPrecondition},
		"disabled": {states: states{stopped}, answer: give(winerr.ErrorServiceDisabled, 1), asked: 1,
			want: csiproxy.ErrFailedPrecondition, cause: winerr.ErrorServiceDisabled},
		"a dependency that fails": {states: states{stopped}, answer: give(winerr.ErrorServiceDependencyFail, 1), asked: 1,
			want: csiproxy.ErrFailedPrecondition, cause: winerr.ErrorServiceDependencyFail},
		"a process that hangs": {states: states{stopped}, answer: give(winerr.ErrorServiceRequestTimeout, 1), asked: 1,
			want: csiproxy.ErrUnavailable, cause: winerr.ErrorServiceRequestTimeout},
		"stops again": {states: states{stopped, startPending, stopped}, exit: win.Service{ExitCode: winerr.ErrorFileNotFound},
			asked: 1, want: csiproxy.ErrFailedPrecondition, cause: winerr.ErrorFileNotFound},
		"stops again without a cause": {states: states{stopped, stopped}, asked: 1, want: csiproxy.ErrFailedPrecondition},
		"stops with its own error": {states: states{stopped, startPending, stopped},
			exit:  win.Service{ExitCode: winerr.ErrorServiceSpecificError, SpecificExitCode: 42},
			asked: 1, want: csiproxy.ErrFailedPrecondition, cause: winerr.ErrorServiceSpecificError},
		"unknown":     {want: csiproxy.ErrNotFound, cause: winerr.ErrorServiceDoesNotExist},
		"never there": {states: states{stopped, startPending}, asked: 1, want: csiproxy.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			test.test(t, func(ctx context.Context, m *manager) error { return machine.Start(ctx, m, discard, "svc") })
		})
	}
}

func check(t *testing.T, err, want error, cause winerr.Errno) {
	t.Helper()
	if csiproxy.KindOf(err) != want {
		t.Errorf("the error is %v, want %v", err, want)
	}
	if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != cause {
		t.Errorf("the Windows error is %d, want %d", number, cause)
	}
}

func TestStop(t *testing.T) {
	for name, test := range map[string]asked{
		"running":       {states: states{running, stopPending, stopped}, asked: 1},
		"paused":        {states: states{paused, stopped}, asked: 1},
		"stopped":       {states: states{stopped}},
		"about to stop": {states: states{stopPending, stopPending, stopped}},
		"about to run": {states: states{startPending, startPending, running, stopPending, stopped},
			answer: give(winerr.ErrorServiceCannotAcceptCtrl, 2), asked: 3},
		"stopped meanwhile": {states: states{running}, answer: give(winerr.ErrorServiceNotActive, 1), asked: 1},
		"slow to say so":    {states: states{running, running, running, stopped}, asked: 1},
		"not to be stopped": {states: states{running}, answer: give(winerr.ErrorInvalidServiceControl, 1), asked: 1,
			want: csiproxy.ErrFailedPrecondition, cause: winerr.ErrorInvalidServiceControl},
		"protected": {states: states{running}, answer: give(winerr.ErrorAccessDenied, 1), asked: 1,
			want: csiproxy.ErrPermissionDenied, cause: winerr.ErrorAccessDenied},
		"unknown":              {want: csiproxy.ErrNotFound, cause: winerr.ErrorServiceDoesNotExist},
		"accepts and runs on":  {states: states{running}, asked: 3, want: csiproxy.ErrUnavailable},
		"hangs while stopping": {states: states{stopPending}, want: csiproxy.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			test.test(t, func(ctx context.Context, m *manager) error { return machine.Stop(ctx, m, discard, "svc", false) })
		})
	}
}

// The caller's deadline bounds a wait, and then its error is the caller's.
func TestServiceDeadline(t *testing.T) {
	for name, call := range map[string]func(context.Context, *manager) error{
		"start": func(ctx context.Context, m *manager) error { return machine.Start(ctx, m, discard, "svc") },
		"stop":  func(ctx context.Context, m *manager) error { return machine.Stop(ctx, m, discard, "svc", true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &manager{states: map[string][]win.ServiceState{"svc": {startPending}},
					stop: func(string) error { return winerr.ErrorServiceCannotAcceptCtrl }}
				const deadline = 5 * time.Minute // more than callers without one wait
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				begin := time.Now()
				if err := call(ctx, m); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != deadline {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := call(ctx, m); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled: %v", err)
				}
			})
		})
	}
}

// dependents is a manager of a service, its dependents a and b, which must be stopped
// in this order, and one that is gone by the time that it is asked.
func dependents(restarts int) *manager {
	m := &manager{states: map[string][]win.ServiceState{"svc": {running}, "a": {running}, "b": {running}}}
	on := func(name string) bool { return m.states[name][0] == running }
	m.stop = func(name string) error {
		if name == "svc" && (on("a") || on("b")) || name == "b" && on("a") {
			return winerr.ErrorDependentServicesRunning
		}
		m.states[name] = []win.ServiceState{stopPending, stopPending, stopped}
		other := map[string]string{"a": "b", "b": "a"}[name]
		if other != "" && !on(other) && restarts > 0 {
			restarts--
			m.states[other] = []win.ServiceState{running}
		}
		return nil
	}
	m.dependents = func(string) ([]string, error) {
		return slices.DeleteFunc([]string{"a", "gone", "b"}, func(name string) bool { return name != "gone" && !on(name) }),
			nil
	}
	return m
}

func TestStopDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dependents(0)
		err := machine.Stop(t.Context(), m, discard, "svc", false)
		check(t, err, csiproxy.ErrFailedPrecondition, winerr.ErrorDependentServicesRunning)
		if diff := cmp.Diff([]string{"stop svc"}, m.asked); diff != "" {
			t.Errorf("without force (-want +got):\n%s", diff)
		}
		m.asked = nil
		if err := machine.Stop(t.Context(), m, discard, "svc", true); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"stop svc", "stop a", "stop b", "stop svc"}, m.asked); diff != "" {
			t.Errorf("with force (-want +got):\n%s", diff)
		}
		m.asked = nil
		if err := machine.Stop(t.Context(), m, discard, "svc", true); err != nil || len(m.asked) != 0 {
			t.Errorf("the second time: %v, %q", err, m.asked)
		}
	})
}

func TestStopDependentsThatStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := machine.Stop(t.Context(), dependents(1), discard, "svc", true); err != nil {
			t.Errorf("one that is started once: %v", err)
		}
		check(t, machine.Stop(t.Context(), dependents(100), discard, "svc", true), csiproxy.ErrFailedPrecondition,
			winerr.ErrorDependentServicesRunning)
	})
}

// The order in which dependents are listed may not be that in which they can stop.
func TestStopDependentsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dependents(0)
		listed := m.dependents
		m.dependents = func(name string) ([]string, error) {
			list, err := listed(name)
			slices.Reverse(list)
			return list, err
		}
		if err := machine.Stop(t.Context(), m, discard, "svc", true); err != nil {
			t.Error(err)
		}
	})
}

func TestStopDependentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dependents(0)
		stop := m.stop
		m.stop = func(name string) error {
			if name == "a" {
				return winerr.ErrorInvalidServiceControl
			}
			return stop(name)
		}
		check(t, machine.Stop(t.Context(), m, discard, "svc", true), csiproxy.ErrFailedPrecondition,
			winerr.ErrorInvalidServiceControl)
		if m.states["b"][0] != running {
			t.Error("it went on after one that can't be stopped")
		}
		m.dependents = func(string) ([]string, error) { return nil, winerr.ErrorAccessDenied }
		check(t, machine.Stop(t.Context(), m, discard, "svc", true), csiproxy.ErrPermissionDenied, winerr.ErrorAccessDenied)
	})
}
