// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guard wraps a system so that no call to it outlives the patience of
// its caller: a caller whose context ends gets its error at once, also while
// Windows keeps the call. The number of calls under way is bounded, since each
// holds an operating system thread, and every call is reported to an observer.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// DefaultMaxCalls bounds the calls under way at one time. Go ends a program with
// 10,000 threads; a node has a few hundred volumes at most.
const DefaultMaxCalls = 256

// Observer is told of every call when Windows has answered it: the name of the
// Win32 function or control code, how long it took and its error.
type Observer func(call string, took time.Duration, err error)

// limiter runs calls.
type limiter struct {
	slots   chan struct{}
	observe Observer
}

func newLimiter(maxCalls int, observe Observer) *limiter {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &limiter{slots: make(chan struct{}, maxCalls), observe: observe}
}

// result is what a call gave, or the value with which it panicked.
type result[T any] struct {
	value    T
	err      error
	panicked any
}

// do runs f and returns its result, or ctx's error if ctx ends first. In that
// case f goes on, and abandoned gets its result when it has one. A context that
// can't end needs no extra goroutine.
func do[T any](ctx context.Context, l *limiter, call string, f func() (T, error), abandoned func(T, error)) (T, error) {
	var none T
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return none, &csiproxy.Error{Op: call, Detail: "waiting for earlier calls to Windows", Err: ctx.Err()}
	}
	if err := ctx.Err(); err != nil {
		<-l.slots
		return none, err
	}
	if ctx.Done() == nil {
		defer func() { <-l.slots }()
		return observed(l, call, f)
	}

	// Whoever sets decided first settles where the result goes.
	var decided atomic.Bool
	done := make(chan result[T], 1)
	go func() {
		defer func() { <-l.slots }()
		r := caught(func() (T, error) { return observed(l, call, f) })
		if decided.CompareAndSwap(false, true) {
			done <- r
		} else {
			abandoned(r.value, r.err)
		}
	}()
	var r result[T]
	select {
	case r = <-done:
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return none, ctx.Err()
		}
		r = <-done
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.value, r.err
}

// caught turns a panic of f into a value: it belongs to the caller's goroutine,
// which knows what to do with it.
func caught[T any](f func() (T, error)) (r result[T]) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			r.err = errors.New("the call panicked")
		}
	}()
	r.value, r.err = f()
	return r
}

func observed[T any](l *limiter, call string, f func() (T, error)) (T, error) {
	start := time.Now()
	v, err := f()
	l.observe(call, time.Since(start), err)
	return v, err
}
