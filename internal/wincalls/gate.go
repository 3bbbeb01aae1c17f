// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
)

// Call is a call to Windows that has not been answered yet.
type Call struct {
	Name   string // one of win.CallNames
	Object string
	Since  time.Time

	object object
	logged bool // as overdue; guarded by gate.mu
}

// Overdue reports whether the call takes longer than calls of its name should.
func (c *Call) Overdue(now time.Time) bool { return now.Sub(c.Since) > Patience(c.Name) }

// Refusal is the error for what would have to wait for c.
func (c *Call) Refusal(now time.Time) error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows has not answered %s on %s since %s (for %s); try again later",
		c.Name, quote.Text(c.Object), c.Since.UTC().Format(time.RFC3339), now.Sub(c.Since).Round(time.Second))
}

// gate lets calls begin, in the order in which they came as far as their bounds allow.
type gate struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below; held for moments
	pools    [pools]poolState
	objects  map[key]*objectState
	suspects int  // objects with a suspicion
	watching bool // the watch for overdue calls runs
}

type key struct {
	pool  pool
	name  string
	below bool // the calls on what is below a directory, rather than on itself
}

type poolState struct {
	calls   []*Call // under way, oldest first
	waiting []*waiter
	refused uint64
}

type objectState struct {
	calls   []*Call // under way, oldest first
	waiting int
	suspect time.Time // until when; zero for never
}

type waiter struct {
	call     *Call
	admitted chan struct{}
}

func newGate(log *slog.Logger) *gate {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &gate{log: log, objects: make(map[key]*objectState)}
}

// recheck is how often those that wait look whether a call has become overdue.
const recheck = 100 * time.Millisecond

// enter returns when a call may begin; leave ends it.
func (g *gate) enter(ctx context.Context, name string, o object) (*Call, error) {
	c := &Call{Name: name, Object: o.name, object: o}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &g.pools[o.pool]
	room, refusal := g.room(c)
	if refusal == nil && !room && len(p.waiting) >= maxWaiting {
		refusal = csiproxy.Errorf(csiproxy.ErrResourceExhausted, "%d calls to Windows on %s are waiting already; try again later",
			len(p.waiting), poolNames[o.pool])
	}
	if refusal != nil {
		p.refused++
		return nil, refusal
	}
	if room {
		g.begin(c)
		return c, nil
	}
	return g.wait(ctx, p, c)
}

// wait waits for room. The caller holds the lock, which wait releases meanwhile.
func (g *gate) wait(ctx context.Context, p *poolState, c *Call) (*Call, error) {
	w := &waiter{c, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	g.states(c, func(s *objectState, _ int) { s.waiting++ })
	defer g.states(c, func(s *objectState, _ int) { s.waiting-- })
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	for {
		g.mu.Unlock()
		var err error
		select {
		case <-w.admitted:
			g.mu.Lock()
			return c, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-ticker.C:
		}
		g.mu.Lock()
		i := slices.Index(p.waiting, w)
		if i < 0 { // admitted meanwhile
			if err != nil {
				g.end(c)
				return nil, err
			}
			return c, nil
		}
		if err == nil {
			if _, err = g.room(c); err != nil {
				p.refused++
			}
		}
		if err != nil {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return nil, err
		}
		g.admit(p) // a call may have become overdue, which makes room in the pool
	}
}

// room reports whether c may begin now, or that it is refused.
func (g *gate) room(c *Call) (bool, error) {
	now := time.Now()
	room := true
	var refusal error
	g.states(c, func(s *objectState, bound int) {
		for _, other := range s.calls {
			// The first one that is overdue decides: the calls are in their order.
			if other.Overdue(now) && (len(s.calls) >= bound || other.Name == c.Name && other.Object == c.Object) {
				refusal = other.Refusal(now)
				return
			}
		}
		room = room && len(s.calls) < bound
	})
	if refusal != nil {
		return false, refusal
	}
	p, size := &g.pools[c.object.pool], poolSizes[c.object.pool]
	if len(p.calls) >= maxOverdue*size {
		return false, csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows has not answered %d calls on %s; the oldest is %s on %s since %s",
			len(p.calls), poolNames[c.object.pool], p.calls[0].Name, quote.Text(p.calls[0].Object), p.calls[0].Since.UTC().Format(time.RFC3339))
	}
	if len(p.calls) >= size && g.inTime(p, now, nil) >= size {
		room = false
	}
	if g.suspects > 0 && g.isSuspect(c, now) && len(p.calls) >= maxSuspect &&
		g.inTime(p, now, func(other *Call) bool { return g.isSuspect(other, now) }) >= maxSuspect {
		room = false
	}
	return room, nil
}

// inTime counts the calls of a pool that aren't overdue.
func (g *gate) inTime(p *poolState, now time.Time, which func(*Call) bool) int {
	n := 0
	for _, c := range p.calls {
		if !c.Overdue(now) && (which == nil || which(c)) {
			n++
		}
	}
	return n
}

