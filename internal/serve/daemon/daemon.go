// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon puts the daemon together: the operations of a node, served in every
// published version, each at an endpoint of its own. The command csi-proxy and package
// simnode are made of it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

// Config says what to serve, where and how.
type Config struct {
	// Operations are the operations of the node. A group without them isn't served.
	Operations rpc.Operations
	// Control are services beside the API, by the names of their endpoints: those that
	// control a simulated node.
	Control map[string]server.Service
	// Listen makes the listener of the endpoint with a name.
	Listen func(name string) (net.Listener, error)
	// Held returns an error that names who serves the endpoint with a name, nil if nobody does. If it
	// is set, New succeeds while another process has one of the published endpoints. The storage API
	// and Control are served at once, and all published endpoints when nobody has had one of them for
	// 30 seconds.
	Held func(ctx context.Context, name string) error
	// Address is where clients find the endpoint with a name, for the log. Default: the
	// name.
	Address func(name string) string
	// Interceptors run around each call that has one response, and StreamInterceptors
	// around each streaming call. They see the gRPC statuses of errors.
	Interceptors       []grpc.UnaryServerInterceptor
	StreamInterceptors []grpc.StreamServerInterceptor
	// MaxCalls is how many calls may be under way at all endpoints together, without
	// streaming ones. Default: server.DefaultMaxCalls.
	MaxCalls int
	// GracePeriod is how long a stop waits for running calls before it cancels them.
	GracePeriod time.Duration
	// Log gets what is served, and the calls. Default: none.
	Log *slog.Logger
}

// ofPublished reports whether the published daemon has the group of a service: all have but the
// storage API.
func ofPublished(s *rpc.Service) bool { return s.Group != "storage" }

// Daemon is the server of a node's operations.
type Daemon struct {
	*server.Server
	takeover *takeover // nil if the published endpoints were free at the start
}

// Readiness returns nil while drivers' calls are taken at all published endpoints, else why they aren't.
func (d *Daemon) Readiness() error {
	if err := d.Refusing(); err != nil || d.takeover == nil {
		return err
	}
	if err := d.takeover.waitsFor(); err != nil {
		return fmt.Errorf("waiting until another process leaves: %w; the storage API is served", err)
	}
	return nil
}

// maxControlBytes bounds the requests that control a simulated node. They carry what is
// written to its disks and files.
const maxControlBytes = 1 << 20

// New makes the listeners of all endpoints, or of none if it fails, and returns the
// daemon that serves them.
func New(c Config) (*Daemon, error) {
	versions, err := rpc.Services(c.Operations)
	if err != nil {
		return nil, err
	}
	var published, endpoints []server.Endpoint
	for _, v := range versions { // newest first: a client that searches for the newest one while the daemon starts relies on it
		e := server.Endpoint{Name: api.EndpointName(v.Group, v.Version), Service: v}
		if ofPublished(v) {
			published = append(published, e)
		} else {
			endpoints = append(endpoints, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Control)) {
		endpoints = append(endpoints,
			server.Endpoint{Name: name, Service: c.Control[name], MaxRequestBytes: maxControlBytes})
	}
	if err := listen(endpoints, c.Listen); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := new(Daemon)
	switch err = listen(published, c.Listen); {
	case err == nil:
		c.announce(versions)
	case errors.Is(err, pipe.ErrInUse) && c.Held != nil:
		c.announce(slices.DeleteFunc(slices.Clone(versions), ofPublished))
		d.takeover = c.wait(published, versions, err)
	default:
		for _, e := range endpoints {
			err = errors.Join(err, e.Listener.Close())
		}
		return nil, err
	}
	endpoints = append(published, endpoints...)
	d.Server = server.New(server.Config{
		Endpoints:          endpoints,
		Interceptors:       append(slices.Clone(c.Interceptors), rpc.ErrorInterceptor),
		StreamInterceptors: append(slices.Clone(c.StreamInterceptors), rpc.StreamErrorInterceptor),
		MaxCalls:           c.MaxCalls,
		GracePeriod:        c.GracePeriod,
		Log:                c.Log,
	})
	return d, nil
}

// listen makes the listeners of the endpoints, in their order, or of none if it fails.
func listen(endpoints []server.Endpoint, listener func(name string) (net.Listener, error)) (err error) {
	for i := range endpoints {
		if endpoints[i].Listener, err = listener(endpoints[i].Name); err != nil {
			for _, e := range endpoints[:i] {
				err = errors.Join(err, e.Listener.Close())
			}
			return err
		}
	}
	return nil
}

// announce logs what is served and where, with a line for each group.
func (c Config) announce(services []*rpc.Service) {
	address := c.Address
	if address == nil {
		address = func(name string) string { return name }
	}
	versions := make(map[string][]string)
	for _, service := range services {
		versions[service.Group] = append(versions[service.Group], service.Version)
	}
	for _, group := range api.Groups() {
		if len(versions[group]) > 0 {
			c.Log.Info("serving", "group", group, "versions", strings.Join(versions[group], " "),
				"address", address(api.EndpointName(group, "<version>")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Control)) {
		c.Log.Info("serving the control of the simulated node", "address", address(name))
	}
}
