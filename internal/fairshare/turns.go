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
	mu        sync.Mutex // guards all below, and what is in processes, connections and turns; held for moments
	running   []*Turn
	waiting   []*Turn
	processes map[any]*process
	given     uint64
	looking   bool // the next look is due

	latest *process  // on whose connection something has come last
	shared time.Time // when something came that wasn't from the same process as before
}

// Turn is the right of a piece of work to run.
type Turn struct {
	of    *Connection
	begin chan struct{} // closed when it may run; nil if it didn't wait
	looks int           // while it runs
}

// process is what a process has.
type process struct {
	users   int    // connections and turns
	running int    // turns that count
	last    uint64 // which turn of all was its last

	waiting int           // turns
	passing int           // connections that were let pass since the last look, and brought no work yet
	look    uint64        // counts looks at passing
	looked  time.Time     // when that was
	stopped []*Connection // that may not pass yet
}

// Connection is one connection of a process.
type Connection struct {
	turns   *Turns
	key     any // of the process
	process *process
	last    uint64        // which turn of all was its last
	passed  uint64        // at which look of the process it was let pass; 0 if its work has come
	pass    chan struct{} // closed when it may pass, while it may not
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
	// crowd is how much work of a process may wait for its turn, for each processor, before its
	// connections are stopped. Beside 300 clients of another process, one of a hundred
	// PathExists of a client waited for 10 calls of theirs with 2, for 40 with 4, for 130 with 8,
	// and for 300 without stops.
	crowd = 2
	// alone is for how long nothing may have come from other processes before a process counts
	// as the only one, whose connections aren't stopped.
	alone = 10 * time.Second
)

// Connect returns a new connection of a process, which is a value that can be compared.
func (t *Turns) Connect(key any) *Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Connection{turns: t, key: key, process: t.use(key)}
}

// use returns what a process has, for one more user.
func (t *Turns) use(key any) *process {
	if t.processes == nil {
		t.processes = make(map[any]*process)
	}
	p := t.processes[key]
	if p == nil {
		p = &process{look: 1}
		t.processes[key] = p
	}
	p.users++
	return p
}

// Close ends a connection. Its work may go on.
func (c *Connection) Close() {
	c.turns.mu.Lock()
	defer c.turns.mu.Unlock()
	c.disuse()
}

// disuse takes back what use did.
func (c *Connection) disuse() {
	if c.process.users--; c.process.users == 0 {
		delete(c.turns.processes, c.key)
	}
}

// Pass returns when what has come on a connection may be looked at, or when closed is closed.
// That is at once, unless much work of its process waits for its turn, or is about to, and there
// are other processes. Then the connections of the process pass some at a time, with pauses. In
// these, Go's runtime sees what has come from the others: for as long as there is a goroutine to
// run, it looks for that only every ten milliseconds.
func (c *Connection) Pass(closed <-chan struct{}) {
	t := c.turns
	t.mu.Lock()
	p := c.process
	now := time.Now()
	if t.latest != nil && p != t.latest {
		t.shared = now
	}
	t.latest = p
	if len(p.stopped) == 0 && now.Sub(p.looked) >= lookInterval {
		p.lookAgain(now)
	}
	if c.passed == p.look {
		p.passing--
	}
	if len(p.stopped) == 0 && (p.room() > 0 || now.Sub(t.shared) >= alone) {
		c.passed = p.look
		p.passing++
		t.mu.Unlock()
		return
	}
	c.passed, c.pass = 0, make(chan struct{})
	p.stopped = append(p.stopped, c)
	t.look()
	t.mu.Unlock()
	select {
	case <-c.pass:
	case <-closed:
		t.mu.Lock()
		defer t.mu.Unlock()
		if i := slices.Index(p.stopped, c); i >= 0 {
			p.stopped = slices.Delete(p.stopped, i, i+1)
		}
	}
}

// room returns how many more connections may pass.
func (p *process) room() int { return crowd*runtime.GOMAXPROCS(0) - p.waiting - p.passing }

// lookAgain forgets the connections that passed before: what they brought wasn't work.
func (p *process) lookAgain(now time.Time) {
	p.look++
	p.passing, p.looked = 0, now
}

// Begin returns when work of a connection may run, or with ctx's error.
func (c *Connection) Begin(ctx context.Context) (*Turn, error) {
	t := c.turns
	t.mu.Lock()
	p := t.use(c.key)
	c.process = p // another one only if the connection has been closed, and nothing was left
	turn := &Turn{of: c}
	if c.passed == p.look {
		p.passing--
	}
	c.passed = 0
	if t.room(turn) && len(t.waiting) == 0 {
		t.give(turn)
		t.mu.Unlock()
		return turn, nil
	}
	turn.begin = make(chan struct{})
	t.waiting = append(t.waiting, turn)
	p.waiting++
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

// End ends a turn, whose work has ended.
func (turn *Turn) End() {
	t := turn.of.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	p := turn.of.process
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		p.waiting--
	}
	if i := slices.Index(t.running, turn); i >= 0 {
		t.running = slices.Delete(t.running, i, i+1)
		p.running--
	}
	turn.of.disuse()
	t.next()
}

func (t *Turns) room(turn *Turn) bool {
	return turn.of.process.running < ofProcess() && len(t.running) < 2*ofProcess()
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
		turn.of.process.waiting--
		t.give(turn)
		close(turn.begin)
	}
}

// before reports whether the turn comes before another one that has waited for longer.
func (turn *Turn) before(other *Turn) bool {
	if a, b := turn.of.process, other.of.process; a != b {
		return a.running < b.running || a.running == b.running && a.last < b.last
	}
	return turn.of.last < other.of.last
}

func (t *Turns) give(turn *Turn) {
	t.given++
	turn.of.process.last, turn.of.last = t.given, t.given
	turn.of.process.running++
	t.running = append(t.running, turn)
}

// look has the turns looked at soon: somebody waits, or is stopped.
func (t *Turns) look() {
	if !t.looking {
		t.looking = true
		time.AfterFunc(lookInterval, t.lookNow)
	}
}

// lookNow takes the turns of those that wait for something else, and lets connections pass.
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
			turn.of.process.running--
		}
		return waits
	})
	t.next()
	stopped := 0
	for _, p := range t.processes {
		if len(p.stopped) == 0 {
			continue
		}
		p.lookAgain(begun)
		n := min(max(p.room(), 0), len(p.stopped))
		if begun.Sub(t.shared) >= alone {
			n = len(p.stopped)
		}
		for _, c := range p.stopped[:n] {
			c.passed = p.look
			close(c.pass)
		}
		p.stopped = slices.Delete(p.stopped, 0, n)
		p.passing += n
		stopped += len(p.stopped)
	}
	t.looking = false
	if len(t.waiting)+stopped > 0 {
		t.look()
	}
}
