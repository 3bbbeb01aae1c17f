// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

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

// BeforeCalls has f run before each call from now on, with its index: 0, 1, … Several
// calls may be made at one time.
func BeforeCalls(sys *winsim.System, f func(i int, c winsim.Call)) {
	var calls atomic.Int64
	sys.OnCall(func(c winsim.Call) { f(int(calls.Add(1)-1), c) })
}

// AtEachCall tries something once for each call to Windows that it makes, on a node and in a bubble of its
// own each time: before has f run right before the call whose turn it is.
func AtEachCall(t *testing.T, try func(t *testing.T, before func(sys *winsim.System, f func(c winsim.Call)))) {
	t.Helper()
	for at, more := int64(0), true; more; at++ {
		var calls atomic.Int64 // several may be made at one time
		var met atomic.Bool
		synctest.Test(t, func(t *testing.T) {
			try(t, func(sys *winsim.System, f func(c winsim.Call)) {
				sys.OnCall(func(c winsim.Call) {
					if calls.Add(1)-1 == at {
						met.Store(true)
						f(c)
					}
				})
			})
		})
		if more = at < calls.Load(); more != met.Load() || calls.Load() == 0 {
			t.Errorf("%d calls were made, and before call %d something happened: %v", calls.Load(), at, met.Load())
		}
		if t.Failed() {
			t.Fatalf("that was before call %d", at)
		}
	}
}

// Controlled is a node whose disks and volumes answer control calls by Answer: the device at path is
// given a call, which do makes, with the answer in out.
type Controlled struct {
	*winsim.System
	Answer func(path string, code win.IoctlCode, out []byte, do func() (int, error)) (int, error)
}

// OpenDevice is that of the node.
func (c Controlled) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := c.System.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	return controlled{d, path, c}, nil
}

type controlled struct {
	win.Device
	path string
	node Controlled
}

func (d controlled) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return d.node.Answer(d.path, code, out, func() (int, error) { return d.Device.Control(ctx, code, in, out) })
}
