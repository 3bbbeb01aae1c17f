// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/keylock"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

type seen struct {
	name string
	took time.Duration
	err  error
}

func TestResultAndObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []seen
		r := NewRunner(1, func(name string, took time.Duration, err error) { all = append(all, seen{name, took, err}) })
		got, err := Get(t.Context(), r, "GetDiskStats", "disk 1", func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 7, nil
		})
		if got != 7 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
		err = Do(t.Context(), r, "Rescan", "", func(context.Context) error { return win.ErrorAccessDenied })
		if !errors.Is(err, csiproxy.ErrPermissionDenied) || !strings.HasPrefix(err.Error(), "Rescan: ") {
			t.Errorf("got %v", err)
		}
		want := []seen{{"GetDiskStats", time.Second, nil}, {"Rescan", 0, win.ErrorAccessDenied}}
		if len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
			t.Errorf("observed %v, want %v", all, want)
		}
	})
}

// A call to Windows that hangs must not hang its caller, and holds its place.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		r := NewRunner(1, func(string, time.Duration, error) { ended.Add(1) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Do(ctx, r, "MountVolume", "volume x", func(context.Context) error { time.Sleep(time.Hour); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || ended.Load() != 0 {
			t.Fatalf("the caller got %v; %d have ended", err, ended.Load())
		}
		second, cancelSecond := context.WithTimeout(t.Context(), time.Minute)
		defer cancelSecond()
		ran := false
		err = Do(second, r, "MountVolume", "volume y", func(context.Context) error { ran = true; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || ran {
			t.Errorf("beyond the bound: %v, ran %v", err, ran)
		}
		time.Sleep(time.Hour)
		if n := ended.Load(); n != 1 {
			t.Errorf("%d have ended, want the abandoned one", n)
		}
		if err := Do(t.Context(), r, "MountVolume", "volume z", func(context.Context) error { return nil }); err != nil {
			t.Errorf("after it has ended: %v", err)
		}
	})
}

func TestInline(t *testing.T) {
	heard := 0
	r := NewRunner(1, func(string, time.Duration, error) { heard++ })
	for range 2 { // the place is free again
		ctx, cancel := context.WithCancel(Inline(t.Context()))
		got, err := Get(ctx, r, "GetDiskStats", "", func(context.Context) (int, error) {
			cancel()
			return 7, nil
		})
		if got != 7 || err != nil {
			t.Errorf("got %d, %v: the caller didn't wait", got, err)
		}
	}
	if heard != 2 {
		t.Errorf("%d were observed", heard)
	}
}

func TestNothingBeginsWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Do(ctx, NewRunner(1, nil), "Rescan", "", func(context.Context) error { t.Error("it ran"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(1, nil)
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, "a bug") || !strings.Contains(p, "operation_test.go") {
					t.Errorf("the caller's panic is %q", p)
				}
			}()
			Do(t.Context(), r, "Rescan", "", func(context.Context) error { panic("a bug") })
		}()
		// One that nobody waits for any more must not end the process.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Do(ctx, r, "Rescan", "", func(context.Context) error { time.Sleep(time.Minute); panic("a bug") })
		time.Sleep(time.Hour)
	})
}

// What waits for the outside leaves room for the others, and takes part in the whole.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(3, nil)
		part := r.Part(2)
		sleep := func(context.Context) error { time.Sleep(time.Minute); return nil }
		begin := time.Now()
		for range 4 {
			go Do(t.Context(), part, "NewSMBGlobalMapping", "", sleep)
		}
		synctest.Wait()
		if err := Do(t.Context(), r, "Rescan", "", func(context.Context) error { return nil }); err != nil || time.Since(begin) != 0 {
			t.Errorf("beside a part that is full: %v after %v", err, time.Since(begin))
		}
		go Do(t.Context(), r, "Rescan", "", sleep)
		time.Sleep(30 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Do(ctx, r, "Rescan", "", sleep); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beyond the whole: %v", err)
		}
		// Now the whole keeps a place of the part from being used.
		other := r.Part(1)
		if err := Do(ctxOfASecond(t), other, "StartService", "", sleep); !errors.Is(err, context.DeadlineExceeded) || len(other.slots[0]) != 0 {
			t.Errorf("got %v; %d places are kept", err, len(other.slots[0]))
		}
		time.Sleep(time.Hour)
		for _, slots := range part.slots {
			if len(slots) != 0 {
				t.Errorf("%d places of %d are kept", len(slots), cap(slots))
			}
		}
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(1, nil)
		minute := func() error { time.Sleep(time.Minute); return nil }
		at := func(d time.Duration, f func(context.Context) error) {
			go func() {
				time.Sleep(d)
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
				defer cancel()
				if err := Do(ctx, r, "StartService", "", f); err != nil {
					t.Error(err)
				}
			}()
		}
		var counted, most atomic.Int32
		for range 3 {
			at(0, func(ctx context.Context) error {
				err := Idle(ctx, minute)
				most.Store(max(most.Load(), counted.Add(1)))
				time.Sleep(time.Second)
				counted.Add(-1)
				return err
			})
		}
		at(30*time.Second, func(context.Context) error { return nil })
		time.Sleep(31 * time.Second)
		if n := len(r.slots[0]); n != 0 {
			t.Errorf("%d places are taken by those that wait", n)
		}
		time.Sleep(time.Hour)
		if n := most.Load(); n != 1 {
			t.Errorf("after the wait %d went on at one time", n)
		}

		// Without room until its caller gives up, an operation ends, and takes no
		// place with it.
		go Do(t.Context(), r, "StartService", "", func(ctx context.Context) error { time.Sleep(time.Second); return Idle(ctx, minute) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(Inline(t.Context()), time.Second+time.Millisecond)
		defer cancel()
		err := Do(ctx, r, "StartService", "", func(ctx context.Context) error {
			return Idle(ctx, func() error {
				go Do(t.Context(), r, "Rescan", "", func(context.Context) error { return minute() })
				synctest.Wait()
				return nil
			})
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
		if n := len(r.slots[0]); n != 0 {
			t.Errorf("%d places are kept", n)
		}

		want := errors.New("wanted")
		if err := Do(t.Context(), r, "StartService", "", func(ctx context.Context) error { return Idle(ctx, func() error { return want }) }); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
		if err := Idle(t.Context(), func() error { return want }); !errors.Is(err, want) {
			t.Errorf("outside of an operation: %v", err)
		}
	})
}

// A lock is given back if there is no room for the operation that waited for it.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(1, nil)
		var locks keylock.Locks[string]
		unlock, err := locks.Lock(t.Context(), "server")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go Do(ctx, r, "NewSMBGlobalMapping", "", func(ctx context.Context) error {
			unlock, err := Lock(ctx, &locks, "server")
			if err == nil {
				t.Error("it went on without room")
				unlock()
			}
			return err
		})
		synctest.Wait()
		go Do(t.Context(), r, "Rescan", "", func(context.Context) error { time.Sleep(time.Hour); return nil })
		synctest.Wait()
		unlock()
		time.Sleep(2 * time.Minute)
		again, err := locks.Lock(ctxOfASecond(t), "server")
		if err != nil {
			t.Fatalf("the lock is kept: %v", err)
		}
		again()
		time.Sleep(2 * time.Hour)
	})
}

func ctxOfASecond(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}
