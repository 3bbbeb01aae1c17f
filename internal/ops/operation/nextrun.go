// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// NextRun lets concurrent callers share the runs of a function. For each key, at most one run is under
// way. A caller that comes during a run gets the result of the next one, which all who wait for it share:
// the run under way may have read its answer before the caller changed something. The zero value is ready.
type NextRun[K comparable, T any] struct {
	// Timeout is how long a run may take, from its beginning, until those who wait for it get an error.
	// A caller that finds one that has taken longer fails at once. Default: none.
	Timeout time.Duration

	mu   sync.Mutex
	runs map[K]*sharedRun[T] // under way
}

// sharedRun is one run. Since several callers share it, the end of a caller's context doesn't end it.
// Its own context ends after sharedRunTimeout.
type sharedRun[T any] struct {
	begun   time.Time
	tracker *Tracker
	ended   chan struct{}

	outcome Outcome[T] // set before ended is closed
}

const sharedRunTimeout = 2 * time.Minute

var errTimeout = csiproxy.Errorf(csiproxy.ErrUnavailable, "it takes too long; try again later")

// Do returns the result of a run that begins after Do was called, by this caller or another one. So it
// first waits for the end of a run that is already under way. If ctx ends first, Do returns ctx's error;
// its text names the Windows call that the run waits for. If a run takes longer than the timeout, the
// error is csiproxy.ErrUnavailable.
func (n *NextRun[K, T]) Do(ctx context.Context, key K, f func(context.Context) (T, error)) (none T, _ error) {
	n.mu.Lock()
	before := n.runs[key]
	n.mu.Unlock()
	if before != nil {
		if err := before.wait(ctx, n.Timeout); err != nil {
			return none, err
		}
	}
	n.mu.Lock()
	run := n.runs[key]
	if run == nil {
		run = n.begin(ctx, key, f)
	}
	n.mu.Unlock()
	if err := run.wait(ctx, n.Timeout); err != nil {
		return none, err
	}
	return run.outcome.Get()
}

// begin begins a run. If f panics, so does Do of each caller.
func (n *NextRun[K, T]) begin(ctx context.Context, key K, f func(context.Context) (T, error)) *sharedRun[T] {
	caller := TrackerOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedRunTimeout)
	ctx, tracker := WithTracker(ctx)
	if caller != nil {
		tracker.operation = caller.operation
	}
	run := &sharedRun[T]{begun: time.Now(), tracker: tracker, ended: make(chan struct{})}
	if n.runs == nil {
		n.runs = make(map[K]*sharedRun[T])
	}
	n.runs[key] = run
	go func() {
		defer cancel()
		run.outcome = Catch(func() (T, error) { return f(ctx) })
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.runs, key)
		close(run.ended)
	}()
	return run
}

// wait waits until the run or ctx ends, or until the run has taken timeout, if that isn't 0. It returns
// nil if the run has ended, else ctx's error, or errTimeout.
func (run *sharedRun[T]) wait(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel func()
		ctx, cancel = context.WithDeadlineCause(ctx, run.begun.Add(timeout), errTimeout)
		defer cancel()
	}
	defer TrackerOf(ctx).WaitFor(run.tracker)()
	select {
	case <-run.ended:
		return nil
	case <-ctx.Done():
		return run.tracker.late(context.Cause(ctx))
	}
}
