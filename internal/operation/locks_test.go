// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

func TestLocksExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[int]
		counts := make([]int, 3)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				unlock, err := locks.Lock(ctx, i%3)
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				counts[i%3]++
				time.Sleep(time.Second) // so that others wait
			})
		}
		wg.Wait()
		for key, n := range counts {
			if n != 40 {
				t.Errorf("key %d was counted %d times, want 40", key, n)
			}
		}
		if took := time.Since(begin); took != 40*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(locks.held) != 0 {
			t.Errorf("%d locks are left behind", len(locks.held))
		}
	})
}

func TestLockEndsWithContext(t *testing.T) {
	var locks Locks[string]
	unlock, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a taken lock with an ended context gave %v", err)
	}
	other, err := locks.Lock(t.Context(), "b")
	if err != nil {
		t.Fatalf("another key: %v", err)
	}
	other()
	unlock()
	again, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// hanging is Windows with a device tree that never answers.
type hanging struct{ win.System }

func (hanging) ReenumerateDevice(context.Context, string) error { time.Sleep(time.Hour); return nil }

// Nobody waits for a lock whose holder Windows doesn't answer.
func TestLockOfWorkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[string]
		sys := wincalls.New(hanging{}, wincalls.Options{})
		go func() {
			ctx, _ := wincalls.WithTracker(t.Context())
			unlock, err := locks.Lock(ctx, "disk 1")
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			sys.ReenumerateDevice(ctx, "")
		}()
		synctest.Wait()
		begin := time.Now()
		patience := wincalls.Patience(win.CallReenumerateDevice)
		for range 3 { // the first waits until the call is overdue, the others learn that at once
			_, err := locks.Lock(t.Context(), "disk 1")
			if !errors.Is(err, csiproxy.ErrUnavailable) ||
				!strings.Contains(err.Error(), "CM_Reenumerate_DevNode on the device tree") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took < patience || took > patience+time.Second {
				t.Errorf("refused after %v", took)
			}
		}
		time.Sleep(time.Hour)
		unlock, err := locks.Lock(t.Context(), "disk 1")
		if err != nil {
			t.Fatalf("once Windows has answered: %v", err)
		}
		unlock()
	})
}

// The calls of an operation that has given the lock back are no reason to refuse others, also
// before the next holder is known.
func TestLockOfWorkThatHangsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[string]
		k, err := locks.enter("disk 1") // the next holder
		if err != nil {
			t.Fatal(err)
		}
		defer locks.leave("disk 1", k)
		sys := wincalls.New(hanging{}, wincalls.Options{})
		ctx, _ := wincalls.WithTracker(t.Context())
		unlock, err := locks.Lock(ctx, "disk 1")
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		<-k.token
		go sys.ReenumerateDevice(ctx, "")
		waiting, cancel := context.WithTimeout(t.Context(), 2*wincalls.Patience(win.CallReenumerateDevice))
		defer cancel()
		if _, err := locks.Lock(waiting, "disk 1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
	})
}

// Those who wait for a lock are bounded.
func TestLockWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[string]
		unlock, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range maxLockWaiters {
			go locks.Lock(ctx, "a")
		}
		synctest.Wait()
		if _, err := locks.Lock(t.Context(), "a"); !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("one more gave %v", err)
		}
		cancel()
		synctest.Wait()
		unlock()
		if len(locks.held) != 0 {
			t.Errorf("%d locks are left behind", len(locks.held))
		}
	})
}
