// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Tracker has the calls to Windows that one piece of work has under way, so that those who wait
// for the work can see that it waits for Windows.
type Tracker struct {
	mu    sync.Mutex
	calls []*call
	waits []*wait // for other work, at the moment

	room [2]*call // of calls: most work has one call under way at a time
}

// wait is that work waits for other work. Work never waits for work that waits for it.
type wait struct {
	work     func() *Tracker // returns nil while that has not begun
	optional bool            // see Optional
}

type trackerKey struct{}

// tracked is a context with a tracker.
type tracked struct {
	context.Context
	tracker Tracker
}

func (c *tracked) Value(key any) any {
	if key == (trackerKey{}) {
		return &c.tracker
	}
	return c.Context.Value(key)
}

// WithTracker returns a context whose calls a new tracker knows.
func WithTracker(ctx context.Context) (context.Context, *Tracker) {
	c := &tracked{Context: ctx}
	c.tracker.calls = c.tracker.room[:0]
	return c, &c.tracker
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
		if other.optional {
			continue
		}
		if err := other.work().Overdue(); err != nil {
			return err
		}
	}
	return nil
}

// Late returns err, the error of a context that has ended, with the oldest call.
func (t *Tracker) Late(err error) error {
	if c, ok := t.Oldest(); ok {
		return fmt.Errorf("%v: %w", c, err)
	}
	return err
}

// Oldest returns the call to Windows that the work, or the work that it waits for, has had
// under way for longest.
func (t *Tracker) Oldest() (c Call, ok bool) {
	if t == nil {
		return c, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.calls) > 0 {
		return t.calls[0].Call, true
	}
	for _, other := range t.waits {
		if c, ok = other.work().Oldest(); ok {
			break
		}
	}
	return c, ok
}

// WaitFor notes that the work waits for other work, until done is called.
func (t *Tracker) WaitFor(other func() *Tracker) (done func()) {
	return t.wait(&wait{work: other})
}

// Optional returns a context for a part that the work can go on without, until done is called.
// If Windows doesn't answer that part, those who wait for the work aren't refused.
func Optional(ctx context.Context) (_ context.Context, done func()) {
	whole := TrackerOf(ctx)
	ctx, part := WithTracker(ctx)
	return ctx, whole.wait(&wait{func() *Tracker { return part }, true})
}

func (t *Tracker) wait(w *wait) (done func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = append(t.waits, w)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waits = slices.DeleteFunc(t.waits, func(other *wait) bool { return other == w })
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
