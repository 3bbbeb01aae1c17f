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

	due    time.Time // when it becomes overdue
	pool   pool
	states [3]*objectState // of its object, of the directory that it is in, and of its client; see the constants below
	logged bool            // as overdue; guarded by gate.mu
}

// The states of a call. Only the first is always there.
const (
	ofObject = iota
	ofDirectory
	ofClient
)

// Overdue reports whether the call takes longer than calls of its name should.
func (c *Call) Overdue(now time.Time) bool { return now.After(c.due) }

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
	pool   pool
	name   string
	below  bool // the calls on what is below a directory, rather than on itself
	client any  // whose calls; nil for those of everybody
}

type poolState struct {
	calls   []*Call // under way, oldest first
	waiting []*waiter
	refused uint64
}

// objectState is what is known of an object while calls on it are under way or wait, or
// while it is suspect; or what is known of a client's calls.
type objectState struct {
	key     key
	bound   int       // of its calls
	calls   []*Call   // under way, oldest first
	users   int       // calls that are under way, wait, or are to be decided on
	suspect time.Time // until when; zero for never
}

type waiter struct {
	call *Call
	done chan error // gets nil when the call may begin, or why it may not
}

func newGate(log *slog.Logger) *gate {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &gate{log: log, objects: make(map[key]*objectState)}
}

