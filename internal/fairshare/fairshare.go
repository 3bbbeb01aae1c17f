// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairshare divides what a node has among those who use it at the same time: calls
// and bytes of requests, threads for calls to Windows, turns on the processors. One client
// that takes what it can get leaves room for hundreds of others.
package fairshare

// few is how many pieces a client may have when half of all is taken: enough for a driver
// to go on with.
const few = 8

// Room returns how much one client may have, if so much of all is taken. Until half of all is
// taken, that is most. Then it is a few pieces of the size unit, and one piece when only the
// last quarter is left.
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
