// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/fairshare"
	"github.com/csi-proxy/csi-proxy/internal/quote"
)

// Call is a call to Windows that has not been answered yet.
type Call struct {
	Name   string // one of win.CallNames
	Object string
	Since  time.Time
}

// String says in messages that the call is not answered. As long as it isn't, the text stays
// the same: Kubernetes makes an event of each new text.
func (c Call) String() string {
	return fmt.Sprintf("Windows has not answered %s on %s since %s", c.Name, quote.Text(c.Object),
		c.Since.UTC().Format(time.RFC3339))
}

// refusal is the error for what would have to wait for c.
func (c Call) refusal() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "%v; try again later", c)
}

// call is a call that is under way or waits for room.
type call struct {
	Call
	object *state
	client *state // nil for none

	overdue atomic.Bool // it takes longer than calls of its name should; set under pool.mu
	seen    int         // by how many looks it was found under way

	begun chan error // of a call that waits: gets nil when it may begin, or why it may not
}

// state is what is known of an object, or of a client, while it has calls, and until the
// next look.
type state struct {
	calls   []*call // under way, oldest first
	waiting int
}

func (s *state) begin(c *call) {
	s.calls = append(s.calls, c)
}

func (s *state) end(c *call) {
	i := slices.Index(s.calls, c)
	s.calls = slices.Delete(s.calls, i, i+1)
}

// overdue returns how many calls are overdue, and the oldest of them.
func (s *state) overdue() (n int, oldest *call) {
	for _, c := range s.calls {
		if c.overdue.Load() {
			if n++; oldest == nil {
				oldest = c
			}
		}
	}
	return n, oldest
}

// pool has the calls of one kind of object. It lets them begin in the order in which they
// came, as far as their bounds allow.
type pool struct {
	name string
	log  *slog.Logger

	mu       sync.Mutex // guards all below; held for moments
	all      state
	objects  map[string]*state
	clients  map[any]*state
	waiting  []*call
	refused  uint64
	watching bool // the next look is due
}

// enter returns when a call may begin; leave ends it.
func (p *pool) enter(ctx context.Context, client any, name, object string) (*call, error) {
	c := &call{Call: Call{Name: name, Object: object}}
	p.mu.Lock()
	c.object = stateOf(p.objects, object)
	if client != nil {
		c.client = stateOf(p.clients, client)
	}
	room, err := p.room(c)
	if room {
		p.begin(c)
		p.mu.Unlock()
		return c, nil
	}
	if err == nil && !p.mayWait(c) {
		err = csiproxy.Errorf(csiproxy.ErrResourceExhausted, "%d calls to Windows on %s are waiting already; try again later",
			len(p.waiting), p.name)
	}
	if err != nil {
		p.refused++
		p.mu.Unlock()
		return nil, err
	}
	c.begun = make(chan error, 1)
	p.wait(c, 1)
	p.waiting = append(p.waiting, c)
	p.watch()
	p.mu.Unlock()

	select {
	case err = <-c.begun:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return c, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, c); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.wait(c, -1)
	} else if slices.Contains(c.object.calls, c) { // it was let in when ctx ended
		p.end(c)
	}
	if ctx.Err() != nil && len(c.object.calls) > 0 {
		err = fmt.Errorf("%v: %w", c.object.calls[0], err)
	}
	return nil, err
}

// room reports whether c may begin now. If c may not even wait, the error says why.
func (p *pool) room(c *call) (bool, error) {
	for _, other := range c.object.calls {
		if other.Name == c.Name && other.overdue.Load() {
			return false, other.refusal() // c would hang as well
		}
	}
	taken := len(p.all.calls)
	if taken >= maxOfPool {
		if n, oldest := p.all.overdue(); 2*n >= taken {
			return false, csiproxy.Errorf(csiproxy.ErrUnavailable,
				"%d calls to Windows on %s are under way; %v; try again later", taken, p.name, oldest)
		}
		return false, nil
	}
	if len(c.object.calls) >= fairshare.Room(taken, maxOfPool, maxOfObject, 1) {
		if _, oldest := c.object.overdue(); oldest != nil {
			return false, oldest.refusal()
		}
		return false, nil
	}
	if c.client != nil && len(c.client.calls) >= fairshare.Room(taken, maxOfPool, maxOfPool, 1) {
		if n, oldest := c.client.overdue(); 2*n >= len(c.client.calls) {
			return false, csiproxy.Errorf(csiproxy.ErrUnavailable,
				"%d calls of this client to Windows on %s are under way; %v; try again later", len(c.client.calls), p.name, oldest)
		}
		return false, nil
	}
	return true, nil
}

