// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"time"
)

// Polling says how to wait for a state that nobody reports.
type Polling struct {
	// Timeout is how long to wait at most.
	Timeout time.Duration
	// First is the time between the first two checks. It doubles with each further one, up
	// to Longest. Default: 2 ms and 250 ms.
	First, Longest time.Duration
	// A value from Wake, such as when a device has arrived, brings the next check at once. The
	// interval starts again at 2 ms, since what has arrived may need a moment. May be nil.
	Wake <-chan struct{}
	// Ready is closed when what is awaited should be there, which brings the next check at once, too. May be nil.
	Ready <-chan struct{}
}

// soon is the default of Polling.First.
const soon = 2 * time.Millisecond

// Poll calls check until it returns true, and then returns true. If that takes longer than
// p.Timeout, it returns false. It returns early with an error of check, or with ctx's when ctx
// ends. Between two checks no thread and no call to Windows is kept.
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

// Retry calls f every interval until f succeeds, its error isn't transient, or timeout is
// over. It returns f's last error. If ctx ends first, it returns an error that wraps ctx's
// and f's.
func Retry(ctx context.Context, timeout, interval time.Duration, transient func(error) bool, f func() error) error {
	var last error
	_, err := Poll(ctx, Polling{Timeout: timeout, First: interval, Longest: interval}, func() (bool, error) {
		last = f()
		return last == nil || !transient(last), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return last
}
