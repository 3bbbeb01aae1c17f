// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Polling waits for a state without a notification, by a loop "for polling.Next(ctx)". If the loop
// ends by itself, either ctx has ended or Timeout has passed.
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

	interval time.Duration // before the next check; 0 before the first check
	deadline time.Time     // Timeout after the first check
	isOver   bool          // the deadline has passed
}

// soon is the default of Polling.First.
const soon = 2 * time.Millisecond

// Next waits for the time of the next check, and returns true. The first check is at once, and the
// last one after p.Timeout. Then, and when ctx ends, Next returns false. A waiting Next keeps no
// thread and no call to Windows.
func (p *Polling) Next(ctx context.Context) bool {
	if p.interval == 0 {
		p.interval = cmp.Or(p.First, soon)
		p.Longest = cmp.Or(p.Longest, max(p.interval, 250*time.Millisecond))
		return true
	}
	if p.isOver {
		return false
	}
	if p.deadline.IsZero() {
		p.deadline = time.Now().Add(p.Timeout)
	}
	remaining := time.Until(p.deadline)
	select {
	case <-p.Wake:
		p.interval = soon
	case <-p.Ready:
		p.Ready, p.interval = nil, soon
	case <-time.After(min(p.interval, remaining)):
		p.isOver = remaining <= p.interval
		p.interval = min(2*p.interval, p.Longest)
	case <-ctx.Done():
		return false
	}
	return true
}

// Retry calls f every interval while f fails with a transient error, at most for timeout. Without
// numbers in transient, every error is transient. Retry returns f's last error. If ctx ends first,
// Retry returns an error that wraps ctx's and f's errors.
func Retry(ctx context.Context, timeout, interval time.Duration, transient []winerr.Errno, f func() error) error {
	var last error
	polling := Polling{Timeout: timeout, First: interval, Longest: interval}
	for polling.Next(ctx) {
		last = f()
		isTransient := len(transient) == 0 || winerr.IsAny(last, transient...)
		if last == nil || !isTransient {
			return last
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), last)
	}
	return last
}
