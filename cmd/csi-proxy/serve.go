// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/internal/daemon"
	"github.com/csi-proxy/csi-proxy/internal/drain"
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
		"allowedPaths", append([]string{o.KubeletPath}, o.WorkingDirs...))

	claimed, err := pipe.ClaimGuarded(o.endpointDir, o.pipeSecurity)
	if errors.Is(err, pipe.ErrInUse) {
		err = fmt.Errorf("%w; a daemon runs already: stop it first", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claimed.Close()) }()

	var interceptors []grpc.UnaryServerInterceptor
	var streamInterceptors []grpc.StreamServerInterceptor
	metrics := exporter.New(build, log)
	if o.metricsAddress != "" {
		stop, err := serveMetrics(o.metricsAddress, o.webConfig, metrics, log)
		if err != nil {
			return err
		}
		defer stop()
		interceptors = append(interceptors, metrics.CountCalls())
		streamInterceptors = append(streamInterceptors, metrics.CountStreams())
	}
	if o.healthAddress != "" {
		stop, err := serveHTTP("health", o.healthAddress, log, metrics.ServeHealth)
		if err != nil {
			return err
		}
		defer stop()
	}

	node, err := open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	served, err := servedVersions(node.operations)
	if err != nil {
		return err
	}
	drains, err := claimed.Administrators().Listen(ctx, drain.EndpointName)
	if err != nil {
		return err
	}
	s, err := daemon.New(daemon.Config{
		Operations:         node.operations,
		Control:            node.control,
		Listen:             func(name string) (net.Listener, error) { return claimed.Listen(ctx, name) },
		Address:            func(name string) string { return pipe.Address(o.endpointDir, name) },
		Interceptors:       interceptors,
		StreamInterceptors: streamInterceptors,
		Limits:             o.limits,
		GracePeriod:        o.gracePeriod,
		Log:                log,
	})
	if err != nil {
		return errors.Join(err, drains.Close())
	}
	defer serveOn("drains", drains, log, func(ctx context.Context, l net.Listener) error {
		return drain.Serve(ctx, l, s.Drain)
	})()
	metrics.Register(node.collectors...)
	metrics.Register(exporter.Connections(s.Connections), exporter.Calls(s.Calls), exporter.Versions(served))
	metrics.SetReady(true)
	defer context.AfterFunc(ctx, func() {
		metrics.SetReady(false)
		log.Info("stopping", "cause", context.Cause(ctx), "gracePeriod", o.gracePeriod)
	})()
	ready()
	return s.Serve(ctx)
}

// servedVersions returns the versions of the API that operations are served in, by group.
func servedVersions(operations rpc.Operations) (map[string][]string, error) {
	services, err := rpc.Services(operations)
	served := make(map[string][]string)
	for _, s := range services {
		served[s.Group] = append(served[s.Group], s.Version)
	}
	return served, err
}

// serveMetrics serves metrics until stop is called.
func serveMetrics(address, webConfig string, metrics *exporter.Exporter, log *slog.Logger) (stop func(), err error) {
	if err := exporter.Check(webConfig); err != nil {
		return nil, fmt.Errorf("serve metrics: -web.config.file: %w", err)
	}
	return serveHTTP("metrics", address, log, func(ctx context.Context, l net.Listener) error {
		return metrics.Serve(ctx, l, webConfig)
	})
}

// serveHTTP serves what at an address until stop is called.
func serveHTTP(what, address string, log *slog.Logger,
	serve func(context.Context, net.Listener) error) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve %s: -%s-bind-address: %w", what, what, err)
	}
	return serveOn(what, l, log, serve), nil
}

// serveOn serves what on l, which serve closes, until stop is called.
func serveOn(what string, l net.Listener, log *slog.Logger,
	serve func(context.Context, net.Listener) error) (stop func()) {
	log.Info("serving "+what, "address", l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(ctx, l); err != nil {
			log.Error("no "+what+" any more", "err", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
