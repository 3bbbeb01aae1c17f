// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

// sharedTimeout bounds work that several callers may wait for.
const sharedTimeout = 2 * time.Minute

// work is done for several callers. It belongs to none of them: it ignores their
// cancellation, and its own context ends after two minutes.
type work[T any] struct {
	f     func(context.Context) (T, error)
	begun time.Time
	done  chan struct{}

	mu      sync.Mutex
	tracker *wincalls.Tracker // nil before it begins

	// Set before done is closed.
	value    T
	err      error
	panicked any
}

// start does the work. A panic is passed on to those who wait: they know what to do with
// it, while here it would end the process.
func (w *work[T]) start(ctx context.Context) {
	defer close(w.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTimeout)
	defer cancel()
	ctx, tracker := wincalls.WithTracker(ctx)
	w.mu.Lock()
	w.tracker = tracker
	w.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			w.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	w.value, w.err = w.f(ctx)
}

func (w *work[T]) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *work[T]) currentTracker() *wincalls.Tracker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tracker
}

// await returns what the work gave, once it is done.
func (w *work[T]) await(ctx context.Context, patience time.Duration) (T, error) {
	if err := w.wait(ctx, patience); err != nil {
		var none T
		return none, err
	}
	if w.panicked != nil {
		panic(w.panicked)
	}
	return w.value, w.err
}

// Shared lets callers share runs of one function: at most one run is under way, and
// at most one more is awaited by all who came since it began. The zero value is
// ready.
type Shared struct{ runs Flights[struct{}, struct{}] }

// Do returns the result of a run of f, or of the same function of another caller, that
// begins after Do was called. It returns csiproxy.ErrUnavailable while Windows doesn't
// answer the run.
func (s *Shared) Do(ctx context.Context, f func(context.Context) error) error {
	_, err := s.runs.DoFresh(ctx, struct{}{}, untilOverdue,
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// untilOverdue is the patience of those who wait as long as Windows answers.
const untilOverdue = -1

// Flights lets callers that want the same thing of the same object at the same time share
// one answer. Whatever becomes of the callers, there is at most one flight for a key. The
// zero value is ready.
type Flights[K comparable, T any] struct {
	mu      sync.Mutex
	flights map[K]*work[T]
}

// SilentError is what Do returns when a flight takes longer than its caller's patience.
type SilentError struct {
	Since time.Time // when the flight began
}

func (e *SilentError) Error() string { return "no answer since " + e.Since.UTC().Format(time.RFC3339) }

// Unwrap returns context.DeadlineExceeded.
func (e *SilentError) Unwrap() error { return context.DeadlineExceeded }

// Do returns the result of f for key, or of the same function that another caller has under
// way. It returns a *SilentError once that has been under way for longer than patience,
// also if the caller has just come; and ctx's error if ctx ends first. Those who wait for
// the caller are told of the calls of the flight that are overdue.
func (s *Flights[K, T]) Do(ctx context.Context, key K, patience time.Duration,
	f func(context.Context) (T, error)) (T, error) {
	return s.Begin(ctx, key, f)(ctx, patience)
}

// Begin begins what Do does. wait waits for the result, and may be called again with more
// patience.
func (s *Flights[K, T]) Begin(ctx context.Context, key K,
	f func(context.Context) (T, error)) (wait func(ctx context.Context, patience time.Duration) (T, error)) {
	w, begun := s.join(key, f)
	if begun {
		go s.fly(ctx, key, w)
	}
	return w.await
}

// BeginHere is Begin for a caller that does the work on its own goroutine, by calling run: that
// spares a short flight the hand-over to another one. run is nil if another caller has the flight
// under way.
func (s *Flights[K, T]) BeginHere(ctx context.Context, key K, f func(context.Context) (T, error)) (
	run func(), wait func(ctx context.Context, patience time.Duration) (T, error)) {
	w, begun := s.join(key, f)
	if begun {
		run = func() {
			defer wincalls.TrackerOf(ctx).WaitFor(w.currentTracker)()
			s.fly(ctx, key, w)
		}
	}
	return run, w.await
}

// join returns the flight for a key, and whether it is new.
func (s *Flights[K, T]) join(key K, f func(context.Context) (T, error)) (w *work[T], begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.underWay(key); w != nil {
		return w, false
	}
	w = &work[T]{f: f, begun: time.Now(), done: make(chan struct{})}
	if s.flights == nil {
		s.flights = make(map[K]*work[T])
	}
	s.flights[key] = w
	return w, true
}

func (s *Flights[K, T]) fly(ctx context.Context, key K, w *work[T]) {
	growStack(0)
	w.start(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[key] == w { // it may have been forgotten before
		delete(s.flights, key)
	}
}

// DoFresh is Do with an answer of a flight that begins after DoFresh was called, since its
// caller may have changed the object right before. If a flight is under way, the caller waits
// for its end, and shares the next one. Each of the two may take as long as patience.
func (s *Flights[K, T]) DoFresh(ctx context.Context, key K, patience time.Duration,
	f func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	before := s.underWay(key)
	s.mu.Unlock()
	if before != nil {
		if err := before.wait(ctx, patience); err != nil {
			var none T
			return none, err
		}
	}
	return s.Do(ctx, key, patience, f)
}

// underWay returns the flight for a key that hasn't ended: one that has may have seen what
// was before a change. The caller holds the lock.
func (s *Flights[K, T]) underWay(key K) *work[T] {
	if w := s.flights[key]; w != nil && !w.ended() {
		return w
	}
	return nil
}

// wait returns nil when a flight has ended. Its errors are those of [Flights.Do].
func (w *work[T]) wait(ctx context.Context, patience time.Duration) error {
	if w.ended() {
		return nil
	}
	if patience == untilOverdue {
		return awaitWork(ctx, w.done, w.currentTracker)
	}
	defer wincalls.TrackerOf(ctx).WaitFor(w.currentTracker)()
	timer := time.NewTimer(patience - time.Since(w.begun))
	defer timer.Stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return w.currentTracker().Late(ctx.Err())
	case <-timer.C:
		return &SilentError{w.begun}
	}
}

// Forget drops the flights under way whose key which accepts, since they may have seen the
// state before a change: the next caller begins a new one.
func (s *Flights[K, T]) Forget(which func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.flights {
		if which(key) {
			delete(s.flights, key)
		}
	}
}
