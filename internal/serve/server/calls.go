// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"maps"
	"path"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// DefaultMaxCalls is the default limit for calls in progress at all endpoints together. Five
// drivers with one call for each of 110 volumes at one time stay below the limit.
const DefaultMaxCalls = 1024

// maxRequestsBytes limits the encoded requests of the calls in progress at all endpoints together.
// The usual request has a few hundred bytes, and stays in memory while its call hangs.
const maxRequestsBytes = 16 << 20

// maxStreams limits the streaming calls in progress at all endpoints together: WatchDisks, health
// watches and reflection. Streaming calls last for hours, and so have a limit of their own. A
// driver needs one or two.
const maxStreams = 128

// Reasons for refusing calls.
const (
	RefusedCalls   = "calls"   // too many calls
	RefusedStreams = "streams" // too many streaming calls
)

// Calls are the calls in progress at all endpoints together, and the refused calls.
type Calls struct {
	Running int            // without streaming ones
	Streams int            // streaming ones
	Oldest  time.Duration  // age of the oldest one that isn't streaming; 0 if there is none
	Limit   int            // of Running
	Refused map[string]int // since the start, by reason: all of the Refused constants
}

// calls counts the calls in progress, and refuses calls beyond the limits. A call is in progress
// until its handler has returned, even if the client gives up before.
type calls struct {
	limit int

	mu      sync.Mutex // guards all below
	running list.List  // of time.Time, when each call began; the oldest first
	bytes   int        // of the requests of the running calls
	streams int
	refused map[string]int
}

func newCalls(limit int) *calls {
	if limit == 0 {
		limit = DefaultMaxCalls
	}
	return &calls{limit: limit, refused: map[string]int{RefusedCalls: 0, RefusedStreams: 0}}
}

// begin counts a call until end is called. Beyond the limits, begin returns an error.
func (c *calls) begin(request any) (end func(), err error) {
	size := proto.Size(request.(proto.Message))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.Len() >= c.limit {
		c.refused[RefusedCalls]++
		return nil, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"%d calls are under way, and -max-calls is %d: try again when some of them have ended; if none ends, the "+
				"metric csi_proxy_windows_hanging_call_start_time_seconds names the calls that Windows doesn't answer",
			c.running.Len(), c.limit)
	}
	if c.bytes+size > maxRequestsBytes {
		c.refused[RefusedCalls]++
		return nil, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the requests of the calls under way have %d bytes, and with this one more than %d: try again when some of them have ended",
			c.bytes, maxRequestsBytes)
	}
	call := c.running.PushBack(time.Now())
	c.bytes += size
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running.Remove(call)
		c.bytes -= size
	}, nil
}

// beginStream is begin for a streaming call.
func (c *calls) beginStream() (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams >= maxStreams {
		c.refused[RefusedStreams]++
		return nil, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"%d streaming calls are under way, which is the most: end some of them, or try again later", c.streams)
	}
	c.streams++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.streams--
	}, nil
}

// snapshot returns the present numbers of calls.
func (c *calls) snapshot() Calls {
	c.mu.Lock()
	defer c.mu.Unlock()
	snapshot := Calls{Running: c.running.Len(), Streams: c.streams, Limit: c.limit, Refused: maps.Clone(c.refused)}
	if oldest := c.running.Front(); oldest != nil {
		snapshot.Oldest = time.Since(oldest.Value.(time.Time))
	}
	return snapshot
}

// refuse returns err, the reason for refusing a call, as the call's status, and logs err now and
// then.
func (s *Server) refuse(method string, err error) error {
	if s.refusals.allows() { // a line for each would fill the log
		s.log.Warn("refusing calls", "method", method, "err", err)
	}
	return wire.ToStatusOf(path.Base(method), err)
}
