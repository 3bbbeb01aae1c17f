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
)

// Observer is told of every operation that has ended: its name, such as
// "PartitionDisk", how long it took and its error.
type Observer func(name string, took time.Duration, err error)

// DefaultMaximum bounds the operations under way. Each holds one operating system
// thread while Windows works for it, and Go ends a program with 10,000 threads.
const DefaultMaximum = 256

// Runner runs operations. The groups of one node share one.
type Runner struct {
	slots   chan struct{}
	observe Observer
}

// NewRunner returns a runner of at most maximum operations at one time. observe
// may be nil.
func NewRunner(maximum int, observe Observer) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{slots: make(chan struct{}, maximum), observe: observe}
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
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("waiting for one of %d operations under way to end: %w", cap(r.slots), ctx.Err())
	}

	if ctx.Value(inlineKey{}) != nil {
		defer func() { <-r.slots }()
		start := time.Now()
		v, err := f(ctx)
		r.observe(name, time.Since(start), err)
		return v, err
	}

	// Whoever sets decided first settles whether the result is taken.
	var decided atomic.Bool
	done := make(chan result[T], 1)
	go func() {
		defer func() { <-r.slots }()
		start := time.Now()
		res := caught(ctx, f)
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
