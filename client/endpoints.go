// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Endpoint is the state of the endpoint of one version.
type Endpoint struct {
	Group, Version string
	Address        string // of the pipe or socket; with WithDialer only the endpoint's name
	Served         bool   // the daemon answers
	// Err says why an existing endpoint isn't served. Err is nil for a missing endpoint.
	Err error
}

// Endpoints checks for each version of all API groups whether the endpoint is served. The result is
// in alphabetical order of the groups, newest version first.
//
// If an endpoint accepts the connection and never answers, Endpoints waits until ctx ends.
func (c *Client) Endpoints(ctx context.Context) []Endpoint {
	var endpoints []Endpoint
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			endpoints = append(endpoints, Endpoint{Group: group, Version: version, Address: c.options.address(group, version)})
		}
	}
	var checks sync.WaitGroup
	for i := range endpoints {
		checks.Go(func() { c.check(ctx, &endpoints[i]) })
	}
	checks.Wait()
	return endpoints
}

// check tests whether an endpoint is served and records the result in e.
func (c *Client) check(ctx context.Context, e *Endpoint) {
	err := checkEndpoint(ctx, c.options.dial, e.Group, e.Version)
	e.Served = err == nil
	if !errors.Is(err, fs.ErrNotExist) {
		e.Err = err
	}
}

// Ready returns nil if CSI Proxy answers now. Ready is meant for a driver's readiness probe and
// always makes a new connection. If the daemon is missing or stopping, the error is
// csiproxy.ErrUnavailable. The published daemon has no health checks: any answer counts as ready.
//
// Ready asks one of the groups that every daemon serves. A driver of the storage group, which the
// published daemon lacks, uses [Storage.Ready].
//
// If the daemon accepts the connection and never answers, Ready waits until ctx ends.
func (c *Client) Ready(ctx context.Context) error {
	var err error
	for _, name := range api.PublishedGroups() { // any group that each daemon has will do
		if err = c.groups[name].ready(ctx); !errors.Is(err, csiproxy.ErrUnavailable) {
			break
		}
	}
	return connectError(err)
}

func connectError(err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Op: "connect", Object: "to CSI Proxy", Err: err}
}

// ready returns nil if the newest version served answers.
func (g *group) ready(ctx context.Context) error {
	ctx, cancel := g.withClose(ctx)
	defer cancel()
	if g.options.invalid != nil {
		return g.options.invalid
	}
	if err := g.ended(ctx); err != nil {
		return err
	}
	_, err := g.first(ctx, func(ctx context.Context, version string) error {
		return checkEndpoint(ctx, g.options.dial, g.name, version)
	})
	return err
}

// checkEndpoint returns nil if the endpoint of a version is served. Errors of dial stay unwrapped.
func checkEndpoint(ctx context.Context, dial Dialer, group, version string) error {
	probe, err := dial(ctx, group, version)
	if err != nil {
		return err
	}
	_ = probe.Close() // nothing was sent that could get lost
	conn, err := newConn(group, version, func(ctx context.Context, _ string) (net.Conn, error) {
		return dial(ctx, group, version)
	})
	if err != nil {
		return err
	}
	response, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
	closeErr := conn.Close()
	switch {
	case status.Code(err) == codes.Unimplemented:
		return closeErr // the published daemon answers, but has no health checks
	case err != nil:
		return wire.FromStatus(err)
	case response.Status != healthgrpc.HealthCheckResponse_SERVING:
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the daemon is stopping")
	}
	return closeErr
}
