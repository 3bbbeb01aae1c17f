// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Errors are the errors that a call may have, one of each class: the device has left,
// somebody else uses it, it is sick for a moment, the node may not touch it, and one that
// nobody has thought of.
var Errors = []win.Errno{
	win.ErrorDeviceNotConnected, win.ErrorSharingViolation, win.ErrorIODevice, win.ErrorAccessDenied, win.Errno(1337),
}

// Attempt is an operation on a node that was made ready for it.
type Attempt struct {
	Sys   *winsim.System
	Run   func(ctx context.Context) (result any, err error)
	State func() any // what it has changed on the node; nil if nothing
	Want  string     // the result and the state, separated by a colon, if no call fails; "" if any are right
}

// ErrUnknown is the error of an attempt whose result says that not all is known.
var ErrUnknown = errors.New("not all is known")

// NoErrorIsDropped tries operations: each on a new node, and then on one where a call to Windows
// fails, once or from then on, or where its caller gives up at that call, for each call that it
// makes. Each time it has an error, or the result and the state that it has without. If it has an
// error, its repetition has that state once no call fails any more.
//
// The first of the calls that are made by the same lines of the tested package fails with each of
// Errors in turn, and the others with one of them. In a sample, the first one fails with one of
// them, and the others don't.
func NoErrorIsDropped(t *testing.T, operations map[string]func(t *testing.T) Attempt) {
	caller, _, _, _ := runtime.Caller(1)
	tested, _, _ := strings.Cut(runtime.FuncForPC(caller).Name(), "_test.")
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			var ways []string
			var without outcome
			synctest.Test(t, func(t *testing.T) {
				a := operations[name](t)
				var mu sync.Mutex // an operation may make several calls at one time
				a.Sys.OnCall(func(winsim.Call) {
					mu.Lock()
					defer mu.Unlock()
					ways = append(ways, wayTo(tested))
				})
				var err error
				without, err = a.run(t.Context())
				Must(t, err)
				if got := fmt.Sprintf("%v: %v", without.Result, without.State); a.Want != "" && got != a.Want {
					t.Errorf("%s, want %s", got, a.Want)
				}
			})
			for at, way := range ways {
				first, one := !seen[way], Errors[at%len(Errors)]
				seen[way] = true
				var mishaps []mishap
				switch {
				case !first && Sampled():
				case !first:
					mishaps = []mishap{{at: at, errno: one, times: 1}}
				case Sampled():
					mishaps = []mishap{{at: at}, {at: at, errno: one, times: 1}, {at: at, errno: one}}
				default:
					mishaps = []mishap{{at: at}}
					for _, errno := range Errors {
						mishaps = append(mishaps, mishap{at: at, errno: errno, times: 1}, mishap{at: at, errno: errno})
					}
				}
				for _, m := range mishaps {
					synctest.Test(t, func(t *testing.T) { operations[name](t).fails(t, m, without) })
				}
			}
		})
	}
}

// mishap is that a call fails so many times, or always if times is 0; or that the caller gives up
// then, if errno is 0.
type mishap struct {
	at    int // index of the call
	errno win.Errno
	times int
}

// outcome is what an operation has done.
type outcome struct{ Result, State any }

func (a Attempt) run(ctx context.Context) (o outcome, err error) {
	o.Result, err = a.Run(operation.Inline(ctx))
	synctest.Wait() // for what a caller who gave up has begun
	a.Sys.OnCall(nil)
	a.Sys.ResetRules()
	if a.State != nil {
		o.State = a.State()
	}
	return o, err
}

// fails tries an operation of which a call fails, or whose caller gives up then.
func (a Attempt) fails(t *testing.T, m mishap, without outcome) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	calls, where := 0, ""
	a.Sys.OnCall(func(c winsim.Call) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls-1 != m.at {
			return
		}
		where = fmt.Sprintf("%+v of %s of %q", m, c.Name, c.Object)
		if m.errno == 0 {
			cancel()
		} else {
			Must(t, a.Sys.Fail(winsim.Match{Call: c.Name, Object: c.Object, Count: m.times}, m.errno))
		}
	})
	got, err := a.run(ctx)
	switch {
	case err == nil:
		if diff := cmp.Diff(without, got); diff != "" {
			t.Errorf("%s, and the operation has no error (-want +got):\n%s", where, diff)
		}
		return
	case errors.Is(err, ErrUnknown): // which is no error of a call
	case m.times == 0 && m.errno.Gone() && csiproxy.KindOf(err) == csiproxy.ErrNotFound: // what is always gone isn't there
	// A disk that refuses to say what it is, and had said it, is taken for another one.
	case m.errno == 0 && !errors.Is(err, context.Canceled),
		m.errno != 0 && m.times == 0 && !strings.Contains(err.Error(), m.errno.Error()) &&
			!strings.Contains(err.Error(), "was changed by somebody else"):
		t.Errorf("%s, and the operation has the error %v", where, err)
	}
	if got, err = a.run(t.Context()); err != nil {
		t.Errorf("%s, and the operation, when repeated, has %v", where, err)
	} else if diff := cmp.Diff(without.State, got.State); diff != "" {
		t.Errorf("%s, and the operation is repeated (-want +got):\n%s", where, diff)
	}
}

// wayTo returns the lines of a package by which the caller was called.
func wayTo(pkg string) (way string) {
	var pcs [100]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, pkg+".") {
			way += fmt.Sprint(f.File, f.Line)
		}
	}
	return way
}
