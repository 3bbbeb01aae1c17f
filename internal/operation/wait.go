// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

// Polling says how to wait for a state that nobody reports.
type Polling struct {
	// Patience is how long to wait at most.
	Patience time.Duration
	// First is the time between the first two looks. It doubles with each further one, up
	// to Longest. Default: 2 ms and 250 ms.
	First, Longest time.Duration
	// Wake brings the next look forward, such as when a device has arrived, and makes looks
	// as frequent as by default again, since what has arrived may need a moment. May be nil.
	Wake <-chan struct{}
}

// soon is the default of Polling.First.
const soon = 2 * time.Millisecond

// Poll calls check until it returns true, and then returns true. If that takes longer than
// p.Patience, it returns false. An error of check ends it, and so does the end of ctx. No
// thread and no call to Windows is under way between two looks.
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
			deadline = time.NewTimer(p.Patience)
			defer deadline.Stop()
		}
		select {
		case <-p.Wake:
			interval = soon
		case <-time.After(interval):
			interval = min(2*interval, p.Longest)
		case <-deadline.C:
			return check()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// Retry calls f, every interval, until it succeeds, gives an error that isn't
// transient, or patience ends, and returns f's last error. If ctx ends first, ctx's
// error comes before f's.
func Retry(ctx context.Context, patience, interval time.Duration, transient func(error) bool, f func() error) error {
	var last error
	_, err := Poll(ctx, Polling{Patience: patience, First: interval, Longest: interval}, func() (bool, error) {
		last = f()
		return last == nil || !transient(last), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return last
}

// lookAtWork is how often those who wait for somebody's work look whether Windows still
// answers it.
const lookAtWork = 500 * time.Millisecond

// awaitWork returns nil when done is closed or has a value. It returns a refusal when a
// call to Windows of the work that it waits for is overdue, and ctx's error, with that call,
// if ctx ends first. work returns the tracker of the work, nil while there is none.
func awaitWork[T any](ctx context.Context, done <-chan T, work func() *wincalls.Tracker) error {
	select {
	case <-done:
		return nil
	default:
	}
	ticker := time.NewTicker(lookAtWork)
	defer ticker.Stop()
	for {
		if err := work().Overdue(); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return work().Late(ctx.Err())
		case <-ticker.C:
		}
	}
}
