// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Tracker knows the calls to Windows that one piece of work has under way, so that those
// who wait for the work learn that it waits for Windows.
type Tracker struct {
	mu    sync.Mutex
	calls []*Call
}

type trackerKey struct{}

// WithTracker returns a context whose calls a new tracker knows.
func WithTracker(ctx context.Context) (context.Context, *Tracker) {
	t := new(Tracker)
	return context.WithValue(ctx, trackerKey{}, t), t
}

// TrackerOf returns the tracker of ctx, nil if it has none.
func TrackerOf(ctx context.Context) *Tracker {
	t, _ := ctx.Value(trackerKey{}).(*Tracker)
	return t
}

// Overdue returns a refusal for who waits for the work while one of its calls is
// overdue, else nil. A nil tracker knows of no call.
func (t *Tracker) Overdue() error {
	if t == nil {
		return nil
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if c.Overdue(now) {
			return c.Refusal(now)
		}
	}
	return nil
}

func (t *Tracker) begin(c *Call) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls = append(t.calls, c)
	}
}

func (t *Tracker) end(c *Call) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls = slices.DeleteFunc(t.calls, func(other *Call) bool { return other == c })
	}
}