// busy reports whether calls are under way.
func (p *pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all.calls) > 0
}

// hanging returns a refusal if a call of the name on an object is overdue.
func (p *pool) hanging(name, object string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.objects[object]; s != nil {
		for _, c := range s.calls {
			if c.Name == name && c.overdue.Load() {
				p.refused++
				return c.refusal()
			}
		}
	}
	return nil
}

// mayWait reports whether there is room for one more call that waits.
func (p *pool) mayWait(c *call) bool {
	if c.client == nil {
		return len(p.waiting) < maxWaiting
	}
	return c.client.waiting < fairshare.Room(len(p.waiting), maxWaiting, maxWaiting, 1)
}

func (p *pool) wait(c *call, n int) {
	c.object.waiting += n
	if c.client != nil {
		c.client.waiting += n
	}
}

// begin notes that a call begins.
func (p *pool) begin(c *call) {
	c.Since = time.Now()
	p.all.begin(c)
	c.object.begin(c)
	if c.client != nil {
		c.client.begin(c)
	}
	p.watch()
}

// leave notes that Windows has answered a call.
func (p *pool) leave(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(c)
	if c.overdue.Load() {
		p.log.Info("Windows has answered a call after all", "call", c.Name, "object", quote.Text(c.Object), "took",
			time.Since(c.Since).Round(time.Millisecond))
	}
}

// end notes that a call has ended, and lets the first of those that wait begin in its place.
func (p *pool) end(c *call) {
	p.all.end(c)
	c.object.end(c)
	if c.client != nil {
		c.client.end(c)
	}
	p.watch()
	for i, w := range p.waiting {
		if room, _ := p.room(w); room {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			p.admit(w)
			return
		}
	}
}

func (p *pool) admit(w *call) {
	p.wait(w, -1)
	p.begin(w)
	w.begun <- nil
}

// stateOf returns what is known of an object or a client.
func stateOf[K comparable](known map[K]*state, key K) *state {
	s := known[key]
	if s == nil {
		s = new(state)
		known[key] = s
	}
	return s
}

// watch has the pool looked at soon.
func (p *pool) watch() {
	if !p.watching {
		p.watching = true
		time.AfterFunc(lookInterval, p.look)
	}
}

// look finds the calls that have become overdue, lets calls begin that wait and may, refuses
// those that must not wait any longer, and forgets objects and clients without calls. Looks,
// and not a clock, decide whether a call is overdue: a process that gets no processor makes no
// looks. Before each look, all goroutines run that can, such as one that has got its answer.
func (p *pool) look() {
	runtime.Gosched()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = false
	p.lookLocked()
}

func (p *pool) lookLocked() {
	for _, c := range p.all.calls {
		if c.overdue.Load() {
			continue
		}
		p.watch()
		if c.seen++; time.Duration(c.seen)*lookInterval > Patience(c.Name) {
			c.overdue.Store(true)
			p.log.Warn("Windows does not answer a call", "call", c.Name, "object", quote.Text(c.Object), "since", c.Since)
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w *call) bool {
		room, err := p.room(w)
		switch {
		case room:
			p.admit(w)
		case err != nil:
			p.refused++
			p.wait(w, -1)
			w.begun <- err
		}
		return room || err != nil
	})
	if len(p.waiting) > 0 {
		p.watch()
	}
	maps.DeleteFunc(p.objects, func(_ string, s *state) bool { return s.idle() })
	maps.DeleteFunc(p.clients, func(_ any, s *state) bool { return s.idle() })
}

func (s *state) idle() bool { return len(s.calls) == 0 && s.waiting == 0 }

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

// load returns the load of the pool.
func (p *pool) load() Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := Load{Pool: p.name, Running: len(p.all.calls), Waiting: len(p.waiting), Refused: p.refused}
	l.Overdue, _ = p.all.overdue()
	for _, c := range p.all.calls {
		if len(l.Hanging) < maxHanging && c.overdue.Load() {
			l.Hanging = append(l.Hanging, c.Call)
		}
	}
	return l
}
