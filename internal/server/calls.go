// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"maps"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/fairshare"
)

// Limits are the bounds of the calls under way at all endpoints together. A call is
// under way until its handler has returned, also if its client gives up before. At the
// client's deadline, a handler returns; what it has left with Windows is bounded there.
// Streaming calls have bounds of their own.
type Limits struct {
	// Calls is how many there may be. Default: DefaultMaxCalls. Their requests may
	// hold maxBytesOfCall bytes for each of them.
	Calls int
	// CallsPerClient is how many of them may be one client's. Default:
	// DefaultMaxCallsPerClient. A client is a process, where the system tells which
	// process a connection belongs to; else it is a connection.
	CallsPerClient int
}

// Thirty drivers that make fifty calls each at one time stay in the half of these that
// is for all: see package fairshare.
const (
	DefaultMaxCalls          = 4096
	DefaultMaxCallsPerClient = 256
)

// maxBytesOfCall is what the requests of the calls under way may hold for each call
// that Limits.Calls allows. Most requests are a few hundred bytes. One that hasn't come
// yet counts with half of the most that it may have.
const maxBytesOfCall = 32 << 10

func (l Limits) withDefaults() Limits {
	if l.Calls == 0 {
		l.Calls = DefaultMaxCalls
	}
	if l.CallsPerClient == 0 {
		l.CallsPerClient = DefaultMaxCallsPerClient
	}
	return l
}

// Reasons for which calls are refused.
const (
	RefusedCalls          = "calls"            // too many calls
	RefusedCallsPerClient = "calls_per_client" // too many calls of one client
	RefusedBytes          = "request_bytes"    // too many bytes of requests
	RefusedStreams        = "streams"          // too many streaming calls
)

// Calls are the calls under way at all endpoints together, and those refused.
type Calls struct {
	Receiving int            // whose request hasn't come, or not all of it
	Running   int            // whose request has come
	Streams   int            // streaming ones: WatchDisks, health watches and reflection
	Bytes     int            // of the requests
	Oldest    time.Duration  // age of the oldest one that isn't streaming; 0 if there is none
	Limit     int            // of the calls under way: Limits.Calls
	Refused   map[string]int // since the start, by reason: all of the Refused constants
}

// calls counts the calls under way and refuses those that are too many. Some clients may
// take what they can get, so what is left is shared as package fairshare says.
type calls struct {
	limits Limits
	turns  fairshare.Turns // of calls, on the processors

	mu        sync.Mutex // guards all below, and what is in clients and calls
	processes map[uint32]*client
	receiving int
	streams   int
	bytes     int
	unary     list.List // of *call, the oldest first
	refused   map[string]int
}

func newCalls(limits Limits) *calls {
	return &calls{
		limits:    limits.withDefaults(),
		processes: make(map[uint32]*client),
		refused:   map[string]int{RefusedCalls: 0, RefusedCallsPerClient: 0, RefusedBytes: 0, RefusedStreams: 0},
	}
}

// client is whom calls are counted for.
type client struct {
	process     uint32 // 0 if it isn't known
	connections int    // that the process has; unused if it isn't known
	calls       int
	streams     int
	bytes       int
}

// call is one call under way.
type call struct {
	client    *client
	begun     time.Time
	bytes     int // that its request holds, or may come to hold
	receiving bool
	element   *list.Element // in calls.unary; nil for a streaming call
}

func (a *calls) maxBytes() int { return a.limits.Calls * maxBytesOfCall }

