// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	slow   time.Duration // that Listen takes
	mu     sync.Mutex
	theirs map[string]bool
	ours   []string
}

func (p *pipes) Listen(name string) (net.Listener, error) {
	time.Sleep(p.slow)
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

func (p *pipes) listening() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ours)
}

// want checks which endpoints are ours, by what they are, and what the daemon says about the others.
func (p *pipes) want(t *testing.T, d *Daemon, when, ours, missing, notReady string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var own, current, obsolete int
	for _, name := range p.ours {
		switch version := name[strings.LastIndex(name, "-")+1:]; {
		case strings.HasPrefix(name, "csi-proxy-storage-"):
			own++
		case version == "v1" || version == "v2alpha1" || strings.Contains(name, "-system-") || strings.Contains(name, "-iscsi-"):
			current++
		default:
			obsolete++
		}
	}
	if got := fmt.Sprint(own, current, obsolete); got != ours {
		t.Errorf("%s: ours are %s of storage, current and obsolete, want %s: %v", when, got, ours, p.ours)
	}
	said, err := d.Readiness()
	if err == nil {
		err = errors.New("ready")
	}
	if !strings.Contains(err.Error(), notReady) || !strings.Contains(said, missing) || missing == "" && said != "" {
		t.Errorf("%s: %v, and %q is missing; want %q, %q", when, err, said, notReady, missing)
	}
	served, unserved := d.Served()
	for _, name := range unserved {
		if slices.Contains(p.ours, name) {
			t.Errorf("%s: %s is said not to be served", when, name)
		}
	}
	n := len(unserved)
	for _, versions := range served {
		n += len(versions)
	}
	if n != 24 {
		t.Errorf("%s: %v are served, and %v not", when, served, unserved)
	}
}

// serveWith serves the API at the pipes until stop is called.
func (p *pipes) serve(t *testing.T) (d *Daemon, stop func()) {
	t.Helper()
	sys, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := nodeops.New(sys, nodeops.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err = New(Config{Operations: rpc.Operations(ops.Operations), Listen: p.Listen, Held: p.held})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	return d, func() {
		cancel()
		if err := errors.Join(<-served, sys.Close()); err != nil {
			t.Error(err)
		}
		p.want(t, d, "stopped", "0 0 0", "", "stopping")
	}
}

// What is ours: the storage API, what today's drivers use, and what is older than v1.
const (
	storageOnly = "1 0 0"
	current     = "1 9 0"
	all         = "1 9 14"
)

// While another process has one of the endpoints that today's drivers use, none of the published ones is
// ours. They are ours when nobody has had one for 30 seconds, and again none after the stop.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pipes
		p.set("csi-proxy-volume-v1") // one is enough
		d, stop := p.serve(t)
		p.want(t, d, "taken at the start", storageOnly, "", "process 17")
		time.Sleep(time.Hour)
		p.want(t, d, "an hour later", storageOnly, "", "process 17")
		p.set()
		time.Sleep(20 * time.Second)
		p.want(t, d, "20 seconds after they left", storageOnly, "", "process 17")
		p.set("csi-proxy-disk-v1", "csi-proxy-volume-v1beta1")
		time.Sleep(time.Minute)
		p.want(t, d, "they are back", storageOnly, "", "csi-proxy-disk-v1 ")
		p.set("csi-proxy-volume-v1beta1")
		time.Sleep(28 * time.Second)
		p.want(t, d, "28 seconds after they have left one", storageOnly, "", "process 17")
		time.Sleep(6 * time.Second)
		p.want(t, d, "34 seconds after they have left one", current, "csi-proxy-volume-v1beta1 ", "ready")
		p.set()
		time.Sleep(34 * time.Second)
		p.want(t, d, "34 seconds after they have left the other", all, "", "ready")
		stop()
	})
}

// An obsolete endpoint that another process has costs the obsolete ones.
func TestTakeoverOfObsolete(t *testing.T) {
	for _, taken := range []string{"csi-proxy-volume-v1beta1", "csi-proxy-disk-v1alpha1", "csi-proxy-smb-v1beta2"} {
		synctest.Test(t, func(t *testing.T) {
			var p pipes
			p.set(taken)
			d, stop := p.serve(t)
			time.Sleep(time.Hour)
			p.want(t, d, "taken at the start", current, taken+" is in use by another process: process 17", "ready")
			p.set()
			time.Sleep(34 * time.Second)
			p.want(t, d, "34 seconds after they left", all, "", "ready")
			stop()
		})
	}
}

// One that today's drivers use costs all, whatever its version: a client that looks for the newest version
// of each group would mix what another process says with the calls of this daemon.
func TestTakeoverOfCurrent(t *testing.T) {
	for _, taken := range []string{"csi-proxy-volume-v2alpha1", "csi-proxy-iscsi-v1alpha1", "csi-proxy-system-v1alpha1"} {
		synctest.Test(t, func(t *testing.T) {
			var p pipes
			p.set(taken)
			d, stop := p.serve(t)
			time.Sleep(time.Hour)
			p.want(t, d, "taken at the start", storageOnly, "", taken)
			stop()
		})
	}
}

// A stop doesn't wait for them, and leaves none behind.
func TestStopBeforeTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pipes
		p.set("csi-proxy-system-v1alpha1")
		_, stop := p.serve(t)
		synctest.Wait()
		p.set() // so that they would be ours in 30 seconds
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != 0 {
			t.Errorf("the stop takes %v", took)
		}
		time.Sleep(time.Hour)
		if ours := p.listening(); len(ours) > 0 {
			t.Errorf("after the stop %v are ours", ours)
		}
	})
}

// Nor does one that comes while they are being taken.
func TestStopInTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{slow: time.Second}
		services := []*rpc.Service{{Group: "disk", Version: "v1"}, {Group: "volume", Version: "v1"}}
		endpoints := Config{}.endpointsOf(services)
		takeover := newTakeover(Config{Listen: p.Listen, Held: p.held, Log: slog.New(slog.DiscardHandler)})
		takeover.add(endpoints, services, pipe.ErrInUse)
		go takeover.run()
		for len(p.listening()) == 0 {
			time.Sleep(time.Second / 2)
		}
		for _, e := range endpoints {
			if err := e.Listener.Close(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		if ours := p.listening(); len(ours) > 0 {
			t.Errorf("after the stop %v are ours", ours)
		}
	})
}
