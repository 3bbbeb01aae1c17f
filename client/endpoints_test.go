// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestEndpoints(t *testing.T) {
	published := newDaemon(t, emptyAnswer) // has no health checks
	published.serve("disk v1", "smb v1")

	ending := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	checks := health.NewServer()
	checks.Shutdown()
	healthgrpc.RegisterHealthServer(server, checks)
	go server.Serve(ending) // ends with the server
	defer server.Stop()

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
	if len(endpoints) != 23 {
		t.Errorf("%d endpoints, want 23", len(endpoints))
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
