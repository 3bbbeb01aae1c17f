// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/serve/server/exporter"
)

// opener opens the node to serve.
type opener func(ctx context.Context, o options, log *slog.Logger) (*openedNode, error)

// openedNode is a node with what belongs to it.
type openedNode struct {
	operations rpc.Operations
	ofDriver   func(name string) nodeops.Operations
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
	for _, warning := range o.warnings {
		log.Warn("warning about the flags", "warning", warning)
	}

	claimed, err := pipe.ClaimGuarded(o.endpointDir, o.pipeSecurity)
	if err != nil {
		return onlyOne(err)
	}
	defer func() { err = errors.Join(err, claimed.Close()) }()

	metrics := exporter.New(build, log)
	if o.metricsAddress != "" {
		defer serveMetrics(o, metrics, log)()
	}

	node, err := open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	adminListener, err := claimed.Administrators().Listen(ctx, admin.EndpointName)
	if err != nil {
		return onlyOne(err)
	}
	daemons, err := newDaemons(ctx, o, log, node, claimed, metrics)
	if err != nil {
		return errors.Join(err, adminListener.Close())
	}
	defer serveOn("administrators", adminListener, log, func(ctx context.Context, l net.Listener) error {
		return admin.Serve(ctx, l, daemons.drain, metrics.Admin())
	})()
	metrics.Register(node.collectors...)
	metrics.Register(exporter.Connections(daemons.connections), exporter.Calls(daemons.calls),
		exporter.Versions(daemons.served))
	metrics.Register(o.driversMetric()...)
	metrics.SetReadiness(func() (string, error) {
		missing, err := daemons.readiness()
		if err == nil && missing == "" {
			missing, _ = o.changedDrivers()
		}
		return missing, err
	})
	stopping := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopping)
		log.Info("stopping", "cause", context.Cause(ctx), "gracePeriod", o.gracePeriod)
	})
	defer func() {
		if !cancel() {
			<-stopping // so that the line is in the log before the process ends
		}
	}()
	ready()
	return daemons.serve(ctx, log)
}

// onlyOne says what to do if another CSI Proxy runs already. The daemon waits for the end of a published daemon only:
// beside another CSI Proxy, probes at the administrators' endpoint would get the other daemon's answers.
func onlyOne(err error) error {
	if errors.Is(err, pipe.ErrInUse) {
		err = fmt.Errorf("%w; a daemon runs already: stop one of the two", err)
	}
	return err
}

// listenInterval is the time between two tries to have an address for HTTP.
var listenInterval = 5 * time.Second

// serveMetrics serves metrics at their address until stop is called. If the address can't be had, since
// another process has the port, it tries again and again: no driver's call depends on it.
func serveMetrics(o options, metrics *exporter.Exporter, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for warned := false; ctx.Err() == nil; {
			l, err := net.Listen("tcp", o.metricsAddress)
			if err == nil {
				log.Info("serving metrics", "address", l.Addr())
				warned = false
				err = metrics.Serve(ctx, l)
			}
			if err == nil {
				return
			}
			metrics.CountUnserved()
			if !warned {
				warned = true
				log.Warn("no HTTP at the address of -metrics-bind-address; trying again, and serving drivers meanwhile",
					"address", o.metricsAddress, "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(listenInterval):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
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
			log.Error("serving "+what+" has ended", "err", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
