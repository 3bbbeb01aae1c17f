// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Polling configures the wait for a state without a notification.
type Polling struct {
	// Timeout is the maximum wait.
	Timeout time.Duration
	// First is the time between the first two checks. The interval doubles with each further check,
	// up to Longest. Default: 2 ms and 250 ms.
	First, Longest time.Duration
	// A value from Wake, such as when a device has arrived, triggers the next check at once. The
	// interval starts again at 2 ms, since a new device may need a moment. May be nil.
	Wake <-chan struct{}
	// Ready is closed when the awaited state is expected. Closing Ready also triggers the next
	// check at once. May be nil.
	Ready <-chan struct{}
}

// soon is the default of Polling.First.
const soon = 2 * time.Millisecond

// Poll calls check until check returns true, and then returns true. After p.Timeout, Poll returns
// false. It returns early with an error of check, or with ctx's error when ctx ends. Between two
// checks, Poll keeps no thread and no call to Windows.
func Poll(ctx context.Context, p Polling, check func() (bool, error)) (bool, error) {
	if p.First <= 0 {
		p.First = soon
	}
	if p.Longest < p.First {
		p.Longest = max(p.First, 250*time.Millisecond)
	}
	var deadline *time.Timer
	for interval := p.First; ; {
		if done, err := check(); done || err != nil {
			return done, err
		}
		if deadline == nil {
			deadline = time.NewTimer(p.Timeout)
			defer deadline.Stop()
		}
		select {
		case <-p.Wake:
			interval = soon
		case <-p.Ready:
			p.Ready, interval = nil, soon
		case <-time.After(interval):
			interval = min(2*interval, p.Longest)
		case <-deadline.C:
			return check()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// Retry calls f every interval while f fails with a transient error, at most for timeout. Without
// numbers in transient, every error is transient. Retry returns f's last error. If ctx ends first,
// Retry returns an error that wraps ctx's and f's errors.
func Retry(ctx context.Context, timeout, interval time.Duration, transient []winerr.Errno, f func() error) error {
	var last error
	_, err := Poll(ctx, Polling{Timeout: timeout, First: interval, Longest: interval}, func() (bool, error) {
		last = f()
		isTransient := len(transient) == 0 || winerr.IsAny(last, transient...)
		return last == nil || !isTransient, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return last
}
