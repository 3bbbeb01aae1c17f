// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation runs the operations on the node. An operation ends for its caller
// when the caller's context ends, its errors say what was done to what, and an observer
// hears how it went. The package also has the ways in which operations wait: for a lock
// ([Locks]), for a state of Windows ([Poll], [Retry]) and for work that they share
// ([Shared], [Flights]). Nobody waits behind work that Windows doesn't answer: see
// [wincalls.Tracker].
package operation

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

// Observer is told of every operation that has ended: its name, such as
// "PartitionDisk", how long it took and its error.
type Observer func(name string, took time.Duration, err error)

// Runner runs operations. The groups of one node share one.
type Runner struct {
	observe Observer
}

// NewRunner returns a runner that tells observe, which may be nil.
func NewRunner(observe Observer) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{observe}
}

type inlineKey struct{}

// Inline returns a context whose operations run on their caller's goroutine: for the
// operations that another one is made of, and for callers that don't give up.
func Inline(ctx context.Context) context.Context {
	return context.WithValue(ctx, inlineKey{}, true)
}

// Get runs f, the operation name on object, and returns its result.
//
// If ctx ends first, Get returns ctx's error at once, with the call to Windows that f waits
// for. Windows can't be made to give up a call, so f goes on in the background until that call
// has ended, and keeps its locks until then. It makes no further calls.
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
	start := time.Now()
	if err := ctx.Err(); err != nil {
		r.observe(name, time.Since(start), err)
		return none, err
	}
	// An operation that is a part of another one has the same tracker: the error of the
	// whole names the calls of its parts.
	inside := ctx
	if wincalls.TrackerOf(ctx) == nil {
		inside, _ = wincalls.WithTracker(ctx)
	}
	call := func() result[T] {
		res := caught(inside, f)
		r.observe(name, time.Since(start), res.err)
		return res
	}

	var res result[T]
	if ctx.Done() == nil || ctx.Value(inlineKey{}) != nil {
		res = call()
	} else {
		done := make(chan result[T], 1)
		go func() {
			growStack(0)
			done <- call()
		}()
		select {
		case res = <-done:
		case <-ctx.Done():
			var ended bool
			if res, ended = windingDown(done, wincalls.TrackerOf(inside)); !ended {
				return none, wincalls.TrackerOf(inside).Late(ctx.Err())
			}
		}
	}
	if res.panicked != nil {
		panic(res.panicked)
	}
	return res.value, res.err
}

// growStack makes room on the stack of a new goroutine for the calls down to Windows. The stack of
// a new goroutine is small, and would be copied several times on the way, which took a quarter of
// the time of PathExists. i is any number below 8 Ki: with it, the compiler keeps the array.
//
//go:noinline
func growStack(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// windDown is how long an operation whose context has ended may take to end by itself, and to
// say what it waited for, unless it waits for Windows.
const windDown = 10 * time.Millisecond

// windingDown returns the result of an operation whose context has ended, if it ends by itself.
func windingDown[T any](done <-chan result[T], t *wincalls.Tracker) (res result[T], ended bool) {
	patience := windDown
	if _, waits := t.Oldest(); waits {
		patience = 0
	}
	select {
	case res = <-done:
		return res, true
	case <-time.After(patience):
		return res, false
	}
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