// connect returns the client of a new connection: that of its process, unless that is 0,
// which stands for an unknown one.
func (a *calls) connect(process uint32) *client {
	if process == 0 {
		return new(client)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.processes[process]
	if c == nil {
		c = &client{process: process}
		a.processes[process] = c
	}
	c.connections++
	return c
}

// disconnect takes back what connect did. Calls of the connection may still run.
func (a *calls) disconnect(c *client) {
	if c.process == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.connections--
	a.forget(c)
}

// forget forgets a process that has neither connections nor calls.
func (a *calls) forget(c *client) {
	if c.process != 0 && c.connections == 0 && c.calls == 0 && c.streams == 0 {
		delete(a.processes, c.process)
	}
}

// Bounds of the streaming calls under way, at all endpoints together and of one client. They
// last for hours, so they take no place of the calls that Limits bounds. A driver needs one
// or two.
const (
	maxStreams          = 512
	maxStreamsPerClient = 32
)

// beginStream counts a streaming call, or refuses it.
func (a *calls) beginStream(c *client) (*call, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if room := fairshare.Room(a.streams, maxStreams, maxStreamsPerClient, 1); c.streams >= room {
		a.refused[RefusedStreams]++
		return nil, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"%d streaming calls are under way, %d of them this client's, "+
				"which may have %d: end some of them, or try again later",
			a.streams, c.streams, room)
	}
	a.streams++
	c.streams++
	return &call{client: c, begun: time.Now()}, nil
}

// begin counts a call, or refuses it. Its request may have up to maxBytes.
func (a *calls) begin(c *client, maxBytes int) (*call, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	expected := (maxBytes + 1) / 2
	if err := a.refuse(c, expected); err != nil {
		return nil, err
	}
	begun := &call{client: c, begun: time.Now(), bytes: expected, receiving: true}
	c.calls++
	begun.element = a.unary.PushBack(begun)
	a.receiving++
	a.bytes += expected
	c.bytes += expected
	return begun, nil
}

// refuse returns an error if there is no room for one more call of a client, with a
// request of so many bytes.
func (a *calls) refuse(c *client, bytes int) error {
	room := fairshare.Room(a.unary.Len(), a.limits.Calls, a.limits.CallsPerClient, 1)
	switch {
	case c.calls >= a.limits.CallsPerClient:
		a.refused[RefusedCallsPerClient]++
		return csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"this client has %d calls under way, and -max-calls-per-client is %d: try again when some of them have ended",
			c.calls, a.limits.CallsPerClient)
	case c.calls >= room:
		a.refused[RefusedCalls]++
		return csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"%d calls are under way, %d of them this client's, and -max-calls is %d: with so many, a client may have %d; "+
				"try again later",
			a.unary.Len(), c.calls, a.limits.Calls, room)
	case c.bytes+bytes > fairshare.Room(a.bytes, a.maxBytes(), a.maxBytes(), bytes):
		a.refused[RefusedBytes]++
		return csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the requests of the calls under way hold %d bytes, %d of them this client's, and -max-calls allows %d (%d for "+
				"each call); try again later",
			a.bytes, c.bytes, a.maxBytes(), maxBytesOfCall)
	}
	return nil
}

// received says that the request of a call has come and holds so many bytes.
func (a *calls) received(c *call, bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold(c, bytes)
}

// hold sets what a call's request holds. It isn't being received any more.
func (a *calls) hold(c *call, bytes int) {
	a.bytes += bytes - c.bytes
	c.client.bytes += bytes - c.bytes
	c.bytes = bytes
	if c.receiving {
		c.receiving = false
		a.receiving--
	}
}

// end says that the handler of a call has returned. It reports whether that was before
// the request came.
func (a *calls) end(c *call) (early bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	early = c.receiving
	if c.element == nil {
		a.streams--
		c.client.streams--
	} else {
		a.hold(c, 0)
		a.unary.Remove(c.element)
		c.client.calls--
	}
	a.forget(c.client)
	return early
}

// now says how many calls there are.
func (a *calls) now() Calls {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := Calls{
		Receiving: a.receiving,
		Running:   a.unary.Len() - a.receiving,
		Streams:   a.streams,
		Bytes:     a.bytes,
		Limit:     a.limits.Calls,
		Refused:   maps.Clone(a.refused),
	}
	if oldest := a.unary.Front(); oldest != nil {
		now.Oldest = time.Since(oldest.Value.(*call).begun)
	}
	return now
}
