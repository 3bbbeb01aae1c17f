// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/pipe"
	"github.com/csi-proxy/csi-proxy/internal/rpc"
	"github.com/csi-proxy/csi-proxy/internal/server"
	"github.com/csi-proxy/csi-proxy/internal/server/exporter"
)

// opener opens the node to serve.
type opener func(ctx context.Context, o options, log *slog.Logger) (*openedNode, error)

// openedNode is a node with what belongs to it.
type openedNode struct {
	operations rpc.Operations
	control    map[string]server.Service // of a simulated node, by endpoint
	collectors []prometheus.Collector    // of what happens in the node
	close      func() error              // when the last operation has ended
}

// serve serves the node that open returns, until ctx is done, and calls ready when
// clients can connect. The claim to the endpoints is the first thing that it takes,
// and the last that it gives up.
func serve(ctx context.Context, o options, log *slog.Logger, open opener, ready func()) (err error) {
	build := currentBuild()
	log.Info("csi-proxy starts", "version", build.Version, "commit", build.Commit, "node", o.node,
		"allowedPaths", append([]string{o.kubeletPath}, o.workingDirs...))

	claimed, err := pipe.ClaimGuarded(o.endpointDir, o.pipeSecurity)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claimed.Close()) }()

	interceptors := []grpc.UnaryServerInterceptor{rpc.ErrorInterceptor}
	metrics := exporter.New(build, log)
	if o.metricsAddress != "" {
		stop, err := serveMetrics(o.metricsAddress, metrics, log)
		if err != nil {
			return err
		}
		defer stop()
		interceptors = []grpc.UnaryServerInterceptor{metrics.CountCalls(), rpc.ErrorInterceptor}
	}

	node, err := open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	services, err := rpc.Services(node.operations)
	if err != nil {
		return err
	}
	served := maps.Clone(node.control)
	if served == nil {
		served = make(map[string]server.Service)
	}
	for _, service := range services {
		served[api.EndpointName(service.Group, service.Version)] = service
	}
	endpoints, err := listen(ctx, claimed, served)
	if err != nil {
		return err
	}
	s, err := server.New(server.Config{
		Endpoints:    endpoints,
		Interceptors: interceptors,
		GracePeriod:  o.gracePeriod,
		Log:          log,
	})
	if err != nil {
		return err
	}
	metrics.Register(node.collectors...)
	metrics.Register(exporter.Connections(s.Connections))
	announce(log, o.endpointDir, services)
	for name := range node.control {
		log.Info("serving the control of the simulated node", "address", pipe.Address(o.endpointDir, name))
	}
	defer context.AfterFunc(ctx, func() {
		log.Info("stopping", "cause", context.Cause(ctx), "gracePeriod", o.gracePeriod)
	})()
	ready()
	return s.Serve(ctx)
}

// serveMetrics serves metrics until stop is called.
func serveMetrics(address string, metrics *exporter.Exporter, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	log.Info("serving metrics", "address", l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := metrics.Serve(ctx, l); err != nil {
			log.Error("no metrics any more", "err", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// listen listens on the endpoints of all services, given by the names of the
// endpoints, or of none.
func listen(ctx context.Context, claimed *pipe.Claimed, services map[string]server.Service) ([]server.Endpoint, error) {
	var endpoints []server.Endpoint
	for _, name := range slices.Sorted(maps.Keys(services)) {
		l, err := claimed.Listen(ctx, name)
		if err != nil {
			for _, e := range endpoints {
				err = errors.Join(err, e.Listener.Close())
			}
			return nil, err
		}
		endpoints = append(endpoints, server.Endpoint{Name: name, Service: services[name], Listener: l})
	}
	return endpoints, nil
}

// announce logs what is served and where, a line for each group.
func announce(log *slog.Logger, endpointDir string, services []*rpc.Service) {
	versions := make(map[string][]string)
	for _, service := range services {
		versions[service.Group] = append(versions[service.Group], service.Version)
	}
	for _, group := range api.Groups() {
		if len(versions[group]) > 0 {
			log.Info("serving", "group", group, "versions", strings.Join(versions[group], " "),
				"address", pipe.Address(endpointDir, api.EndpointName(group, "<version>")))
		}
	}
}
