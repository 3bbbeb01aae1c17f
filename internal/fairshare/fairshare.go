// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairshare divides what a node has among those who use it at the same time: calls
// and bytes of requests, threads for calls to Windows, turns on the processors. One client
// that takes what it can get leaves room for hundreds of others.
package fairshare

// few is how many pieces a client may have when half of all is taken: enough for a driver
// to go on with.
const few = 8

// Room returns how much a client may have in all, when so much of everything is taken. It
// is given out in pieces of unit. Half of everything is for whoever comes first, as far as
// most allows. When that is taken, a client may have a few pieces, and of the last quarter
// one.
func Room(taken, all, most, unit int) int {
	switch free := all - taken; {
	case 2*free > all:
		return most
	case 4*free > all:
		return min(few*unit, most)
	case free >= unit:
		return min(unit, most)
	}
	return 0
}
