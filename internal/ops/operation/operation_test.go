// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

type seen struct {
	name string
	took time.Duration
	err  error
}

// nothing is the result of an operation without one.
type nothing = struct{}

func TestResultAndObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []seen
		r := Observer(func(name string, took time.Duration, err error) { all = append(all, seen{name, took, err}) })
		got, err := Run(t.Context(), "v1's name", func(ctx context.Context) (size int, err error) {
			defer r.End("GetDiskStats", "disk 1", time.Now(), &err)
			if name := TrackerOf(ctx).operation; name != "v1's name" {
				t.Errorf("those who wait for it would learn that it is %q", name)
			}
			time.Sleep(time.Second)
			return 7, nil
		})
		if got != 7 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
		_, err = Track(t.Context(), "Rescan", func(ctx context.Context) (_ nothing, err error) {
			defer r.End("Rescan", "", time.Now(), &err)
			if name := TrackerOf(ctx).operation; name != "Rescan" {
				t.Errorf("those who wait for it would learn that it is %q", name)
			}
			return nothing{}, winerr.ErrorAccessDenied
		})
		if !errors.Is(err, csiproxy.ErrPermissionDenied) || !strings.HasPrefix(err.Error(), "Rescan: ") {
			t.Errorf("got %v", err)
		}
		want := []seen{{"GetDiskStats", time.Second, nil}, {"Rescan", 0, winerr.ErrorAccessDenied}}
		if len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
			t.Errorf("observed %v, want %v", all, want)
		}
	})
}

// A call to Windows that hangs must not hang its caller.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Run(ctx, "MountVolume", func(context.Context) (nothing, error) {
			time.Sleep(time.Hour)
			ended.Add(1)
			return nothing{}, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "MountVolume: ") ||
			ended.Load() != 0 {
			t.Fatalf("the caller got %v; %d have ended", err, ended.Load())
		}
		time.Sleep(time.Hour)
		if n := ended.Load(); n != 1 {
			t.Errorf("%d have ended, want the abandoned one", n)
		}
	})
}

// Who waits for the result gets it, also when the context has ended.
func TestTrack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got, err := Track(ctx, "GetDiskStats", func(context.Context) (int, error) {
		cancel()
		return 7, nil
	})
	if got != 7 || err != nil {
		t.Errorf("got %d, %v: the caller didn't wait", got, err)
	}
}

func TestNothingBeginsWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, "Rescan", func(context.Context) (_ nothing, _ error) {
		t.Error("it ran")
		return
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard atomic.Int32
		r := Observer(func(_ string, _ time.Duration, err error) {
			if errors.Is(err, csiproxy.ErrInternal) {
				heard.Add(1)
			}
		})
		rescan := func(after time.Duration) func(context.Context) (nothing, error) {
			return func(context.Context) (_ nothing, err error) {
				defer r.End("Rescan", "", time.Now(), &err)
				time.Sleep(after)
				panic("a bug")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{ctx, context.Background()} { // on another goroutine, and on its own
			func() {
				defer func() {
					p := fmt.Sprint(recover())
					if ctx.Done() == nil {
						p += string(debug.Stack())
					}
					if !strings.HasPrefix(p, "a bug") || !strings.Contains(p, "operation.TestPanic.func1.2.1") {
						t.Errorf("the caller's panic is %q", p)
					}
				}()
				_, _ = Run(ctx, "Rescan", rescan(0))
			}()
		}
		if heard.Load() != 2 {
			t.Errorf("the observer heard of %d panics", heard.Load())
		}
		// One that nobody waits for any more must not end the process.
		_, _ = Run(ctx, "Rescan", rescan(time.Minute))
		time.Sleep(time.Hour)
		if heard.Load() != 3 {
			t.Errorf("the observer heard of %d panics", heard.Load())
		}
	})
}

// An operation that ends with its context by itself says what it waited for.
func TestWhatWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Run(ctx, "StageVolume", func(ctx context.Context) (nothing, error) {
			<-ctx.Done()
			time.Sleep(windDown - 1)
			return nothing{}, fmt.Errorf("while waiting for a disk: %w", ctx.Err())
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "while waiting for a disk") {
			t.Errorf("got %v", err)
		}
	})
}

// An operation whose context ends while Windows doesn't answer says so at once.
func TestWhatWindowsDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := NewWindows(hanging{}, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := Run(ctx, "Rescan", func(ctx context.Context) (nothing, error) {
			return nothing{}, sys.ReenumerateDevice(ctx, "")
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Windows has not answered") ||
			time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Hour)
	})
}
