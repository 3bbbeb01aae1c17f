// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation has what all operations on the node share: how they call Windows, and how they
// wait.
//
// A [Runner] reports each operation to an observer and names it in its error. [Run] returns to its
// caller when the context ends, even if Windows doesn't answer. Operations wait for a lock by [Locks],
// for a state of Windows by [Poll] or [Retry], and for work that they share by [NextRun].
//
// [Windows] makes the calls to Windows. Windows can't be made to give a call up. Until it answers, the
// call keeps an operating system thread. Meanwhile a CSI driver that gets no answer repeats its
// request. So that a call which is never answered holds up only calls on the same object, Windows
// bounds how many are under way:
//
//   - A call is overdue when it takes longer than most calls of its name. Until it is answered, the
//     same call on the same object is refused with csiproxy.ErrUnavailable. The error says which call
//     has been under way since when. Formatting and repairing are an exception, since they may take
//     long: the next such call on a volume waits instead.
//   - One object has four calls under way at most. The next ones wait until their contexts
//     end. An object is a disk, a volume, an SMB server, or one of the few other things that
//     calls are about, such as a path or a service.
//   - 512 calls may be under way. When half of them are, an object may have only one, so that
//     hundreds of objects that hang leave room for others. Calls that may wait for an SMB
//     server can have half: the other half is for disks and files.
package operation

import (
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Observer is called after each operation with its name, such as
// "PartitionDisk", how long it took and its error.
type Observer func(name string, took time.Duration, err error)

// Runner reports operations to an observer. All groups of operations of a node share one.
type Runner struct {
	observe Observer
}

// NewRunner returns a runner that calls observe, which may be nil.
func NewRunner(observe Observer) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{observe}
}

// Done ends the operation name on object, which began at begun. It calls the observer. If *err isn't
// nil, it adds the operation and the object to the error. An operation defers Done first of all:
//
//	defer runner.Done("SetDiskState", "disk 3", time.Now(), &err)
func (r *Runner) Done(name, object string, begun time.Time, err *error) {
	if p := recover(); p != nil {
		r.observe(name, time.Since(begun), csiproxy.ErrInternal)
		panic(p)
	}
	r.observe(name, time.Since(begun), *err)
	if *err != nil {
		*err = &csiproxy.Error{Op: name, Object: object, Err: *err}
	}
}

// Run runs f, the operation name, and returns its result, but never much later than ctx ends.
//
// If ctx ends first, Run returns ctx's error; its text names the Windows call that f waits for.
// Windows can't be made to give up a call. So f goes on in the background until that call has
// ended, and holds its locks until then; it makes no further calls. Because locks may outlive Run,
// only the entry points of the library and of the daemon use it, never operations among themselves.
func Run[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil {
		return Track(ctx, name, f)
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, &csiproxy.Error{Op: name, Err: err}
	}
	inside, t := WithTracker(ctx)
	t.operation = name
	defer TrackerOf(ctx).WaitFor(t)()
	done := make(chan Outcome[T], 1)
	go func() { done <- Catch(func() (T, error) { return f(inside) }) }()
	select {
	case outcome := <-done:
		return outcome.Get()
	case <-ctx.Done():
	}
	// f sees the end of ctx, too, and may stop waiting for a call at any moment: so it is asked once.
	call, waits := t.Oldest()
	if !waits { // then f ends by itself, and says what it waited for
		select {
		case outcome := <-done:
			return outcome.Get()
		case <-time.After(windDown):
			call, waits = t.Oldest()
		}
	}
	err := ctx.Err()
	if waits {
		err = fmt.Errorf("%v: %w", call, err)
	}
	return none, &csiproxy.Error{Op: name, Err: err}
}

// windDown is how long an operation whose context has ended may take to end by itself.
const windDown = 10 * time.Millisecond

// Track runs f, the operation name, and waits until it returns, however long Windows takes. The
// errors of those who wait for a lock that f holds have its name.
func Track[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (T, error) {
	inside, t := WithTracker(ctx)
	t.operation = name
	return f(inside)
}
