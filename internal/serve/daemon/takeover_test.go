// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// pipes are the endpoints of a node, with who has them.
type pipes struct {
	mu     sync.Mutex
	theirs map[string]bool
	ours   []string
}

func (p *pipes) Listen(name string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.theirs[name] {
		return nil, fmt.Errorf("%s: %w", name, pipe.ErrInUse)
	}
	p.ours = append(p.ours, name)
	return &pipeListener{bufconn.Listen(1), p, name}, nil
}

type pipeListener struct {
	net.Listener
	*pipes
	name string
}

func (l *pipeListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ours = slices.DeleteFunc(l.ours, func(name string) bool { return name == l.name })
	return l.Listener.Close()
}

func (p *pipes) held(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.theirs[name] {
		return fmt.Errorf("%s is %w: process 17", name, pipe.ErrInUse)
	}
	return nil
}

func (p *pipes) set(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.theirs = make(map[string]bool)
	for _, name := range names {
		p.theirs[name] = true
	}
}

func (p *pipes) want(t *testing.T, d *Daemon, when string, ours int, why string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ours) != ours || !slices.Contains(p.ours, "csi-proxy-storage-v1alpha1") && ours > 0 {
		t.Errorf("%s: ours are %d, want %d: %v", when, len(p.ours), ours, p.ours)
	}
	if err := d.Readiness(); (err != nil) != (why != "") || err != nil && !strings.Contains(err.Error(), why) {
		t.Errorf("%s: not ready for %v, want %q", when, err, why)
	}
}

// While another process has one of the published endpoints, none of them is ours, and the storage API
// is served. They are ours when nobody has had one for 30 seconds, and again none after the stop.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, err := winsim.Open(winsim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ops, err := nodeops.New(sys, nodeops.Options{})
		if err != nil {
			t.Fatal(err)
		}
		services, err := rpc.Services(rpc.Operations(ops.Operations))
		if err != nil {
			t.Fatal(err)
		}
		all, storage := len(services), len(slices.DeleteFunc(slices.Clone(services), ofPublished))
		var p pipes
		p.set("csi-proxy-volume-v1beta1") // one is enough
		s, err := New(Config{Operations: rpc.Operations(ops.Operations), Listen: p.Listen, Held: p.held})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx) }()
		p.want(t, s, "taken at the start", storage, "process 17")
		time.Sleep(time.Hour)
		p.want(t, s, "an hour later", storage, "process 17")
		p.set()
		time.Sleep(20 * time.Second)
		p.want(t, s, "20 seconds after they left", storage, "process 17")
		p.set("csi-proxy-disk-v1", "csi-proxy-volume-v1")
		time.Sleep(time.Minute)
		p.want(t, s, "they are back", storage, "process 17")
		p.set()
		time.Sleep(28 * time.Second)
		p.want(t, s, "28 seconds after they left again", storage, "process 17")
		time.Sleep(6 * time.Second)
		p.want(t, s, "34 seconds after they left again", all, "")
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		p.want(t, s, "stopped", 0, "stopping")
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A stop doesn't wait for them.
func TestStopBeforeTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pipes
		p.set("csi-proxy-system-v1alpha1")
		sys, err := winsim.Open(winsim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ops, err := nodeops.New(sys, nodeops.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Operations: rpc.Operations(ops.Operations), Listen: p.Listen, Held: p.held})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
		p.want(t, s, "stopped", 0, "stopping")
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
}
