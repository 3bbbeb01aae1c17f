// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fairshare

import "testing"

func TestRoom(t *testing.T) {
	for _, c := range []struct{ taken, all, most, unit, want int }{
		{0, 64, 64, 1, 64}, {31, 64, 64, 1, 64}, // half is for all
		{32, 64, 64, 1, few}, {47, 64, 64, 1, few},
		{48, 64, 64, 1, 1}, {63, 64, 64, 1, 1}, // the last quarter
		{64, 64, 64, 1, 0}, {65, 64, 64, 1, 0},
		{0, 64, 4, 1, 4}, {32, 64, 4, 1, 4}, {48, 64, 4, 1, 1}, // not more than most
		{0, 6400, 6400, 100, 6400}, {3200, 6400, 6400, 100, few * 100}, {6300, 6400, 6400, 100, 100},
		{6301, 6400, 6400, 100, 0},
	} {
		if got := Room(c.taken, c.all, c.most, c.unit); got != c.want {
			t.Errorf("with %d of %d taken, in pieces of %d and at most %d, there is room for %d, want %d", c.taken, c.all,
				c.unit, c.most, got, c.want)
		}
	}
}

// Any client finds room for a piece beside 30 that take all that they can get.
func TestRoomForManyClients(t *testing.T) {
	const all, unit = 4096, 1
	taken := 0
	for range 30 {
		for has := 0; has+unit <= Room(taken, all, all, unit); has += unit {
			taken += unit
		}
	}
	for range all / 8 {
		if Room(taken, all, all, unit) < unit {
			t.Fatalf("with %d of %d taken, a new client has no room", taken, all)
		}
		taken += unit
	}
}
