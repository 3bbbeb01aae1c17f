// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

func TestEndpoints(t *testing.T) {
	published := newDaemon(t, emptyAnswer) // has no health checks
	published.serve("disk v1", "smb v1")

	ending, checks := serveHealth(t)
	checks.Shutdown()

	c := New(WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
		switch group + " " + version {
		case "volume v1":
			return ending.DialContext(ctx)
		case "volume v1beta1":
			return nil, syscall.ECONNREFUSED
		}
		return published.dial(ctx, group, version)
	}))
	defer c.Close()

	endpoints := c.Endpoints(t.Context())
	if want := api.VersionCount(); len(endpoints) != want {
		t.Errorf("%d endpoints, want %d", len(endpoints), want)
	}
	want := map[string]error{
		"disk v1": nil, "smb v1": nil, "volume v1": csiproxy.ErrUnavailable, "volume v1beta1": syscall.ECONNREFUSED,
	}
	for _, e := range endpoints {
		err, there := want[e.Group+" "+e.Version]
		if e.Served != (there && err == nil) || !errors.Is(e.Err, err) {
			t.Errorf("%s %s: served %v, error %v; want error %v", e.Group, e.Version, e.Served, e.Err, err)
		}
		if e.Address == "" {
			t.Errorf("%s %s has no address", e.Group, e.Version)
		}
	}
	if first := endpoints[0]; first.Group != "disk" || first.Version != "v1" {
		t.Errorf("first endpoint %+v, want disk v1", first)
	}
}

// serveHealth serves the health service alone.
func serveHealth(t *testing.T) (*bufconn.Listener, *health.Server) {
	listener := bufconn.Listen(64 << 10)
	server, checks := grpc.NewServer(), health.NewServer()
	healthgrpc.RegisterHealthServer(server, checks)
	go server.Serve(listener) // ends with the server
	t.Cleanup(server.Stop)
	return listener, checks
}

// Ready doesn't rely on what was found out before.
func TestReady(t *testing.T) {
	d := newDaemon(t, emptyAnswer) // the published one: it has no health checks
	c := d.newClient(t)
	wantKind(t, c.Ready(t.Context()), csiproxy.ErrUnavailable)
	for range 2 {
		d.serve("volume v1beta1") // of any group, in any version
		if err := c.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := c.Volume.GetVolumeStats(t.Context(), wiretest.VolumeA)
		if errors.Is(err, csiproxy.ErrUnavailable) { // the client hadn't noticed yet that the daemon had stopped before
			_, err = c.Volume.GetVolumeStats(t.Context(), wiretest.VolumeA)
		}
		if err != nil {
			t.Error(err)
		}
		d.stop("volume v1beta1")
		wantKind(t, c.Ready(t.Context()), csiproxy.ErrUnavailable)
	}
}

// The group storage is asked for by itself: a daemon may serve only the other groups, and a
// container may have only this pipe.
func TestStorageReady(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	c := d.newClient(t)
	for _, group := range api.PublishedGroups() {
		d.serve(group + " " + api.Versions(group)[0])
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	wantKind(t, c.Storage.Ready(t.Context()), csiproxy.ErrUnavailable)
	d.serve("storage v1alpha1")
	for _, group := range api.PublishedGroups() {
		d.stop(group + " " + api.Versions(group)[0])
	}
	if err := c.Storage.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wantKind(t, c.Storage.Ready(t.Context()), csiproxy.ErrFailedPrecondition)
}

func TestReadyAsksTheDaemon(t *testing.T) {
	listener, checks := serveHealth(t)
	c := New(WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	defer c.Close()
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	checks.Shutdown() // it is about to end, and takes connections still
	wantKind(t, c.Ready(t.Context()), csiproxy.ErrUnavailable)
	checks.Resume()
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// A daemon that takes connections and says nothing isn't ready.
func TestReadyEndsWithItsContext(t *testing.T) {
	asking := make(chan struct{})
	var dials atomic.Int32
	c := New(WithDialer(func(context.Context, string, string) (net.Conn, error) {
		if dials.Add(1) == 2 { // the first one only looks whether it is there
			close(asking)
		}
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		return ours, nil
	}))
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asking
		cancel()
	}()
	wantKind(t, c.Ready(ctx), context.Canceled)
}
