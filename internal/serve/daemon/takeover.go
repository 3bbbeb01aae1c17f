// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

const (
	// quiet is how long nobody must have had one of the published endpoints before they are taken from
	// a process that had them: longer than it takes to start that one again, as nssm or a DaemonSet does.
	quiet = 30 * time.Second
	// checkInterval is the time between two checks of who has them.
	checkInterval = 2 * time.Second
	// checkTimeout bounds a check.
	checkTimeout = time.Second
)

// takeover takes endpoints, all or none, when the process that has them has left.
type takeover struct {
	Config
	holder   atomic.Pointer[error] // who has them; of nil once they are taken
	names    []string
	services []*rpc.Service  // of names
	ctx      context.Context // done when one of the listeners is closed
	close    context.CancelFunc
	ended    chan struct{} // closed when nothing is taken any more
	taken    chan struct{} // closed when listeners is there
	// listeners are those of names. It is written before taken and ended are closed.
	listeners map[string]net.Listener
}

// wait gives the endpoints listeners that wait until these are free.
func (c Config) wait(endpoints []server.Endpoint, services []*rpc.Service, cause error) *takeover {
	c.Control = nil // it is served already
	services = slices.DeleteFunc(services, func(s *rpc.Service) bool { return !ofPublished(s) })
	t := &takeover{Config: c, services: services, ended: make(chan struct{}), taken: make(chan struct{})}
	t.ctx, t.close = context.WithCancel(context.Background())
	for i := range endpoints {
		t.names = append(t.names, endpoints[i].Name)
		endpoints[i].Listener = waiting{t, endpoints[i].Name}
	}
	t.report(cmp.Or(t.held(), cause))
	go t.run()
	return t
}

// waitsFor returns who has the endpoints, nil if they are taken.
func (t *takeover) waitsFor() error { return *t.holder.Load() }

func (t *takeover) run() {
	defer close(t.ended)
	var free time.Time // since when nobody has had them; zero while somebody has
	for {
		err := t.held()
		switch {
		case err == nil && free.IsZero():
			free = time.Now()
		case err == nil && time.Since(free) >= quiet:
			if err = t.take(); err == nil {
				close(t.taken)
				t.announce(t.services)
				t.holder.Store(new(error))
				return
			}
		}
		if err != nil {
			free = time.Time{}
			t.report(err)
		}
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(checkInterval):
		}
	}
}

// report notes who has them, and logs that if it has changed.
func (t *takeover) report(err error) {
	if before := t.holder.Load(); before == nil || (*before).Error() != err.Error() {
		t.Log.Warn("another process has published endpoints; waiting until it leaves, and serving the storage API", "err", err)
		t.holder.Store(&err)
	}
}

// held returns an error that says who has one of the endpoints, nil if nobody has. Each process that
// is asked sees a connection that sends nothing, so the first one is enough.
func (t *takeover) held() error {
	ctx, cancel := context.WithTimeout(t.ctx, checkTimeout)
	defer cancel()
	for _, name := range t.names {
		if err := t.Held(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (t *takeover) take() error {
	endpoints := make([]server.Endpoint, len(t.names))
	for i, name := range t.names {
		endpoints[i].Name = name
	}
	if err := listen(endpoints, t.Listen); err != nil {
		return err
	}
	t.listeners = make(map[string]net.Listener)
	for _, e := range endpoints {
		t.listeners[e.Name] = e.Listener
	}
	return nil
}

// waiting is a listener that has no endpoint before the takeover.
type waiting struct {
	*takeover
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
