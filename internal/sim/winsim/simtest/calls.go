// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
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

// BeforeCalls has f run before each call from now on, with its index: 0, 1, … The
// calls come one after the other.
func BeforeCalls(sys *winsim.System, f func(i int, c winsim.Call)) {
	i := 0
	sys.OnCall(func(c winsim.Call) {
		f(i, c)
		i++
	})
}
