// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-proxy/csi-proxy/internal/nodemetrics"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/rpc"
	"github.com/csi-proxy/csi-proxy/internal/server"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// openNode opens the node that the command line chooses. This is the one place
// that picks the system below.
func openNode(_ context.Context, o options, log *slog.Logger) (*openedNode, error) {
	sys, control, err := openSystem(o, log)
	if err != nil {
		return nil, fmt.Errorf("open %s node: %w", o.node, err)
	}
	metrics := nodemetrics.NewNode()
	o.SMBWithoutPrivacy, o.Logger = !o.requirePrivacy, log
	o.OnOperation, o.OnWindowsCall, o.OnSkippedDisks = metrics.Operation, metrics.WindowsCall, metrics.SkippedDisks
	n, err := nodeops.New(sys, o.Options)
	if err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	metrics.Watch(nodemetrics.Sources{
		Load: n.Load, LogOns: n.RefusedLogOns, Unstages: n.RefusedUnstages,
		Disks: n.DiskStates, StagedVolumes: n.StagedVolumes, Mappings: n.MappingStates, LinksToNothing: n.LinksToNothing,
	})
	stop := n.KeepDirectories()
	return &openedNode{
		operations: rpc.Operations(n.Operations),
		control:    control,
		collectors: []prometheus.Collector{metrics},
		close: func() error {
			metrics.CloseInventory()
			return errors.Join(stop(), sys.Close())
		},
	}, nil
}

// system is a node's system that is closed when the daemon ends.
type system interface {
	win.System
	io.Closer
}

// openSystem opens the system below, with the services that control it, if it has
// any, by the names of their endpoints.
func openSystem(o options, log *slog.Logger) (system, map[string]server.Service, error) {
	if o.node == nodeSimulated {
		return openSimulated(o)
	}
	sys, err := openWindows(o, log)
	return sys, nil, err
}

// openSimulated opens a simulated node. It is nil in the released daemon for Windows, so
// that nothing of it is on the nodes of a cluster.
var openSimulated func(o options) (system, map[string]server.Service, error)
