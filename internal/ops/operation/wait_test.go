// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestRetry(t *testing.T) {
	for name, test := range map[string]struct {
		errs  []error // of the calls; the last one stays
		calls int
		took  time.Duration
	}{
		"it succeeds at once":         {[]error{nil}, 1, 0},
		"it succeeds in the end":      {[]error{winerr.ErrorBusy, winerr.ErrorBusy, nil}, 3, 2 * time.Second},
		"another error":               {[]error{winerr.ErrorBusy, winerr.ErrorIODevice}, 2, time.Second},
		"it is longer than is waited": {[]error{winerr.ErrorBusy}, 12, 10500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, calls := time.Now(), 0
				busy := []winerr.Errno{winerr.ErrorBusy}
				err := operation.Retry(t.Context(), 10500*time.Millisecond, time.Second, busy, func() error {
					calls++
					return test.errs[min(calls, len(test.errs))-1]
				})
				if want := test.errs[len(test.errs)-1]; err != want {
					t.Errorf("the error is %v, want %v", err, want)
				}
				if took := time.Since(begin); calls != test.calls || took != test.took {
					t.Errorf("%d calls in %v, want %d in %v", calls, took, test.calls, test.took)
				}
			})
		})
	}
}

// Who gives up learns that, and what was in the way.
func TestRetryGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		calls := 0
		err := operation.Retry(ctx, time.Hour, time.Second, nil, func() error {
			calls++
			return winerr.ErrorBusy
		})
		if csiproxy.KindOf(err) != context.DeadlineExceeded || !errors.Is(err, winerr.ErrorBusy) || calls != 2 {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
}

// By default the first looks are frequent, and later ones four a second.
func TestPollIntervals(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		first, longest time.Duration
		looks          int // in a second, the one at its end included
	}{
		{0, 0, 11}, // at 0, 2, 6, 14, 30, 62, 126, 254, 504 and 754 ms
		{90 * ms, 90 * ms, 13},
		{400 * ms, 0, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, looks := time.Now(), 0
			p := operation.Polling{Timeout: time.Second, First: test.first, Longest: test.longest}
			for looks <= 100 && p.Next(t.Context()) {
				looks++
			}
			if took := time.Since(begin); looks != test.looks || took != time.Second {
				t.Errorf("from %v to %v: %d looks in %v", test.first, test.longest, looks, took)
			}
		})
	}
}

// The end of the context ends it, without another look.
func TestPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begin, looks := time.Now(), 0
		for p := (operation.Polling{Timeout: time.Hour}); p.Next(ctx); {
			looks++
		}
		if took := time.Since(begin); looks != 3 || took != 10*time.Millisecond { // at 0, 2 and 6 ms
			t.Errorf("%d looks in %v", looks, took)
		}
	})
}

// After a notice, looks are frequent again: what has arrived may need a moment.
func TestPollAfterWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		wake := make(chan struct{}, 1)
		ready := begin.Add(5*time.Second + 10*time.Millisecond)
		time.AfterFunc(5*time.Second, func() { wake <- struct{}{} })
		looks := 0
		p := operation.Polling{Timeout: time.Hour, First: time.Second, Longest: time.Minute, Wake: wake}
		for time.Now().Before(ready) && p.Next(t.Context()) {
			looks++
		}
		// At 0, 1, 3, 5 and, after the notice, 2, 6 and 14 ms later.
		if took := time.Since(begin); looks != 7 || took != 5*time.Second+14*time.Millisecond {
			t.Errorf("%d looks in %v", looks, took)
		}
	})
}