func (g *gate) isSuspect(c *Call, now time.Time) bool {
	s := g.objects[key{pool: c.object.pool, name: c.object.name}]
	return s != nil && now.Before(s.suspect)
}

// states calls f for the states of the objects that bound c, which it makes if need be,
// and drops those that are of no use any more.
func (g *gate) states(c *Call, f func(s *objectState, bound int)) {
	g.state(key{c.object.pool, c.object.name, false}, maxOfObject, f)
	if c.object.above != "" {
		g.state(key{c.object.pool, c.object.above, true}, maxBelowObject, f)
	}
}

func (g *gate) state(k key, bound int, f func(*objectState, int)) {
	s := g.objects[k]
	known := s != nil
	if !known {
		s = &objectState{}
	}
	f(s, bound)
	switch used := len(s.calls) > 0 || s.waiting > 0 || !s.suspect.IsZero(); {
	case used && !known:
		g.objects[k] = s
	case !used && known:
		delete(g.objects, k)
	}
}

// begin notes that a call begins.
func (g *gate) begin(c *Call) {
	c.Since = time.Now()
	p := &g.pools[c.object.pool]
	p.calls = append(p.calls, c)
	g.states(c, func(s *objectState, _ int) { s.calls = append(s.calls, c) })
	if !g.watching {
		g.watching = true
		time.AfterFunc(watchInterval, g.watch)
	}
}

// leave notes that Windows has answered a call.
func (g *gate) leave(c *Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(c)
}

func (g *gate) end(c *Call) {
	now := time.Now()
	p := &g.pools[c.object.pool]
	p.calls = without(p.calls, c)
	g.states(c, func(s *objectState, _ int) { s.calls = without(s.calls, c) })
	g.state(key{c.object.pool, c.object.name, false}, 0, func(s *objectState, _ int) {
		switch overdue := c.Overdue(now); {
		case overdue && (!s.suspect.IsZero() || g.suspects < maxSuspects):
			if s.suspect.IsZero() {
				g.suspects++
			}
			s.suspect = now.Add(suspicion)
		case !overdue && !s.suspect.IsZero():
			s.suspect = time.Time{}
			g.suspects--
		}
	})
	if c.logged {
		g.log.Info("Windows has answered a call after all", "call", c.Name, "object", quote.Text(c.Object), "took", now.Sub(c.Since).Round(time.Millisecond))
	}
	if len(p.waiting) > 0 {
		g.admit(p)
	}
}

// without returns calls, which it changes, without one of them.
func without(calls []*Call, c *Call) []*Call {
	if i := slices.Index(calls, c); i >= 0 {
		calls = slices.Delete(calls, i, i+1)
	}
	return calls
}

// admit lets those that wait begin, in their order, as far as there is room.
func (g *gate) admit(p *poolState) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		room, refusal := g.room(w.call)
		if refusal != nil || !room {
			return false // a refusal is found by the waiter itself
		}
		g.begin(w.call)
		close(w.admitted)
		return true
	})
}

const watchInterval = time.Second

// watch logs calls that have become overdue, for as long as any are under way.
func (g *gate) watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, busy := time.Now(), false
	for i := range g.pools {
		for _, c := range g.pools[i].calls {
			busy = true
			if !c.logged && c.Overdue(now) {
				c.logged = true
				g.log.Warn("Windows does not answer a call", "call", c.Name, "object", quote.Text(c.Object), "since", c.Since)
			}
		}
	}
	g.forgetSuspects(now)
	g.watching = busy
	if busy {
		time.AfterFunc(watchInterval, g.watch)
	}
}

// forgetSuspects drops the suspicions that have ended.
func (g *gate) forgetSuspects(now time.Time) {
	if g.suspects == 0 {
		return
	}
	for k, s := range g.objects {
		if !s.suspect.IsZero() && now.After(s.suspect) {
			s.suspect = time.Time{}
			g.suspects--
			if len(s.calls) == 0 && s.waiting == 0 {
				delete(g.objects, k)
			}
		}
	}
}

// Load is what a pool has to do.
type Load struct {
	Pool    string // "disks"
	Running int    // calls under way, overdue ones included
	Overdue int    // of these, calls that take longer than they should
	Waiting int    // calls that wait for room
	Refused uint64 // calls refused so far
	Oldest  Call   // under way; zero if none is
}

// Load returns the load of each pool.
func (s *System) Load() []Load {
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var loads []Load
	for i := range g.pools {
		p := &g.pools[i]
		l := Load{Pool: poolNames[i], Running: len(p.calls), Waiting: len(p.waiting), Refused: p.refused}
		l.Overdue = l.Running - g.inTime(p, now, nil)
		if l.Running > 0 {
			l.Oldest = *p.calls[0]
		}
		loads = append(loads, l)
	}
	return loads
}

// String names the call in messages.
func (c *Call) String() string { return fmt.Sprintf("%s on %s", c.Name, quote.Text(c.Object)) }
