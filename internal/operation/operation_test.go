// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

type seen struct {
	name string
	took time.Duration
	err  error
}

func TestResultAndObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []seen
		r := NewRunner(func(name string, took time.Duration, err error) { all = append(all, seen{name, took, err}) })
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

// A call to Windows that hangs must not hang its caller.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		r := NewRunner(func(string, time.Duration, error) { ended.Add(1) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Do(ctx, r, "MountVolume", "volume x", func(context.Context) error { time.Sleep(time.Hour); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || ended.Load() != 0 {
			t.Fatalf("the caller got %v; %d have ended", err, ended.Load())
		}
		time.Sleep(time.Hour)
		if n := ended.Load(); n != 1 {
			t.Errorf("%d have ended, want the abandoned one", n)
		}
	})
}

func TestInline(t *testing.T) {
	heard := 0
	r := NewRunner(func(string, time.Duration, error) { heard++ })
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
	var heard error
	r := NewRunner(func(_ string, _ time.Duration, err error) { heard = err })
	err := Do(ctx, r, "Rescan", "", func(context.Context) error { t.Error("it ran"); return nil })
	if !errors.Is(err, context.Canceled) || !errors.Is(heard, context.Canceled) {
		t.Errorf("got %v; the observer heard %v", err, heard)
	}
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		r := NewRunner(func(_ string, _ time.Duration, err error) {
			if errors.Is(err, csiproxy.ErrInternal) {
				heard++
			}
		})
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, "a bug") || !strings.Contains(p, "operation_test.go") {
					t.Errorf("the caller's panic is %q", p)
				}
			}()
			Do(Inline(t.Context()), r, "Rescan", "", func(context.Context) error { panic("a bug") })
		}()
		if heard != 1 {
			t.Errorf("the observer heard of %d panics", heard)
		}
		// One that nobody waits for any more must not end the process.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Do(ctx, r, "Rescan", "", func(context.Context) error { time.Sleep(time.Minute); panic("a bug") })
		time.Sleep(time.Hour)
	})
}

// An operation that ends with its context by itself says what it waited for.
func TestWhatWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Do(ctx, NewRunner(nil), "StageVolume", "", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(windDown - 1)
			return fmt.Errorf("while waiting for a disk: %w", ctx.Err())
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "while waiting for a disk") {
			t.Errorf("got %v", err)
		}
	})
}

// An operation whose context ends while Windows doesn't answer says so at once.
func TestWhatWindowsDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := wincalls.New(hanging{}, wincalls.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := Do(ctx, NewRunner(nil), "Rescan", "",
			func(ctx context.Context) error { return sys.ReenumerateDevice(ctx, "") })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Windows has not answered") ||
			time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Hour)
	})
}
