// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation is the common base of all operations on the node: how operations call Windows,
// and how they wait.
//
// [Observer.End] reports the end of each operation and names the operation in its error. [Run]
// returns to its caller when the context ends, even if Windows hangs. Operations wait for a lock
// with [Locks], for a state of Windows with [Poll] or [Retry], and for shared work with [NextRun].
//
// [Windows] makes the calls to Windows. A call to Windows cannot be cancelled. Until Windows
// answers, the call keeps an operating system thread. Meanwhile a CSI driver without an answer
// repeats its request. The type Windows limits the number of calls under way, and a hung call holds
// up only calls on the same object:
//
//   - A call is overdue when it takes longer than most calls of its name. Until Windows answers,
//     the same call on the same object is refused with csiproxy.ErrUnavailable. The error names the
//     hung call and its beginning. Formatting and repairing are exceptions, since both may take
//     long: the next format or repair of the volume waits instead. Another exception is
//     [RepeatHanging]: once a repeated call is answered, the hung call refuses no calls.
//   - Each object has at most four calls under way. Further calls wait until their contexts end, and
//     calls beyond 8,192 waiting ones are refused. An object is a disk, a volume, an SMB server, or
//     one of the few other subjects of calls, such as a path or a service.
//   - At most 512 calls are under way. From half of the limit on, each object is limited to one
//     call, and hundreds of hung objects leave room for others. Calls that may wait for an SMB
//     server can use half of the limit: the other half is for disks and files.
//     Queries of many objects ([AskSome]) can use a quarter for the objects of each other owner.
package operation

import (
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Observer is called after each operation with its name, such as "PartitionDisk", its duration and
// its error. All groups of operations of a node share an Observer, which may be nil.
type Observer func(name string, took time.Duration, err error)

// End ends the operation name on object, begun at begun. It calls the observer, and adds the
// operation and the object to a non-nil *err. Defer End before anything else in an operation:
//
//	defer observer.End("SetDiskState", "disk 3", time.Now(), &err)
func (o Observer) End(name, object string, begun time.Time, err *error) {
	if o == nil {
		o = func(string, time.Duration, error) {}
	}
	if p := recover(); p != nil {
		o(name, time.Since(begun), csiproxy.ErrInternal)
		panic(p)
	}
	o(name, time.Since(begun), *err)
	if *err != nil {
		*err = &csiproxy.Error{Op: name, Object: object, Err: *err}
	}
}

// Run runs f, the operation name, and returns the result of f, but never much later than ctx ends.
//
// If ctx ends first, Run returns ctx's error; the text names the Windows call delaying f. A call to
// Windows cannot be cancelled. f goes on in the background until the call has ended, makes no
// further calls, and holds its locks until then. Because locks may outlive Run, call Run only from
// the entry points of the library and of the daemon, never from an operation.
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
	// f also sees the end of ctx, and may stop waiting for a call at any moment. Ask for the oldest
	// call only once.
	call, waits := t.Oldest()
	if !waits { // f then ends by itself, and its error names the call
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

// windDown is how long an operation may take to end by itself after the end of its context.
const windDown = 10 * time.Millisecond

// Track runs f, the operation name, and waits until f returns, however long Windows takes.
// Operations that wait for a lock held by f report the name in their errors.
func Track[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (T, error) {
	inside, t := WithTracker(ctx)
	t.operation = name
	return f(inside)
}

// An operation ends some time before its caller's deadline, to leave time for the answer: a
// twentieth of the whole time, within these bounds.
const (
	minAnswerTime = 50 * time.Millisecond // what an answer may take on a busy node
	maxAnswerTime = 500 * time.Millisecond
)

// AnswerInTime returns a context that ends shortly before ctx's deadline, for the entry points of
// the library and of the daemon. The caller then gets an error that says what the operation waited
// for, instead of a bare missed deadline.
func AnswerInTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(max(left/20, minAnswerTime), maxAnswerTime, left/2)))
}
