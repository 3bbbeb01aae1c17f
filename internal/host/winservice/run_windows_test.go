// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows/svc"
)

var errRun = errors.New("run has failed")

// manager is the service manager of a test.
type manager struct {
	*handler
	controls chan svc.ChangeRequest
	told     []svc.Status // by the service; to be read after synctest.Wait
	extended []string     // waits at a shutdown; to be read after synctest.Wait
	exited   bool
	specific bool
	code     uint32
}

// startService starts a service whose manager is the test, in a synctest bubble.
func startService(t *testing.T, run func(ctx context.Context, ready func()) error) *manager {
	t.Helper()
	options := Options{StartTimeout: time.Minute + time.Second, StopTimeout: 30 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	m := &manager{controls: make(chan svc.ChangeRequest)}
	m.handler = newHandler(run, options, func(string) (bool, error) { return false, errRun },
		func(name string, atLeast time.Duration) error {
			m.extended = append(m.extended, fmt.Sprint(name, " ", atLeast))
			return errRun // which is passed over
		})
	statuses := make(chan svc.Status)
	go func() {
		for s := range statuses {
			m.told = append(m.told, s)
		}
	}()
	go func() {
		defer close(statuses)
		m.specific, m.code = m.Execute([]string{"csi-proxy-of-a-test"}, m.controls, statuses)
		m.exited = true
	}()
	synctest.Wait()
	return m
}

func (m *manager) control(c svc.Cmd) {
	m.controls <- svc.ChangeRequest{Cmd: c}
	synctest.Wait()
}

// wantTold checks what the service has told since the last call.
func (m *manager) wantTold(t *testing.T, want ...svc.Status) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, m.told); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	m.told = nil
}

func (m *manager) wantExit(t *testing.T, specific bool, code uint32, want error) {
	t.Helper()
	synctest.Wait()
	if !m.exited || m.specific != specific || m.code != code {
		t.Errorf("exited %v, service-specific %v, code %d; want exit with %v, %d", m.exited, m.specific, m.code, specific,
			code)
	}
	select {
	case err := <-m.ended:
		if !errors.Is(err, want) {
			t.Errorf("Run returns %v, want %v", err, want)
		}
	default:
		t.Error("Run doesn't return")
	}
}

var running = svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown | svc.AcceptPreShutdown}

func starting(checkPoint uint32) svc.Status {
	return svc.Status{State: svc.StartPending, CheckPoint: checkPoint, WaitHint: 61_000}
}

func stopping(checkPoint uint32) svc.Status {
	return svc.Status{State: svc.StopPending, CheckPoint: checkPoint, WaitHint: 30_000}
}

// untilStopped is a service that is ready at once and ends when it should.
func untilStopped(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	return nil
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startService(t, func(ctx context.Context, ready func()) error {
			time.Sleep(2*progressInterval + time.Millisecond)
			ready()
			ready()
			<-ctx.Done()
			time.Sleep(2*progressInterval - 2*time.Millisecond)
			return nil
		})
		m.wantTold(t, starting(1))
		time.Sleep(2 * progressInterval)
		m.wantTold(t, starting(2), starting(3))
		if m.extended != nil {
			t.Errorf("while it starts: %q", m.extended)
		}
		time.Sleep(2 * time.Minute)
		m.wantTold(t, running)
		if diff := cmp.Diff([]string{"csi-proxy-of-a-test 30s"}, m.extended); diff != "" {
			t.Errorf("waits at a shutdown (-want +got):\n%s", diff)
		}
		m.control(svc.Stop)
		m.wantTold(t, stopping(1))
		time.Sleep(2 * progressInterval)
		m.wantTold(t, stopping(2))
		m.wantExit(t, false, 0, nil)
	})
}

func TestControls(t *testing.T) {
	for cmd, cause := range stopCauses {
		synctest.Test(t, func(t *testing.T) {
			var got error
			m := startService(t, func(ctx context.Context, ready func()) error {
				ready()
				<-ctx.Done()
				got = context.Cause(ctx)
				time.Sleep(time.Second)
				return nil
			})
			m.wantTold(t, starting(1), running)
			m.control(svc.Interrogate)
			m.wantTold(t, running)
			m.control(svc.ParamChange)
			m.wantTold(t)
			m.control(cmd)
			m.control(svc.Stop)
			m.wantTold(t, stopping(1))
			m.control(svc.Interrogate)
			m.wantTold(t, stopping(1))
			if got != cause {
				t.Errorf("control %d: cause %v, want %v", cmd, got, cause)
			}
			time.Sleep(time.Second)
			m.wantExit(t, false, 0, nil)
		})
	}
}

func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		run      func(ctx context.Context, ready func()) error
		specific bool
		code     uint32
		want     error
	}{
		"at once":      {func(context.Context, func()) error { return nil }, false, 0, nil},
		"before ready": {func(context.Context, func()) error { return errRun }, true, ExitFailed, errRun},
		"after ready": {func(_ context.Context,
			ready func()) error {
			ready()
			time.Sleep(time.Nanosecond)
			return errRun
		}, true, ExitFailed, errRun},
		"when it stops": {func(ctx context.Context, ready func()) error { ready(); <-ctx.Done(); return errRun }, false, 0,
			errRun},
		"without saying": {untilStopped, false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startService(t, test.run)
				time.Sleep(time.Nanosecond)
				if synctest.Wait(); !m.exited {
					m.control(svc.Stop)
				}
				m.wantExit(t, test.specific, test.code, test.want)
			})
		})
	}
}

func TestStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startService(t, func(ctx context.Context, ready func()) error {
			<-ctx.Done()
			ready() // too late
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(time.Minute + time.Second - 1)
		synctest.Wait()
		if last := m.told[len(m.told)-1]; last != starting(31) {
			t.Errorf("before the timeout the service tells %+v", last)
		}
		m.told = nil
		time.Sleep(time.Nanosecond)
		m.wantTold(t, stopping(1))
		time.Sleep(time.Second)
		m.wantExit(t, true, ExitFailed, errNotReady)
	})
}

func TestStopTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		m := startService(t, func(_ context.Context, ready func()) error {
			ready()
			<-stuck
			return nil
		})
		m.control(svc.Stop)
		time.Sleep(30*time.Second - 1)
		if synctest.Wait(); m.exited {
			t.Error("the service exits before the timeout")
		}
		time.Sleep(time.Nanosecond)
		m.wantExit(t, false, 0, errNotEnded)
	})
}

func TestShortTimeoutIsNoShortHint(t *testing.T) {
	if hint := pending(svc.StopPending,
		time.Millisecond).WaitHint; time.Duration(hint)*time.Millisecond <= progressInterval {
		t.Errorf("wait hint %d ms, with progress every %v", hint, progressInterval)
	}
}

// A service that the manager restarts only after a crash doesn't tell its end.
func TestSilentFailure(t *testing.T) {
	h := newHandler(func(context.Context, func()) error { return errRun },
		Options{StartTimeout: time.Minute, StopTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)},
		func(name string) (bool, error) { return name == "csi-proxy-of-a-test", nil },
		func(string, time.Duration) error { return nil })
	statuses := make(chan svc.Status, 1)
	executed := make(chan struct{})
	go func() { // never ends, as the process would
		defer close(executed)
		h.Execute([]string{"csi-proxy-of-a-test"}, nil, statuses)
	}()
	if err := <-h.ended; !errors.Is(err, errRun) {
		t.Errorf("Run returns %v", err)
	}
	select {
	case <-executed:
		t.Error("the manager is told")
	default:
	}
}
