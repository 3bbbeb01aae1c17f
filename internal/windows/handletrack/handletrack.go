// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handletrack finds leaked handles, for tests of implementations of the seam. An
// implementation with a Tracker tracks each handle that it opens. At the end, the implementation
// reports all open handles, even handles collected as garbage.
package handletrack

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Tracker knows all open handles. All methods may be called concurrently. Production uses a nil
// Tracker: all methods are then no-ops.
type Tracker struct {
	mu   sync.Mutex
	open []*opened // in the order in which they were opened
}

// opened is an open handle, without a reference to the handle itself: a forgotten handle can still
// be collected.
type opened struct {
	what  string
	stack []uintptr
}

// New returns a Tracker of no handles.
func New() *Tracker { return new(Tracker) }

func nothing() {}

// Track records that the caller opened a handle to what, such as a path. The returned function
// records the closing and may be called more than once.
func (t *Tracker) Track(what string) (closed func()) {
	if t == nil {
		return nothing
	}
	o := &opened{what: what, stack: make([]uintptr, maxStack)}
	o.stack = o.stack[:runtime.Callers(2, o.stack)] // from the caller of Track on
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, o)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if i := slices.Index(t.open, o); i >= 0 {
			t.open = slices.Delete(t.open, i, i+1)
		}
	}
}

// maxStack is how many calls of a stack are kept.
const maxStack = 32

// Err returns an error that lists all open handles, each with the stack of its opening, or nil.
func (t *Tracker) Err() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return nil
	}
	var list strings.Builder
	for _, o := range t.open {
		fmt.Fprintf(&list, "\n%s, opened by", o.what)
		frames := runtime.CallersFrames(o.stack)
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			fmt.Fprintf(&list, "\n\t%s\n\t\t%s:%d", frame.Function, frame.File, frame.Line)
		}
	}
	return fmt.Errorf("handles that were not closed: %d%s", len(t.open), &list)
}
