// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// NextRun lets concurrent callers share the runs of a function. For each key, at most one run is
// under way. A caller that comes during a run gets the result of the next run, together with all
// other waiting callers: the current run may have read its answer before the caller changed
// something. Calls for objects of different owners (see AskSome) share no runs. The zero value is ready.
type NextRun[K comparable, T any] struct {
	// Timeout is how long a run may take, from its beginning, until its waiting callers get an
	// error. A caller that finds a run past the timeout fails at once. Default: none.
	Timeout time.Duration
	// Room limits the runs of all keys: at most as many are under way as the channel has room for. Others
	// wait, and never begin if all their callers have given up. Default: no limit.
	Room chan struct{}

	shared sharedRuns
}

// sharedRuns is NextRun without type parameters: the program contains the code only once.
type sharedRuns struct {
	mu   sync.Mutex
	runs map[any]*sharedRun // under way, or waiting for room
}

// sharedRun is one run. Several callers share a run, and the end of one caller's context leaves the
// run alone. The run's own context ends after sharedRunTimeout.
type sharedRun struct {
	begun   time.Time
	tracker *Tracker
	cancel  func()
	ended   chan struct{}

	callers    int  // who wait for the run; guarded by sharedRuns.mu
	isUnderWay bool // the run has room; guarded by sharedRuns.mu

	outcome Outcome[any] // set before ended is closed
}

const sharedRunTimeout = 2 * time.Minute

var errTimeout = csiproxy.Errorf(csiproxy.ErrUnavailable, "it takes too long; try again later")

// Do returns the result of a run that begins after the call of Do, by any caller. Do first waits
// for the end of a run already under way. If ctx ends first, Do returns ctx's error; the text names
// the Windows call delaying the run. If a run takes longer than the timeout, the error is
// csiproxy.ErrUnavailable.
func (n *NextRun[K, T]) Do(ctx context.Context, key K, f func(context.Context) (T, error)) (T, error) {
	value, err := n.shared.do(ctx, n.Timeout, n.Room, key, func(ctx context.Context) (any, error) { return f(ctx) })
	result, _ := value.(T) // nil if no run has ended
	return result, err
}

func (s *sharedRuns) do(ctx context.Context, timeout time.Duration, room chan struct{}, key any,
	f func(context.Context) (any, error)) (any, error) {
	key = [2]any{key, ctx.Value(ownerKey{})} // the run has the owner's limits on calls: see AskSome
	s.mu.Lock()
	before := s.runs[key]
	s.mu.Unlock()
	if before != nil {
		if err := before.wait(ctx, timeout); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	run := s.runs[key]
	if run == nil {
		run = s.begin(ctx, room, key, f)
	}
	run.callers++
	s.mu.Unlock()
	if err := run.wait(ctx, timeout); err != nil {
		s.giveUp(key, run)
		return nil, err
	}
	return run.outcome.Get()
}

// begin begins a run. If f panics, so does Do of each caller.
func (s *sharedRuns) begin(ctx context.Context, room chan struct{}, key any, f func(context.Context) (any, error)) *sharedRun {
	caller := TrackerOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedRunTimeout)
	ctx, tracker := WithTracker(ctx)
	if caller != nil {
		tracker.operation = caller.operation
	}
	run := &sharedRun{begun: time.Now(), tracker: tracker, cancel: cancel, ended: make(chan struct{})}
	if s.runs == nil {
		s.runs = make(map[any]*sharedRun)
	}
	s.runs[key] = run
	go func() {
		defer cancel()
		run.outcome = Catch(func() (any, error) {
			if room != nil {
				select {
				case room <- struct{}{}:
					defer func() { <-room }()
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			s.mu.Lock()
			run.isUnderWay = true
			s.mu.Unlock()
			return f(ctx)
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(key, run)
		close(run.ended)
	}()
	return run
}

// giveUp ends the wait of a caller for a run. A run without callers that still waits for room ends.
func (s *sharedRuns) giveUp(key any, run *sharedRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.callers--
	if run.callers == 0 && !run.isUnderWay {
		s.remove(key, run)
		run.cancel()
	}
}

// remove makes later callers begin another run. The caller holds s.mu.
func (s *sharedRuns) remove(key any, run *sharedRun) {
	if s.runs[key] == run {
		delete(s.runs, key)
	}
}

// wait waits until the run or ctx ends, or until the run has taken timeout, if timeout isn't 0. It
// returns nil if the run has ended, else ctx's error, or errTimeout.
func (run *sharedRun) wait(ctx context.Context, timeout time.Duration) error {
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
		return run.tracker.late(ctx, context.Cause(ctx))
	}
}
