// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handletrack finds handles that were opened and not closed, for tests of
// implementations of the seam. An implementation that is given a Tracker tracks each
// handle that it opens. At its end it reports the handles that are still open, even
// those that were collected as garbage.
package handletrack

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Tracker knows the handles that are open. Its methods may be called concurrently.
// A nil Tracker does nothing; production uses that.
type Tracker struct {
	mu   sync.Mutex
	open []*opened // in the order in which they were opened
}

// opened is an open handle. It doesn't refer to the handle itself, so that a
// forgotten one can be collected.
type opened struct {
	what  string
	stack []uintptr
}

// New returns a Tracker of no handles.
func New() *Tracker { return new(Tracker) }

func nothing() {}

// Track records that the caller opened a handle to what, such as a path. It returns a
// function that records the closing and may be called more than once.
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

// Err returns an error that lists the handles that are open, each with the stack that
// opened it. If there are none, the error is nil.
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
