// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Errors are the errors that a call may have, one of each class: the device has left,
// somebody else uses it, it is sick for a moment, the node may not touch it, and one that
// nobody has thought of.
var Errors = []win.Errno{
	win.ErrorDeviceNotConnected, win.ErrorSharingViolation, win.ErrorIODevice, win.ErrorAccessDenied, win.Errno(1337),
}

// Attempt is an operation on a node that is made ready for it.
type Attempt struct {
	Sys   *winsim.System
	Run   func(ctx context.Context) (result any, err error)
	State func() any // what it has changed on the node; nil if nothing
}

// NoErrorIsDropped tries an operation on a new node, and then once for each call to Windows that
// it makes and each error that the call may have, and once for a caller who gives up then. Each
// time it has an error, or the result and the state that it has without. If it has one, its
// repetition has that state.
func NoErrorIsDropped(t *testing.T, prepare func(t *testing.T) Attempt) {
	t.Helper()
	var result, state any
	for at, calls := int64(-1), int64(0); at < calls && !t.Failed(); at++ {
		mishaps := append([]win.Errno{0}, Errors...) // 0: the caller gives up
		switch {
		case at < 0:
			mishaps = mishaps[:1]
		case Sampled():
			mishaps = []win.Errno{0, Errors[at%int64(len(Errors))]}
		}
		for _, errno := range mishaps {
			synctest.Test(t, func(t *testing.T) {
				a := prepare(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var made atomic.Int64 // an operation may make several calls at one time
				failed := ""
				a.Sys.OnCall(func(c winsim.Call) {
					if made.Add(1)-1 != at {
						return
					}
					failed = c.Name + " of " + c.Object
					if errno == 0 {
						cancel()
						return
					}
					Must(t, a.Sys.Fail(winsim.Match{Call: c.Name, Object: c.Object, Count: 1}, errno))
				})
				got, err := a.Run(ctx)
				synctest.Wait() // for what a caller who gave up has begun
				calls = max(calls, made.Load())
				a.Sys.OnCall(nil)
				a.Sys.ResetRules()
				now := func() any {
					if a.State == nil {
						return nil
					}
					return a.State()
				}
				if at < 0 {
					Must(t, err)
					result, state = got, now()
					return
				}
				if err == nil {
					if diff := cmp.Diff([]any{result, state}, []any{got, now()}); diff != "" {
						t.Errorf("no error though call %d, %s, has %v (-want +got):\n%s", at, failed, errno, diff)
					}
					return
				}
				if errno == 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("its caller gives up at call %d, %s: %v", at, failed, err)
				}
				if _, err := a.Run(t.Context()); err != nil {
					t.Errorf("repeated after call %d, %s, had %v: %v", at, failed, errno, err)
				} else if diff := cmp.Diff(state, now()); diff != "" {
					t.Errorf("repeated after call %d, %s, had %v (-want +got):\n%s", at, failed, errno, diff)
				}
			})
		}
	}
}
