// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smbprobe asks SMB servers whether paths are there. A server that doesn't
// answer holds up only those who ask about it.
package smbprobe

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const (
	// A dead server keeps those who ask it for 20 to 60 seconds, and a thread each.
	maxProbes          = 32 // at one time
	maxProbesOfAServer = 4  // so that a dead one leaves room for the others
	// patience is for callers without a deadline.
	patience = 90 * time.Second
)

// Prober asks servers whether paths are there. Windows can't be made to give up a
// call to a server, so the calls are made apart from their callers, who leave when
// their context ends.
type Prober struct {
	sys   win.Files
	slots chan struct{}

	mu      sync.Mutex // guards what is below, also in the servers; held for moments
	servers map[string]*server
}

type server struct {
	slots  chan struct{}
	probes map[string]*probe // under way, by path in lower case
	users  int               // callers and probes
}

// probe is a call under way.
type probe struct {
	done chan struct{}
	// Set before done is closed.
	err      error
	panicked any
}

// New returns a prober of the servers that sys knows. The groups of one node
// share it.
func New(sys win.Files) *Prober {
	return &Prober{sys: sys, slots: make(chan struct{}, maxProbes), servers: make(map[string]*server)}
}

// Probe returns the error that Windows has for a path, nil if it is there. Callers
// for one path share one call. The end of ctx gives ctx's error; without a deadline,
// a server that doesn't answer gives csiproxy.ErrUnavailable after a while.
//
// Windows logs in to whatever server it is asked about: callers must know that it is
// one to be trusted with that.
func (p *Prober) Probe(ctx context.Context, path unc.Path) error {
	s := p.enter(path.Server())
	defer p.leave(path.Server(), s)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pr *probe
	err := operation.Idle(bounded, func() (err error) {
		if pr, err = p.join(bounded, s, path); err != nil {
			return err
		}
		select {
		case <-pr.done:
			return nil
		case <-bounded.Done():
			return bounded.Err()
		}
	})
	if err == nil {
		if pr.panicked != nil {
			panic(pr.panicked)
		}
		return pr.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the server doesn't answer")
}

// Forget makes the next caller for a path on the share of root begin a new probe,
// since those under way may have seen what was before.
func (p *Prober) Forget(root unc.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.servers[root.Server()]
	if s == nil {
		return
	}
	for key := range s.probes {
		if key == root.Root() || strings.HasPrefix(key, root.Root()+`\`) {
			delete(s.probes, key)
		}
	}
}

func (p *Prober) enter(name string) *server {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.servers[name]
	if s == nil {
		s = &server{slots: make(chan struct{}, maxProbesOfAServer), probes: make(map[string]*probe)}
		p.servers[name] = s
	}
	s.users++
	return s
}

func (p *Prober) leave(name string, s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(p.servers, name)
	}
}

// join returns the probe of path that is under way, or begins one when there is
// room.
func (p *Prober) join(ctx context.Context, s *server, path unc.Path) (*probe, error) {
	key := path.Folded()
	p.mu.Lock()
	pr := s.probes[key]
	p.mu.Unlock()
	if pr != nil {
		return pr, nil
	}
	if err := acquire(ctx, s.slots); err != nil {
		return nil, err
	}
	if err := acquire(ctx, p.slots); err != nil {
		<-s.slots
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := s.probes[key]; pr != nil { // somebody else's, begun meanwhile
		<-s.slots
		<-p.slots
		return pr, nil
	}
	pr = &probe{done: make(chan struct{})}
	s.probes[key] = pr
	s.users++
	go p.run(context.WithoutCancel(ctx), s, path, key, pr)
	return pr, nil
}

func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the call. A panic is passed on to those who wait: they know what to do
// with it, while here it would end the process.
func (p *Prober) run(ctx context.Context, s *server, path unc.Path, key string, pr *probe) {
	defer func() {
		if v := recover(); v != nil {
			pr.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
		p.mu.Lock()
		if s.probes[key] == pr { // it may have been forgotten
			delete(s.probes, key)
		}
		p.mu.Unlock()
		<-s.slots
		<-p.slots
		p.leave(path.Server(), s)
		close(pr.done)
	}()
	_, pr.err = p.sys.FileAttributes(ctx, path.String())
}
