// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Turns lets the work of many processes run so that each gets its share of the processors. A
// process may have as many pieces of work running as half of the processors, and all processes
// twice that; further ones wait for their turn. The next turn is that of the process with the
// least work running, of equal ones of that whose turn was longest ago; and within a process
// that of the connection whose turn was longest ago.
//
// Work that waits, for Windows or for anything else, needs no processor, and loses its turn.
// Nobody reports that it waits. But if the processors are idle at a look, the work that has had
// its turn since the look before must be waiting. The zero value is ready.
type Turns struct {
	mu          sync.Mutex // guards all below, and what is in turns; held for moments
	running     []*Turn
	waiting     []*Turn
	processes   map[any]*turnsOf
	connections map[any]*turnsOf
	given       uint64
	looking     bool // the next look is due
}

// Turn is the right of a piece of work to run.
type Turn struct {
	turns               *Turns
	process, connection *turnsOf
	processKey, connKey any
	begin               chan struct{} // closed when it may run; nil if it didn't wait
	looks               int           // while it runs
}

// turnsOf is what a process or a connection has.
type turnsOf struct {
	turns   int    // running or waiting, or waiting for something else
	running int    // those that count
	last    uint64 // which turn of all was its last
}

const (
	// lookInterval is the time between two looks while somebody waits.
	lookInterval = time.Millisecond
	// busy is how long a goroutine that could run waits for a processor when they are busy.
	// When they aren't, it takes some microseconds.
	busy = 200 * time.Microsecond
	// maxLooks is after how many looks work has no turn any more, however busy the
	// processors are.
	maxLooks = 100
)

// Begin returns when work of a connection of a process may run, or with ctx's error. Both
// are values that can be compared.
func (t *Turns) Begin(ctx context.Context, process, connection any) (*Turn, error) {
	t.mu.Lock()
	turn := &Turn{turns: t, processKey: process, connKey: connection}
	turn.process, turn.connection = of(&t.processes, process), of(&t.connections, connection)
	if t.room(turn) && len(t.waiting) == 0 {
		t.give(turn)
		t.mu.Unlock()
		return turn, nil
	}
	turn.begin = make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.next()
	t.look()
	t.mu.Unlock()
	select {
	case <-turn.begin:
		return turn, nil
	case <-ctx.Done():
		turn.End()
		return nil, ctx.Err()
	}
}

// of returns what a process or connection has, for one more turn.
func of(all *map[any]*turnsOf, key any) *turnsOf {
	if *all == nil {
		*all = make(map[any]*turnsOf)
	}
	o := (*all)[key]
	if o == nil {
		o = new(turnsOf)
		(*all)[key] = o
	}
	o.turns++
	return o
}

// End ends a turn, whose work has ended.
func (turn *Turn) End() {
	t := turn.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	if i := slices.Index(t.running, turn); i >= 0 {
		t.running = slices.Delete(t.running, i, i+1)
		turn.process.running--
	}
	if turn.process.turns--; turn.process.turns == 0 {
		delete(t.processes, turn.processKey)
	}
	if turn.connection.turns--; turn.connection.turns == 0 {
		delete(t.connections, turn.connKey)
	}
	t.next()
}

func (t *Turns) room(turn *Turn) bool {
	return turn.process.running < ofProcess() && len(t.running) < 2*ofProcess()
}

// ofProcess returns how many turns a process may have at one time: so that half of the
// processors are free for others.
func ofProcess() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// next gives as many turns to those that wait as there is room for.
func (t *Turns) next() {
	for {
		next := -1
		for i, turn := range t.waiting {
			if t.room(turn) && (next < 0 || turn.before(t.waiting[next])) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		turn := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.give(turn)
		close(turn.begin)
	}
}

// before reports whether the turn comes before another one that has waited for longer.
func (turn *Turn) before(other *Turn) bool {
	if a, b := turn.process, other.process; a != b {
		return a.running < b.running || a.running == b.running && a.last < b.last
	}
	return turn.connection.last < other.connection.last
}

func (t *Turns) give(turn *Turn) {
	t.given++
	turn.process.last, turn.connection.last = t.given, t.given
	turn.process.running++
	t.running = append(t.running, turn)
}

// look has the turns looked at soon, if somebody waits.
func (t *Turns) look() {
	if len(t.waiting) > 0 && !t.looking {
		t.looking = true
		time.AfterFunc(lookInterval, t.lookNow)
	}
}

// lookNow takes the turns of those that wait for something else.
func (t *Turns) lookNow() {
	begun := time.Now()
	runtime.Gosched() // lets all others run first that could
	idle := time.Since(begun) < busy
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(turn *Turn) bool {
		turn.looks++
		waits := idle && turn.looks > 1 || turn.looks > maxLooks
		if waits {
			turn.process.running--
		}
		return waits
	})
	t.next()
	t.looking = false
	t.look()
}
