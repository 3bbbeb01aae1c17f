// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

func TestSharedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		var runs atomic.Int32
		f := func(context.Context) error {
			runs.Add(1)
			time.Sleep(time.Second)
			return nil
		}
		go s.Do(t.Context(), f)
		synctest.Wait() // the first run is under way
		for range 10 {
			go func() {
				if err := s.Do(t.Context(), f); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if n := runs.Load(); n != 2 {
			t.Errorf("11 callers caused %d runs, want the one under way and one more", n)
		}
	})
}

func TestSharedCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		var ended atomic.Bool
		f := func(ctx context.Context) error {
			time.Sleep(time.Minute)
			ended.Store(ctx.Err() == nil)
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Do(ctx, f); !errors.Is(err, context.DeadlineExceeded) || ended.Load() {
			t.Errorf("the caller got %v; the run had ended: %v", err, ended.Load())
		}
		time.Sleep(time.Hour)
		if !ended.Load() {
			t.Error("the run ended with its caller")
		}
		if err := s.Do(t.Context(), f); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a run without end gives %v", err)
		}
	})
}

func TestSharedPassesPanicsOn(t *testing.T) {
	var s operation.Shared
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		s.Do(t.Context(), func(context.Context) error { panic("a bug") })
	}()
	if err := s.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// Nobody waits behind a run that Windows doesn't answer.
func TestSharedRunThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s operation.Shared
		sys := wincalls.New(hanging{}, wincalls.Options{})
		scan := func(ctx context.Context) error { return sys.ReenumerateDevice(ctx, "") }
		go s.Do(t.Context(), scan)
		synctest.Wait()
		begin := time.Now()
		for range 3 {
			err := s.Do(t.Context(), scan)
			if !errors.Is(err, csiproxy.ErrUnavailable) ||
				time.Since(begin) > wincalls.Patience(win.CallReenumerateDevice)+time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		time.Sleep(3 * time.Hour)
	})
}

type hanging struct{ win.System }

func (hanging) ReenumerateDevice(context.Context, string) error { time.Sleep(time.Hour); return nil }

func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights operation.Flights[string, int]
		var made atomic.Int32
		f := func(context.Context) (int, error) {
			time.Sleep(10 * time.Second)
			return int(made.Add(1)), nil
		}
		for range 5 {
			go func() {
				if n, err := flights.Do(t.Context(), "disk 1", time.Minute, f); n != 1 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
			}()
		}
		time.Sleep(3 * time.Second)
		begin := time.Now()
		if _, err := flights.Do(t.Context(), "disk 1", 5*time.Second, f); !silent(err) || time.Since(begin) != 2*time.Second {
			t.Errorf("who has less patience got %v after %v", err, time.Since(begin))
		}
		if _, err := flights.Do(t.Context(), "disk 1", time.Second, f); !silent(err) || time.Since(begin) != 2*time.Second {
			t.Errorf("who comes when it has been silent for longer got %v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if n, err := flights.Do(t.Context(), "disk 1", time.Minute, f); n != 2 || err != nil {
			t.Errorf("the next flight gave %d, %v", n, err)
		}
	})
}

// Whoever has changed something sees that, though others look meanwhile; and they share one
// look.
func TestFlightsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights operation.Flights[string, int32]
		var state, looks atomic.Int32
		look := func(context.Context) (int32, error) {
			looks.Add(1)
			seen := state.Load()
			time.Sleep(3 * time.Second)
			return seen, nil
		}
		see := func(want int32) {
			if got, err := flights.DoFresh(t.Context(), "disk 1", 5*time.Second, look); got != want || err != nil {
				t.Errorf("seen is %d, %v, want %d", got, err, want)
			}
		}
		go see(0)
		synctest.Wait() // the first look is under way, and has seen the state
		state.Store(1)
		begin := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { see(1) })
		}
		callers.Wait()
		if n, took := looks.Load(), time.Since(begin); n != 2 || took != 6*time.Second {
			t.Errorf("%d looks in %v, want one for all who came since the change", n, took)
		}
		see(1) // right after the end of a look, nothing is under way
		if n := looks.Load(); n != 3 {
			t.Errorf("%d looks", n)
		}
		// Nobody waits for long for what doesn't answer, nor makes another call.
		hang := func(context.Context) (int32, error) { looks.Add(1); time.Sleep(time.Hour); return 0, nil }
		go flights.DoFresh(t.Context(), "disk 1", 5*time.Second, hang)
		time.Sleep(time.Second)
		begin = time.Now()
		for range 3 {
			if _, err := flights.DoFresh(t.Context(), "disk 1", 5*time.Second, hang); !silent(err) ||
				time.Since(begin) != 4*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := flights.DoFresh(ctx, "disk 1", time.Hour, hang); !errors.Is(err, context.Canceled) {
			t.Errorf("who has given up gets %v", err)
		}
		if n := looks.Load(); n != 4 {
			t.Errorf("%d looks", n)
		}
		time.Sleep(3 * time.Hour)
	})
}

func silent(err error) bool {
	ok := errors.As(err, new(*operation.SilentError))
	return ok
}
