// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Whoever has changed something sees that, though others ask meanwhile; and they share one run.
func TestNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s NextRun[string, int32]
		var state, runs atomic.Int32
		ask := func(want int32) {
			got, err := s.Do(t.Context(), "disk 1", func(context.Context) (int32, error) {
				runs.Add(1)
				seen := state.Load()
				time.Sleep(3 * time.Second)
				return seen, nil
			})
			if got != want || err != nil {
				t.Errorf("seen is %d, %v, want %d", got, err, want)
			}
		}
		go ask(0)
		synctest.Wait() // the first run is under way, and has seen the state
		state.Store(1)
		begin := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { ask(1) })
		}
		if _, err := s.Do(t.Context(), "disk 2", func(context.Context) (int32, error) { return 0, nil }); err != nil ||
			time.Since(begin) != 0 {
			t.Errorf("another key: %v after %v", err, time.Since(begin))
		}
		callers.Wait()
		if n, took := runs.Load(), time.Since(begin); n != 2 || took != 6*time.Second {
			t.Errorf("%d runs in %v, want one for all who came since the change", n, took)
		}
		ask(1) // right after the end of a run, none is under way
		if n := runs.Load(); n != 3 || len(s.shared.runs) != 0 {
			t.Errorf("%d runs, and %d are remembered", n, len(s.shared.runs))
		}
	})
}

// A run goes on without its callers, for two minutes.
func TestNextRunCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s NextRun[int, int]
		var ended atomic.Bool
		f := func(ctx context.Context) (int, error) {
			time.Sleep(time.Minute)
			ended.Store(ctx.Err() == nil)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Do(ctx, 1, f); !errors.Is(err, context.DeadlineExceeded) || ended.Load() {
			t.Errorf("the caller got %v; the run had ended: %v", err, ended.Load())
		}
		begin := time.Now()
		if _, err := s.Do(ctx, 1, f); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 0 {
			t.Errorf("who comes with an ended context got %v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Hour)
		if !ended.Load() {
			t.Error("the run ended with its caller")
		}
		begin = time.Now()
		if _, err := s.Do(t.Context(), 1, f); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != sharedRunTimeout {
			t.Errorf("a run without end gives %v after %v", err, time.Since(begin))
		}
	})
}

// Runs without room wait, and leave nothing behind when all their callers have given up. Others begin when there is room.
func TestNextRunRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NextRun[int, int]{Room: make(chan struct{}, 1)}
		var begun []int
		do := func(key int, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.Do(ctx, key, func(context.Context) (int, error) {
				begun = append(begun, key) // there is room for one
				time.Sleep(10 * time.Second)
				return 0, nil
			})
			return err
		}
		var callers sync.WaitGroup
		want := func(name string, key int, patience time.Duration, wanted error) {
			callers.Go(func() {
				if err := do(key, patience); !errors.Is(err, wanted) {
					t.Errorf("%s: %v, want %v", name, err, wanted)
				}
			})
			synctest.Wait()
		}
		want("the run under way, of which the caller gives up", 1, time.Second, context.DeadlineExceeded)
		want("a run of an impatient caller", 2, time.Second, context.DeadlineExceeded)
		want("a run of two callers, of which one is impatient", 3, time.Second, context.DeadlineExceeded)
		want("a run of two callers, of which one is patient", 3, time.Minute, nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.shared.mu.Lock()
		left := len(s.shared.runs)
		s.shared.mu.Unlock()
		if left != 2 {
			t.Errorf("%d runs are left", left)
		}
		want("a later caller of the same key", 2, time.Minute, nil)
		callers.Wait()
		if !slices.Equal(begun, []int{1, 3, 2}) || len(s.shared.runs) != 0 {
			t.Errorf("the runs %v have begun, and %d are left", begun, len(s.shared.runs))
		}
	})
}

func TestNextRunPassesPanicsOn(t *testing.T) {
	var s NextRun[int, int]
	func() {
		defer func() {
			if p, _ := recover().(string); !strings.Contains(p, "a bug") || !strings.Contains(p, "nextrun_test.go") {
				t.Errorf("the caller's panic is %q", p)
			}
		}()
		_, _ = s.Do(t.Context(), 1, func(context.Context) (int, error) { panic("a bug") })
	}()
	if got, err := s.Do(t.Context(), 1, func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("the next run: %d, %v", got, err)
	}
}

