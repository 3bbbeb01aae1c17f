// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon puts the daemon together: the operations of a node, served in every
// published version, each at an endpoint of its own. The command csi-proxy and package
// simnode are made of it.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/rpc"
	"github.com/csi-proxy/csi-proxy/internal/server"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
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
	// Address is where clients find the endpoint with a name, for the log. Default: the
	// name.
	Address func(name string) string
	// Interceptors run around each call that has one response, and StreamInterceptors
	// around each streaming call. They see the gRPC statuses of errors.
	Interceptors       []grpc.UnaryServerInterceptor
	StreamInterceptors []grpc.StreamServerInterceptor
	// Limits bound the calls under way at all endpoints together.
	Limits server.Limits
	// GracePeriod is how long a stop waits for running calls before it cancels them.
	GracePeriod time.Duration
	// Log is told what is served, and of the calls. Default: none.
	Log *slog.Logger
}

// maxControlBytes bounds the requests that control a simulated node. They carry what is
// written to its disks and files.
const maxControlBytes = 1 << 20

// New makes the listeners of all endpoints, or of none if it fails, and returns the
// server that serves them.
func New(c Config) (*server.Server, error) {
	versions, err := rpc.Services(c.Operations)
	if err != nil {
		return nil, err
	}
	var endpoints []server.Endpoint
	for _, v := range versions { // newest first, which clients rely on that look for one while the daemon starts
		endpoints = append(endpoints, server.Endpoint{Name: api.EndpointName(v.Group, v.Version), Service: v})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Control)) {
		endpoints = append(endpoints,
			server.Endpoint{Name: name, Service: c.Control[name], MaxRequestBytes: maxControlBytes})
	}
	if err := listen(endpoints, c.Listen); err != nil {
		return nil, err
	}
	s := server.New(server.Config{
		Endpoints:          endpoints,
		Interceptors:       append(slices.Clone(c.Interceptors), rpc.ErrorInterceptor, shareWindows),
		StreamInterceptors: append(slices.Clone(c.StreamInterceptors), rpc.StreamErrorInterceptor, shareWindowsOfStream),
		Limits:             c.Limits,
		GracePeriod:        c.GracePeriod,
		Log:                c.Log,
	})
	if c.Log != nil {
		c.announce(versions)
	}
	return s, nil
}

// shareWindows says for which client calls to Windows are made, since clients share these.
func shareWindows(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(wincalls.WithClient(ctx, server.ClientOf(ctx)), req)
}

// shareWindowsOfStream is shareWindows for streaming calls.
func shareWindowsOfStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return handler(srv, clientStream{stream, wincalls.WithClient(stream.Context(), server.ClientOf(stream.Context()))})
}

// clientStream is a stream whose context says for which client it is.
type clientStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s clientStream) Context() context.Context { return s.ctx }

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
