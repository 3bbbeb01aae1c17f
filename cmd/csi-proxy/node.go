// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-proxy/csi-proxy/internal/host/nodemetrics"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// openNode opens the node that the command line chooses. This is the one place
// that picks the system below.
func openNode(ctx context.Context, o options, log *slog.Logger) (*openedNode, error) {
	sys, control, err := openSystem(o, log)
	if err != nil {
		return nil, fmt.Errorf("open %s node: %w", o.node, err)
	}
	metrics := nodemetrics.NewNode()
	o.SMBWithoutPrivacy, o.Logger = !o.requirePrivacy, log
	o.OnOperation, o.OnWindowsCall, o.OnSkippedDisks = metrics.Operation, metrics.WindowsCall, metrics.SkippedDisks
	n, err := nodeops.New(sys, o.Options, o.ofDrivers...)
	if err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	metrics.Watch(nodemetrics.Sources{
		Load: n.Load, LogOns: n.RefusedLogOns,
		Disks: n.DiskStates, StagedVolumes: n.StagedVolumes, Mappings: n.MappingStates, Links: n.Links,
		ForeignRecords: n.ForeignRecords, VolumeUse: n.VolumeUse, MissingVolumes: n.MissingVolumes,
	})
	lockFile, err := n.KeepLockFile(ctx)
	if err != nil {
		log.Warn("the lock file can't be made now, and is made when it is needed", "err", err)
		lockFile = io.NopCloser(nil) // there is nothing to close
	}
	warnOfMissingVolumes(ctx, n, log)
	return &openedNode{
		operations: rpc.Operations(n.Operations),
		ofDriver:   n.Driver,
		control:    control,
		collectors: []prometheus.Collector{metrics},
		close: func() error {
			metrics.CloseInventory()
			return errors.Join(lockFile.Close(), sys.Close())
		},
	}, nil
}

// missingVolumesTimeout is how long the start waits for Windows to list its volumes.
const missingVolumesTimeout = 5 * time.Second

// warnOfMissingVolumes warns of a -protected-volume that isn't there, mostly since its drive letter is
// wrong or the kind of machine has none.
func warnOfMissingVolumes(ctx context.Context, n *nodeops.Node, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, missingVolumesTimeout)
	defer cancel()
	missing, err := n.MissingVolumes(ctx)
	if err != nil {
		log.Warn("it isn't known whether the volumes of -protected-volume are there: Windows can't be asked now",
			"err", err)
	}
	for _, volume := range slices.Sorted(maps.Keys(missing)) {
		lookedFor := "a volume with this id, among those that mountvol lists"
		if strings.HasSuffix(volume, ":") {
			lookedFor = "a volume with this drive letter"
		}
		if missing[volume] {
			log.Warn("-protected-volume names a volume that isn't there; until it comes, only data disks of Azure are partitioned "+
				"and formatted",
				"volume", volume, "lookedFor", lookedFor)
		}
	}
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
