// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// sharedTimeout bounds a run that several callers may wait for.
const sharedTimeout = 2 * time.Minute

// Shared lets callers share runs of one function: at most one run is under way, and
// at most one more is awaited by all who came since it began. The zero value is
// ready.
type Shared struct {
	mu      sync.Mutex
	running bool
	waiting *sharedRun // the next run; nil if nobody waits for one
}

type sharedRun struct {
	f    func() error
	done chan struct{}
	// Set before done is closed.
	err      error
	panicked any
}

// Do returns the result of a run of f, or of a like function of another caller, that
// begins after Do was called. A run is no caller's, since others may wait for it too:
// its context doesn't end with a caller's, but after two minutes, and to Idle it isn't
// part of an operation. Callers wait in Idle.
func (s *Shared) Do(ctx context.Context, f func(context.Context) error) error {
	s.mu.Lock()
	r := s.waiting
	if r == nil {
		r = &sharedRun{done: make(chan struct{}), f: func() error {
			ctx := context.WithValue(context.WithoutCancel(ctx), placeKey{}, nil)
			ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
			defer cancel()
			return f(ctx)
		}}
		s.waiting = r
		if !s.running {
			s.running = true
			go s.work()
		}
	}
	s.mu.Unlock()
	err := Idle(ctx, func() error {
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return err
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// work makes the runs that somebody waits for, one after the other.
func (s *Shared) work() {
	for {
		s.mu.Lock()
		r := s.waiting
		s.waiting = nil
		s.running = r != nil
		s.mu.Unlock()
		if r == nil {
			return
		}
		r.call()
	}
}

// call runs r.f. A panic is passed on to those who wait: they know what to do with
// it, while here it would end the process.
func (r *sharedRun) call() {
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	r.err = r.f()
}
