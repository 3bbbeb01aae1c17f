// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// drain refuses new calls for a while before a stop, and lets running calls finish. The refusal is
// the same as during a stop.
type drain struct {
	mu      sync.Mutex // guards all below
	running int        // unary calls that were let in
	idle    chan struct{}
	over    *time.Timer // ends the drain; nil without one
}

// Reasons for refusing calls.
var (
	errDraining = csiproxy.Errorf(csiproxy.ErrUnavailable, "the daemon is draining, since it is about to be stopped: try again later")
	errStopping = csiproxy.Errorf(csiproxy.ErrUnavailable, "the daemon is stopping")
)

// Drain refuses new calls. Drain returns when all calls in progress have ended, or when ctx is
// done; running is the number of calls still in progress. Streaming calls go on, uncounted. If the
// server isn't stopped, it takes calls again after the duration lasts. Another Drain sets the
// duration anew.
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

// Refusing returns the reason for refusing new calls, or nil while they are taken.
func (s *Server) Refusing() error {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	switch {
	case s.stopping.Err() != nil:
		return errStopping
	case s.drain.over != nil:
		return errDraining
	}
	return nil
}

func (s *Server) drainIsOver() {
	if s.stopping.Err() == nil {
		s.log.Warn("the daemon was drained and not stopped; it takes calls again")
	}
}

// begin begins a drain, or sets its duration anew. The returned channel is closed when all calls
// have ended.
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
		if d.over == timer { // else another Drain has set a new timer, too late to stop this one
			d.over = nil
			over()
		}
	})
	d.over = timer
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle = d.idle
	d.closeIfIdle()
	return idle
}

// closeIfIdle closes d.idle, for which Drain waits, if all calls have ended. The caller holds d.mu.
func (d *drain) closeIfIdle() {
	if d.running == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// enter counts a call. During a drain, it returns an error instead.
func (d *drain) enter(counted bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != nil {
		return errDraining
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
	d.closeIfIdle()
}
