// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Singleflight lets concurrent callers share the runs of a function. For each key, at most one run is
// under way. Callers that come during a run share the next one, not this one, since it may have read
// its answer before they came. The zero value is ready.
type Singleflight[K comparable, T any] struct {
	// Timeout bounds how long a caller waits for its run, and before that how long the run under way
	// may last. A caller that finds it already running for longer fails at once. Default: none.
	Timeout time.Duration

	mu   sync.Mutex
	runs map[K]*flight[T] // under way
}

// flight is one run. Since several callers share it, the end of a caller's context doesn't end it.
// Its own context ends after flightTimeout.
type flight[T any] struct {
	begun   time.Time
	tracker *Tracker
	done    chan struct{}

	outcome Outcome[T] // set before done is closed
}

const flightTimeout = 2 * time.Minute

var errTimeout = csiproxy.Errorf(csiproxy.ErrUnavailable, "it takes too long; try again later")

// Do returns the result of a run that begins after Do was called, by this caller or another one: the
// caller may have changed the object right before. So Do first waits for the end of a run that is
// already under way. If ctx ends first, Do returns ctx's error; its text names the Windows call that
// the run waits for. If the timeout passes first, the error is csiproxy.ErrUnavailable.
func (s *Singleflight[K, T]) Do(ctx context.Context, key K, f func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	before := s.runs[key]
	s.mu.Unlock()
	if s.Timeout > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, before.timeout(s.Timeout), errTimeout)
		defer cancel()
	}
	if before != nil {
		if err := before.wait(ctx); err != nil {
			var none T
			return none, err
		}
	}
	s.mu.Lock()
	run := s.runs[key]
	if run == nil {
		run = s.begin(ctx, key, f)
	}
	s.mu.Unlock()
	if err := run.wait(ctx); err != nil {
		var none T
		return none, err
	}
	return run.outcome.Get()
}

// begin begins a run. If f panics, so does Do of each caller.
func (s *Singleflight[K, T]) begin(ctx context.Context, key K, f func(context.Context) (T, error)) *flight[T] {
	caller := TrackerOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flightTimeout)
	ctx, tracker := WithTracker(ctx)
	if caller != nil {
		tracker.operation = caller.operation
	}
	run := &flight[T]{begun: time.Now(), tracker: tracker, done: make(chan struct{})}
	if s.runs == nil {
		s.runs = make(map[K]*flight[T])
	}
	s.runs[key] = run
	go func() {
		defer cancel()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.runs, key)
			close(run.done)
		}()
		run.outcome = Catch(func() (T, error) { return f(ctx) })
	}()
	return run
}

// timeout returns how long a caller waits in all: for the rest of run, the one under way or nil, and
// for its own run, with ofEach for each of the two.
func (run *flight[T]) timeout(ofEach time.Duration) time.Duration {
	if run == nil {
		return ofEach
	}
	took := time.Since(run.begun)
	if took >= ofEach {
		return 0
	}
	return 2*ofEach - took
}

// wait waits until the run or ctx ends. It returns nil if the run has ended, else ctx's cause.
func (run *flight[T]) wait(ctx context.Context) error {
	defer TrackerOf(ctx).WaitFor(run.tracker)()
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return run.tracker.late(context.Cause(ctx))
	}
}
