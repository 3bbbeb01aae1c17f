// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// WantKind fails the test if err isn't of a class of csiproxy; nil is success.
func WantKind(t testing.TB, err, kind error) {
	t.Helper()
	if csiproxy.KindOf(err) != kind {
		t.Errorf("the error is %v, want %v", err, kind)
	}
}

// Counted returns how often some calls were made since Counted was called.
func Counted(sys *winsim.System, names ...string) func() []int {
	before := sys.Calls()
	return func() []int {
		now, n := sys.Calls(), []int(nil)
		for _, name := range names {
			n = append(n, now[name]-before[name])
		}
		return n
	}
}

// BeforeCalls has f run before each call from now on, with its index: 0, 1, … The
// calls come one after the other.
func BeforeCalls(sys *winsim.System, f func(i int, c winsim.Call)) {
	i := 0
	sys.OnCall(func(c winsim.Call) {
		f(i, c)
		i++
	})
}

// Rehearsal is an operation on a node that was prepared for it.
type Rehearsal struct {
	Sys   *winsim.System
	Run   func(ctx context.Context) error
	Check func(t *testing.T) // what is to hold when Run has succeeded
}

// EachCallEnds rehearses an operation over and over, once for each call to Windows
// that it makes. At this call its caller gives up, or the call fails with the error.
// However the operation takes that, it succeeds when it is repeated, and has done all
// whenever it says so. All of it is in a bubble of synctest.
func EachCallEnds(t *testing.T, failure win.Errno, prepare func(t *testing.T) Rehearsal) {
	t.Helper()
	for how, end := range map[string]func(sys *winsim.System, c winsim.Call, cancel func()) error{
		"given up": func(_ *winsim.System, _ winsim.Call, cancel func()) error { cancel(); return nil },
		"fails": func(sys *winsim.System, c winsim.Call, _ func()) error {
			return sys.Fail(winsim.Match{Call: c.Name, Count: 1}, failure)
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for at, more := 0, true; more; at++ {
					r := prepare(t)
					ctx, cancel := context.WithCancel(operation.Inline(t.Context()))
					calls := 0
					BeforeCalls(r.Sys, func(i int, c winsim.Call) {
						if calls++; i == at {
							Must(t, end(r.Sys, c, cancel))
						}
					})
					first := r.Run(ctx)
					cancel()
					synctest.Wait() // for what it may have begun
					r.Sys.OnCall(nil)
					r.Sys.ResetRules()
					if calls == 0 {
						t.Fatal("it makes no call")
					}
					more = at < calls
					if first == nil { // it may succeed all the same, and then has done all
						r.Check(t)
					}
					if err := r.Run(t.Context()); err != nil {
						t.Fatalf("after call %d: %v", at, err)
					}
					if r.Check(t); t.Failed() {
						t.Fatalf("that was after call %d", at)
					}
				}
			})
		})
	}
}
