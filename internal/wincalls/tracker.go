// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"slices"
	"sync"
)

// Tracker knows the calls to Windows that one piece of work has under way, so that those
// who wait for the work learn that it waits for Windows.
type Tracker struct {
	mu    sync.Mutex
	calls []*call
	// waits are the trackers of other work that this one waits for at the moment. Each
	// returns nil while that has not begun. Work never waits for work that waits for it.
	waits []*func() *Tracker
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

// Overdue returns a refusal for who waits for the work while one of its calls, or of the
// work that it waits for, is overdue; else nil. A nil tracker knows of no call.
func (t *Tracker) Overdue() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if c.overdue.Load() {
			return c.refusal()
		}
	}
	for _, other := range t.waits {
		if err := (*other)().Overdue(); err != nil {
			return err
		}
	}
	return nil
}

// WaitFor notes that the work waits for other work, until done is called.
func (t *Tracker) WaitFor(other func() *Tracker) (done func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := &other
	t.waits = append(t.waits, wait)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waits = slices.DeleteFunc(t.waits, func(w *func() *Tracker) bool { return w == wait })
	}
}

func (t *Tracker) begin(c *call) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls = append(t.calls, c)
	}
}

func (t *Tracker) end(c *call) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls = slices.DeleteFunc(t.calls, func(other *call) bool { return other == c })
	}
}