// Who gives up learns what Windows hasn't answered, and isn't the reason for another call.
func TestNextRunThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s NextRun[int, int]
		sys := NewWindows(hanging{}, nil, nil)
		scan := func(ctx context.Context) (int, error) { return 0, sys.ReenumerateDevice(ctx, "") }
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			_, err := s.Do(ctx, 1, scan)
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != time.Second ||
				!strings.Contains(err.Error(), "CM_Reenumerate_DevNode on the device tree since 2000-01-01T00:00:00Z") {
				t.Errorf("after %v: %v", took, err)
			}
			cancel()
		}
		if load := sys.Load(); load.Running != 1 {
			t.Errorf("the load is %+v", load)
		}
		time.Sleep(3 * time.Hour)
	})
}

// With a timeout, who finds a run that hangs gets an error that names the call, and who comes
// later gets the same at once.
func TestNextRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NextRun[int, int]{Timeout: 10 * time.Second}
		sys := NewWindows(hanging{}, nil, nil)
		scan := func(ctx context.Context) (int, error) { return 0, sys.ReenumerateDevice(ctx, "") }
		begin := time.Now()
		texts := make(chan string, 4)
		var callers sync.WaitGroup
		for _, test := range []struct{ comes, leaves time.Duration }{
			{0, 10 * time.Second}, {3 * time.Second, 10 * time.Second}, {10 * time.Second, 10 * time.Second},
			{time.Minute, time.Minute},
		} {
			time.Sleep(test.comes - time.Since(begin))
			callers.Go(func() {
				_, err := s.Do(t.Context(), 1, scan)
				if took := time.Since(begin); !errors.Is(err, csiproxy.ErrUnavailable) || took != test.leaves {
					t.Errorf("who comes after %v gets %v after %v", test.comes, err, took)
				}
				texts <- err.Error()
			})
			synctest.Wait()
		}
		callers.Wait()
		first := <-texts
		for range 3 {
			if text := <-texts; text != first || !strings.Contains(text, "CM_Reenumerate_DevNode") {
				t.Errorf("the error is %q, and before %q", text, first)
			}
		}
		if n, err := s.Do(t.Context(), 2, func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("another key: %d, %v", n, err)
		}
		// What answers is waited for, after what was under way.
		slow := func(context.Context) (int, error) { time.Sleep(8 * time.Second); return 7, nil }
		go s.Do(t.Context(), 3, slow)
		time.Sleep(time.Second)
		if n, err := s.Do(t.Context(), 3, slow); n != 7 || err != nil {
			t.Errorf("behind another run: %d, %v", n, err)
		}
		time.Sleep(3 * time.Hour)
	})
}

// A caller's own error names the call that another run, which his run waits for, is in.
func TestNextRunNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outer, inner NextRun[int, int]
		sys := NewWindows(hanging{}, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Run(ctx, "Rescan", func(ctx context.Context) (int, error) {
			return outer.Do(ctx, 1, func(ctx context.Context) (int, error) {
				return inner.Do(ctx, 1, func(ctx context.Context) (int, error) {
					return Run(ctx, "Rescan", func(ctx context.Context) (int, error) { return 0, sys.ReenumerateDevice(ctx, "") })
				})
			})
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "CM_Reenumerate_DevNode") {
			t.Errorf("got %v", err)
		}
		time.Sleep(3 * time.Hour)
	})
}

// Who waits for a lock that a run holds learns for which operation that runs.
func TestNextRunIsOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s NextRun[int, int]
		var l Locks
		go Run(t.Context(), "ListVolumes", func(ctx context.Context) (int, error) {
			return s.Do(ctx, 1, func(ctx context.Context) (int, error) {
				unlock, err := l.Lock(ctx, "1", "disk 1")
				if err == nil {
					time.Sleep(time.Minute)
					unlock()
				}
				return 0, err
			})
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(ctx, "1", "disk 1"); err == nil || !strings.Contains(err.Error(), "ListVolumes") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
	})
}

// A run for another owner's object has the limits of that owner. A call for the same object as the caller's own doesn't wait for the
// run.
func TestNextRunOfOtherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs NextRun[string, int]
		hung := make(chan struct{})
		go func() {
			defer close(hung)
			for range AskSome(t.Context(), []string{"volume"}, UnknownOwner, 1, time.Hour, func(ctx context.Context, volume string) (int, error) {
				return runs.Do(ctx, volume, func(context.Context) (int, error) {
					time.Sleep(time.Minute)
					return 1, nil
				})
			}) {
			}
		}()
		synctest.Wait()
		begun := time.Now()
		got, err := runs.Do(t.Context(), "volume", func(context.Context) (int, error) { return 2, nil })
		if took := time.Since(begun); got != 2 || err != nil || took > 0 {
			t.Errorf("%d, %v after %v", got, err, took)
		}
		<-hung
	})
}
