// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

const (
	// quiet is how long the endpoints must be free before a takeover: longer than the restart of
	// their previous owner by nssm or a DaemonSet.
	quiet = 30 * time.Second
	// checkInterval is the time between two checks of the endpoints' owner.
	checkInterval = 2 * time.Second
	// checkTimeout bounds a check.
	checkTimeout = time.Second
)

// takeover takes sets of endpoints, one after the other, after the processes holding them have
// left.
//
// A set contains the endpoints that a driver may use together, and is taken all or none. A driver
// hands answers of one endpoint to another: the number of a disk, the id of a volume. An
// unprivileged process holding one of the names could claim that a volume is mounted, or name a
// wrong disk. The driver would then have this daemon link the pod to the directory, or mount the
// disk. With the whole set missing, the driver fails instead.
//
// The first set is v1 and newer, and all groups without v1; the second set has everything older
// than v1. A client looking for the newest version of each group uses only the first set, if
// present. Without the first set, such a client would mix the two sets; therefore the second set is
// never served alone.
type takeover struct {
	Config
	sets  []*endpointSet
	ctx   context.Context // done when one of the listeners is closed
	close context.CancelFunc
	ended chan struct{} // closed when nothing is taken any more
}

// endpointSet are endpoints that wait for a takeover.
type endpointSet struct {
	services []*rpc.Service
	holder   atomic.Pointer[error] // who has one of them or of the set before; of nil once they are taken
	taken    chan struct{}         // closed when listeners is there
	// listeners are by the endpoints' names. It is written before taken is closed.
	listeners map[string]net.Listener
}

// waitsFor returns an error naming the process that holds one of the endpoints, or nil once they
// are taken.
func (s *endpointSet) waitsFor() error { return *s.holder.Load() }

func newTakeover(c Config) *takeover {
	t := &takeover{Config: c, ended: make(chan struct{})}
	t.ctx, t.close = context.WithCancel(context.Background())
	return t
}

// add gives the endpoints of services listeners that wait until all of these endpoints are free.
func (t *takeover) add(endpoints []server.Endpoint, services []*rpc.Service, cause error) {
	s := &endpointSet{services: services, taken: make(chan struct{})}
	s.holder.Store(&cause)
	for i := range endpoints {
		endpoints[i].Listener = waiting{t, s, endpoints[i].Name}
	}
	t.sets = append(t.sets, s)
}

// run takes the sets.
func (t *takeover) run() {
	defer close(t.ended)
	for _, s := range t.sets {
		t.await(s)
	}
}

// await takes a set after its endpoints have been free for a while, unless t.ctx ends.
func (t *takeover) await(s *endpointSet) {
	var reported string
	var free time.Time // since when nobody has had them; zero while somebody has
	for {
		err := t.held(s)
		if t.ctx.Err() != nil {
			return
		}
		if err == nil && !free.IsZero() && time.Since(free) >= quiet {
			if err = t.take(s); err == nil {
				return
			}
		}
		switch {
		case err != nil:
			free = time.Time{}
			s.holder.Store(&err)
			if text := err.Error(); text != reported {
				reported = text
				t.Log.Warn("another process has published endpoints; waiting until it leaves, and serving the others", "err", err)
			}
		case free.IsZero():
			free = time.Now()
		}
		select {
		case <-t.ctx.Done():
		case <-time.After(checkInterval):
		}
	}
}

// held returns an error naming the process that holds one of the endpoints, or nil. Each check
// shows the holder an empty connection, so the search ends at the first holder.
func (t *takeover) held(s *endpointSet) error {
	ctx, cancel := context.WithTimeout(t.ctx, checkTimeout)
	defer cancel()
	for _, e := range t.endpointsOf(s.services) {
		if err := t.Held(ctx, e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (t *takeover) take(s *endpointSet) error {
	endpoints := t.endpointsOf(s.services)
	if err := listen(endpoints, t.Listen); err != nil {
		return err
	}
	s.listeners = make(map[string]net.Listener)
	for _, e := range endpoints {
		s.listeners[e.Name] = e.Listener
	}
	close(s.taken)
	t.announce(s.services)
	s.holder.Store(new(error))
	return nil
}

// waiting is a listener without an endpoint until the takeover.
type waiting struct {
	*takeover
	*endpointSet
	name string
}

// Accept implements net.Listener.
func (w waiting) Accept() (net.Conn, error) {
	select {
	case <-w.ctx.Done():
		return nil, fmt.Errorf("accept at %s: %w", w.name, net.ErrClosed)
	case <-w.taken:
		return w.listeners[w.name].Accept()
	}
}

// Close implements net.Listener.
func (w waiting) Close() error {
	w.close()
	<-w.ended
	if l := w.listeners[w.name]; l != nil {
		return l.Close()
	}
	return nil
}

// Addr implements net.Listener.
func (w waiting) Addr() net.Addr { return addr(w.name) }

type addr string

func (addr) Network() string  { return "pipe" }
func (a addr) String() string { return string(a) }