// enter returns when a call may begin; leave ends it.
func (g *gate) enter(ctx context.Context, name string, o object) (*Call, error) {
	g.mu.Lock()
	c := &Call{Name: name, Object: o.name, pool: o.pool}
	client := ctx.Value(clientKey{})
	c.states[ofObject] = g.use(key{pool: o.pool, name: o.name}, maxOfObject)
	if o.above != "" {
		c.states[ofDirectory] = g.use(key{o.pool, o.above, true, client}, maxBelowObject)
	}
	if client != nil {
		c.states[ofClient] = g.use(key{pool: o.pool, client: client}, maxOverdue*poolSizes[o.pool])
	}
	p := &g.pools[o.pool]
	if g.admissible(c, time.Now()) {
		g.begin(c)
		g.mu.Unlock()
		return c, nil
	}
	refusal := g.refusal(c, time.Now())
	if client := c.states[ofClient]; refusal == nil && !hasRoom(client, client.waiting()-1, len(p.waiting), maxWaiting) {
		refusal = csiproxy.Errorf(csiproxy.ErrResourceExhausted, "%d calls to Windows on %s are waiting already; try again later",
			len(p.waiting), poolNames[o.pool])
	}
	if refusal != nil {
		p.refused++
		g.drop(c)
		g.mu.Unlock()
		return nil, refusal
	}
	w := &waiter{c, make(chan error, 1)}
	p.waiting = append(p.waiting, w)
	g.watchSoon()
	g.mu.Unlock()

	select {
	case err := <-w.done:
		if err != nil {
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		g.drop(c)
	} else if <-w.done == nil { // it was admitted meanwhile
		g.end(c, ctx.Err())
	}
	return nil, ctx.Err()
}

// use returns the state of an object for a call, which gives it back with drop.
func (g *gate) use(k key, bound int) *objectState {
	s := g.objects[k]
	if s == nil {
		s = &objectState{key: k, bound: bound}
		g.objects[k] = s
	}
	s.users++
	return s
}

// drop gives the states of a call back.
func (g *gate) drop(c *Call) {
	for _, s := range c.states {
		if s == nil {
			continue
		}
		if s.users--; s.users == 0 && s.suspect.IsZero() {
			delete(g.objects, s.key)
		}
	}
}

// admissible reports whether there is room for c.
func (g *gate) admissible(c *Call, now time.Time) bool {
	for _, s := range c.states {
		if s != nil && len(s.calls) >= s.bound {
			return false
		}
	}
	if repeated(c, now) != nil {
		return false
	}
	p, size := &g.pools[c.pool], poolSizes[c.pool]
	if 2*len(p.calls) < min(size, maxSuspect) {
		return true
	}
	if p.exhausted(c, now) || p.scarce(c) && len(c.states[ofObject].calls) > 0 || !p.hasThread(c) {
		return false
	}
	if g.suspects > 0 && c.suspect(now) &&
		inTime(p.calls, now, func(other *Call) bool { return other.suspect(now) }) >= maxSuspect {
		return false
	}
	client := c.states[ofClient]
	return hasRoom(client, inTime(client.underWay(), now, nil), inTime(p.calls, now, nil), size)
}

// hasRoom reports whether a client that has some of what there is may have one more, when
// so many are taken of all. One half is for every client. When that is taken, a client may
// have a few, and of the last quarter one. So a client that takes what it can get leaves
// room for others. Without a client, everything may be had.
func hasRoom(client *objectState, has, taken, all int) bool {
	switch free := all - taken; {
	case client == nil || 2*free > all:
		return free > 0
	case 4*free > all:
		return has < fewCalls
	default:
		return free > 0 && has == 0
	}
}

// hasThread reports whether the pool has a thread for the client of c, overdue calls
// included.
func (p *poolState) hasThread(c *Call) bool {
	client := c.states[ofClient]
	return hasRoom(client, len(client.underWay()), len(p.calls), maxOverdue*poolSizes[c.pool])
}

// underWay returns the calls under way, none for nil.
func (s *objectState) underWay() []*Call {
	if s == nil {
		return nil
	}
	return s.calls
}

// waiting returns how many calls wait or are to be decided on, 0 for nil.
func (s *objectState) waiting() int {
	if s == nil {
		return 0
	}
	return s.users - len(s.calls)
}

// refusal returns why c, for which there is no room, must not wait either: nil if it may.
func (g *gate) refusal(c *Call, now time.Time) error {
	if other := repeated(c, now); other != nil {
		return other.Refusal(now)
	}
	for _, s := range c.states {
		if s != nil && len(s.calls) >= s.bound {
			// The calls are in their order, but some may take longer than others.
			for _, other := range s.calls {
				if other.Overdue(now) {
					return other.Refusal(now)
				}
			}
		}
	}
	if p := &g.pools[c.pool]; p.exhausted(c, now) {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows has not answered %d calls on %s; the oldest is %s on %s since %s",
			len(p.calls), poolNames[c.pool], p.calls[0].Name, quote.Text(p.calls[0].Object), p.calls[0].Since.UTC().Format(time.RFC3339))
	}
	if p := &g.pools[c.pool]; !p.hasThread(c) {
		calls := c.states[ofClient].underWay()
		if i := slices.IndexFunc(calls, func(other *Call) bool { return other.Overdue(now) }); i >= 0 {
			return csiproxy.Errorf(csiproxy.ErrUnavailable, "%d calls of this client to Windows on %s are under way; Windows has not answered %s since %s",
				len(calls), poolNames[c.pool], calls[i], calls[i].Since.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// scarce reports whether the pool of c has only those threads left that are for objects of
// which nothing bad is known.
func (p *poolState) scarce(c *Call) bool { return len(p.calls) >= (maxOverdue-1)*poolSizes[c.pool] }

// exhausted reports whether the pool has no thread for c, and waiting is of no use.
func (p *poolState) exhausted(c *Call, now time.Time) bool {
	return len(p.calls) >= maxOverdue*poolSizes[c.pool] || p.scarce(c) && c.suspect(now)
}

// repeated returns the call that c repeats and that is overdue, nil if there is none.
func repeated(c *Call, now time.Time) *Call {
	for _, other := range c.states[ofObject].calls {
		if other.Name == c.Name && other.Overdue(now) {
			return other
		}
	}
	return nil
}

// inTime counts the calls that aren't overdue, of those that which accepts.
func inTime(calls []*Call, now time.Time, which func(*Call) bool) int {
	n := 0
	for _, c := range calls {
		if !c.Overdue(now) && (which == nil || which(c)) {
			n++
		}
	}
	return n
}

func (c *Call) suspect(now time.Time) bool { return now.Before(c.states[ofObject].suspect) }

// begin notes that a call begins.
func (g *gate) begin(c *Call) {
	c.Since = time.Now()
	c.due = c.Since.Add(Patience(c.Name))
	p := &g.pools[c.pool]
	p.calls = append(p.calls, c)
	for _, s := range c.states {
		if s != nil {
			s.calls = append(s.calls, c)
		}
	}
	g.watchSoon()
}

// leave notes that Windows has answered a call.
func (g *gate) leave(c *Call, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(c, err)
}

func (g *gate) end(c *Call, err error) {
	now := time.Now()
	p := &g.pools[c.pool]
	p.calls = without(p.calls, c)
	for _, s := range c.states {
		if s != nil {
			s.calls = without(s.calls, c)
		}
	}
	g.suspectOrClear(c, err, now)
	if c.logged {
		g.log.Info("Windows has answered a call after all", "call", c.Name, "object", quote.Text(c.Object), "took", now.Sub(c.Since).Round(time.Millisecond))
	}
	g.drop(c)
	// There is room for one more.
	for i, w := range p.waiting {
		if g.admissible(w.call, now) {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			g.begin(w.call)
			w.done <- nil
			return
		}
	}
}

// slowRefusal is how long an object may take to refuse a call as unavailable without being
// suspect, however long calls of that name may take.
const slowRefusal = time.Second

// unanswered reports whether err says that the object didn't answer: it was out of reach,
// or busy, or its caller has given up.
func unanswered(err error) bool {
	switch csiproxy.KindOf(err) {
	case csiproxy.ErrUnavailable, context.Canceled, context.DeadlineExceeded:
		return true
	}
	return false
}

// suspectOrClear makes the object of a call suspect if the call was overdue, or failed late
// without an answer of the object, and clears it if the object has answered in time.
func (g *gate) suspectOrClear(c *Call, err error, now time.Time) {
	s, none := c.states[ofObject], unanswered(err)
	switch overdue := c.Overdue(now) || none && now.Sub(c.Since) > slowRefusal; {
	case overdue && (!s.suspect.IsZero() || g.suspects < maxSuspects):
		if s.suspect.IsZero() {
			g.suspects++
		}
		s.suspect = now.Add(suspicion)
	case !overdue && !none && !s.suspect.IsZero():
		s.suspect = time.Time{}
		g.suspects--
	}
}

// without returns calls, which it changes, without one of them.
func without(calls []*Call, c *Call) []*Call {
	if i := slices.Index(calls, c); i >= 0 {
		calls = slices.Delete(calls, i, i+1)
	}
	return calls
}

// watchInterval is how often the gate looks for calls that have become overdue: who waits
// for one is refused, and it makes room in its pool.
const watchInterval = 100 * time.Millisecond

// watchSoon has the watch run once more.
func (g *gate) watchSoon() {
	if !g.watching {
		g.watching = true
		time.AfterFunc(watchInterval, g.watch)
	}
}

func (g *gate) watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.watching = false
	for i := range g.pools {
		p := &g.pools[i]
		for _, c := range p.calls {
			if !c.logged && c.Overdue(now) {
				c.logged = true
				g.log.Warn("Windows does not answer a call", "call", c.Name, "object", quote.Text(c.Object), "since", c.Since)
			}
			if !c.logged {
				g.watchSoon() // it may become overdue
			}
		}
		if len(p.waiting) > 0 {
			g.settle(p, now)
		}
		if len(p.waiting) > 0 {
			g.watchSoon()
		}
	}
	g.forgetSuspects(now)
}

// settle lets those that wait in a pool begin as far as there is room, in their order, and
// refuses those that must not wait any longer.
func (g *gate) settle(p *poolState, now time.Time) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if g.admissible(w.call, now) {
			g.begin(w.call)
			w.done <- nil
			return true
		}
		err := g.refusal(w.call, now)
		if err == nil {
			return false
		}
		p.refused++
		g.drop(w.call)
		w.done <- err
		return true
	})
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
			if s.users == 0 {
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
	Hanging []Call // the overdue ones, the oldest maxHanging of them, in their order
}

// maxHanging bounds Load.Hanging.
const maxHanging = 10

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
		l.Overdue = l.Running - inTime(p.calls, now, nil)
		for _, c := range p.calls {
			if len(l.Hanging) < maxHanging && c.Overdue(now) {
				l.Hanging = append(l.Hanging, *c)
			}
		}
		loads = append(loads, l)
	}
	return loads
}

// String names the call in messages.
func (c *Call) String() string { return fmt.Sprintf("%s on %s", c.Name, quote.Text(c.Object)) }
