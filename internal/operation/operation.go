// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation runs the operations on the node. None outlives the patience of
// its caller, the number under way is bounded, errors say what was done to what,
// and an observer hears how each went.
package operation

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/keylock"
)

// Observer is told of every operation that has ended: its name, such as
// "PartitionDisk", how long it took and its error.
type Observer func(name string, took time.Duration, err error)

// DefaultMaximum bounds the operations under way. Each holds one operating system
// thread while Windows works for it, and Go ends a program with 10,000 threads.
const DefaultMaximum = 256

// Runner runs operations. The groups of one node share one, or parts of one.
type Runner struct {
	slots   []chan struct{} // an operation takes one of each, in this order
	observe Observer
}

// NewRunner returns a runner of at most maximum operations at one time. observe
// may be nil.
func NewRunner(maximum int, observe Observer) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{slots: []chan struct{}{make(chan struct{}, maximum)}, observe: observe}
}

// Part returns a runner of at most maximum of r's operations at one time: for those
// in which Windows waits for something outside of the node, so that they leave room
// for the others.
func (r *Runner) Part(maximum int) *Runner {
	return &Runner{slots: append([]chan struct{}{make(chan struct{}, maximum)}, r.slots...), observe: r.observe}
}

// place is what an operation under way takes of its runner.
type place struct {
	runner *Runner
	taken  bool
}

type placeKey struct{}

func (p *place) take(ctx context.Context) error {
	for i, slots := range p.runner.slots {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			p.release(i)
			return fmt.Errorf("waiting for one of %d operations under way to end: %w", cap(slots), ctx.Err())
		}
	}
	p.taken = true
	return nil
}

// release gives the first n slots back.
func (p *place) release(n int) {
	p.taken = false
	for _, slots := range p.runner.slots[:n] {
		<-slots
	}
}

func (p *place) leave() {
	if p.taken {
		p.release(len(p.runner.slots))
	}
}

// Idle calls wait, which waits for something else than Windows and keeps no thread,
// such as a lock. Meanwhile the operation that ctx belongs to doesn't count as under
// way. Idle returns wait's error, else ctx's if that ends before there is room for the
// operation again. An operation may not call it from two goroutines at one time.
//
// Whoever waits for a lock whose holder calls Idle must do so in Idle, too: else all
// there is room for may wait for one for which there is none.
func Idle(ctx context.Context, wait func() error) error {
	p, ok := ctx.Value(placeKey{}).(*place)
	if !ok || !p.taken {
		return wait()
	}
	p.leave()
	err := wait()
	if takeErr := p.take(ctx); err == nil {
		err = takeErr
	}
	return err
}

// Lock is l's Lock in Idle.
func Lock[K comparable](ctx context.Context, l *keylock.Locks[K], key K) (unlock func(), err error) {
	locked := false
	err = Idle(ctx, func() error {
		var err error
		unlock, err = l.Lock(ctx, key)
		locked = err == nil
		return err
	})
	if err != nil && locked {
		unlock()
	}
	return unlock, err
}

type inlineKey struct{}

// Inline returns a context whose operations run on their caller's goroutine: for
// a server, which has a goroutine for each call and whose callers, being remote,
// don't wait for it when they have given up.
func Inline(ctx context.Context) context.Context {
	return context.WithValue(ctx, inlineKey{}, true)
}

// Get runs f, the operation name on object, and returns its result.
//
// If ctx ends first, Get returns ctx's error at once. Windows can't be made to give
// up a call, so f goes on in the background until the call that it is in has
// ended: it makes no further ones, and keeps its locks until then.
func Get[T any](ctx context.Context, r *Runner, name, object string, f func(context.Context) (T, error)) (T, error) {
	v, err := run(ctx, r, name, f)
	if err != nil {
		var none T
		return none, &csiproxy.Error{Op: name, Object: object, Err: err}
	}
	return v, nil
}

// Do is Get for an operation without a result.
func Do(ctx context.Context, r *Runner, name, object string, f func(context.Context) error) error {
	_, err := Get(ctx, r, name, object, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// result is what an operation gave, or the value with which it panicked.
type result[T any] struct {
	value    T
	err      error
	panicked any
}

func run[T any](ctx context.Context, r *Runner, name string, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	p := &place{runner: r}
	if err := p.take(ctx); err != nil {
		return none, err
	}
	inside := context.WithValue(ctx, placeKey{}, p)

	if ctx.Value(inlineKey{}) != nil {
		defer p.leave()
		start := time.Now()
		v, err := f(inside)
		r.observe(name, time.Since(start), err)
		return v, err
	}

	// Whoever sets decided first settles whether the result is taken.
	var decided atomic.Bool
	done := make(chan result[T], 1)
	go func() {
		defer p.leave()
		start := time.Now()
		res := caught(inside, f)
		r.observe(name, time.Since(start), res.err)
		if decided.CompareAndSwap(false, true) {
			done <- res
		}
	}()
	var res result[T]
	select {
	case res = <-done:
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return none, ctx.Err()
		}
		res = <-done
	}
	if res.panicked != nil {
		panic(res.panicked)
	}
	return res.value, res.err
}

// caught turns a panic of f into a value: it belongs to the caller's goroutine,
// which knows what to do with it.
func caught[T any](ctx context.Context, f func(context.Context) (T, error)) (r result[T]) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			r.err = csiproxy.ErrInternal
		}
	}()
	r.value, r.err = f(ctx)
	return r
}
