// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// drain refuses new calls for a while before a stop, as that would, and lets those that run
// finish.
type drain struct {
	mu      sync.Mutex // guards all below
	running int        // unary calls that were let in
	idle    chan struct{}
	over    *time.Timer // ends the drain; nil without one
}

// Drain refuses new calls, and returns when those under way have ended or ctx is done, with
// the number of those that still run. Streaming calls go on, and aren't counted. Unless the
// server is stopped, the drain ends by itself: it takes calls again after so long. With another
// Drain it lasts for as long as that one says, from then on.
func (s *Server) Drain(ctx context.Context, lasts time.Duration) (running int) {
	idle := s.drain.begin(lasts, s.drainIsOver)
	s.log.Info("draining: refusing new calls, since the daemon is about to be stopped", "for", lasts)
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	return s.drain.running
}

func (s *Server) drainIsOver() {
	if s.stopping.Err() == nil {
		s.log.Warn("the daemon was drained and not stopped; it takes calls again")
	}
}

// begin begins a drain, or says anew how long it lasts, and returns a channel that is closed when
// no call runs.
func (d *drain) begin(lasts time.Duration, over func()) (idle <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != nil {
		d.over.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(lasts, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.over == timer { // not one that another Drain was too late to stop
			d.over = nil
			over()
		}
	})
	d.over = timer
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle = d.idle
	d.tellIfIdle()
	return idle
}

// tellIfIdle tells those who wait that no call runs. The caller holds d.mu.
func (d *drain) tellIfIdle() {
	if d.running == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// enter counts a call, or refuses it.
func (d *drain) enter(counted bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != nil {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the daemon is about to be stopped: try again later")
	}
	if counted {
		d.running++
	}
	return nil
}

func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	d.tellIfIdle()
}

// drainUnary refuses calls during a drain.
func (s *Server) drainUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if err := s.drain.enter(true); err != nil {
		return nil, toStatus(info.FullMethod, err)
	}
	defer s.drain.leave()
	return handler(ctx, req)
}

// drainStream is drainUnary for streaming calls.
func (s *Server) drainStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if err := s.drain.enter(false); err != nil {
		return toStatus(info.FullMethod, err)
	}
	return handler(srv, stream)
}
