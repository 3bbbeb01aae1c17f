// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Tracker knows the Windows calls that delay an operation, or a run shared by several. A caller
// that stops waiting for the operation names the oldest call in its error.
type Tracker struct {
	operation string // the name, for errors of operations that wait for its locks; set before the operation begins

	mu    sync.Mutex
	calls []*call    // under way, oldest first
	waits []*Tracker // of the operations and runs that delay the operation; never in a circle
}

type trackerKey struct{}

// WithTracker returns a new tracker, and a context for the calls to track.
func WithTracker(ctx context.Context) (context.Context, *Tracker) {
	t := new(Tracker)
	return context.WithValue(ctx, trackerKey{}, t), t
}

// TrackerOf returns the tracker of ctx, or nil.
func TrackerOf(ctx context.Context) *Tracker {
	t, _ := ctx.Value(trackerKey{}).(*Tracker)
	return t
}

// late returns err, the reason for the end of the caller's context ctx, with the oldest call in the
// text.
func (t *Tracker) late(ctx context.Context, err error) error {
	if c, ok := t.Oldest(); ok {
		return fmt.Errorf("%v: %w", c.forCaller(isForDriver(ctx)), err)
	}
	return err
}

// Oldest returns the oldest Windows call under way in the operation, or in the operations that
// delay it. A nil tracker has none.
func (t *Tracker) Oldest() (oldest Call, ok bool) {
	if t == nil {
		return oldest, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.calls) > 0 {
		oldest, ok = t.calls[0].Call, true
	}
	for _, other := range t.waits {
		c, waits := other.Oldest()
		if !waits {
			continue
		}
		if !ok || c.Since.Before(oldest.Since) {
			oldest, ok = c, true
		}
	}
	return oldest, ok
}

// WaitFor records that t's operation waits for other's, until done is called.
func (t *Tracker) WaitFor(other *Tracker) (done func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = append(t.waits, other)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		i := slices.Index(t.waits, other)
		t.waits = slices.Delete(t.waits, i, i+1)
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
