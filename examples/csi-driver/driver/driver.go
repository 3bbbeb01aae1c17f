// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is a CSI driver for Windows nodes, to be read and copied. It makes
// disks, SMB shares and iSCSI targets available to pods, with CSI Proxy and nothing else.
//
// [Driver] serves the three CSI services. Identity describes the driver. The Controller
// creates volumes in a cloud and attaches them to nodes. Node is the part that is special
// for Windows: it stages a volume (makes it usable at one path of the node), publishes it
// (shows it to a pod at another path), and undoes both.
//
// Each call may be repeated, even after a crash in the middle of the first, and then does
// what is left to do.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/examples/csi-driver/cloud"
)

// Name is the driver's name, by which a CO knows it.
const Name = "example.csi-proxy.dev"

// Options configure a driver.
type Options struct {
	// Version is the version that GetPluginInfo returns.
	Version string
	// NodeID is the cloud's name for this node.
	NodeID string
	// Proxy is CSI Proxy on this node.
	Proxy Proxy
	// StateDir is a directory of the driver's own for its records of staged volumes.
	// It must survive a restart of the driver.
	StateDir string
	// DiskWait is how long NodeStageVolume waits for a disk to arrive, and NodeExpandVolume
	// for one to grow. Default: storage.DefaultWait.
	DiskWait time.Duration
	// Cloud makes the driver serve the Controller too. Default: it doesn't.
	Cloud *cloud.Cloud
	// Logger logs each call. Default: they aren't logged.
	Logger *slog.Logger
}

// Driver is the driver on one node.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	options Options
	records records
	volumes locks // one call at a time on each
}

// New returns a driver.
func New(o Options) *Driver {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Driver{options: o, records: records{o.StateDir}}
}

// Serve serves until ctx ends. Calls under way may then finish within the grace period.
func (d *Driver) Serve(ctx context.Context, l net.Listener) error {
	const gracePeriod = 10 * time.Second
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	if d.options.Cloud != nil {
		csi.RegisterControllerServer(server, d)
	}
	defer context.AfterFunc(ctx, func() {
		cut := time.AfterFunc(gracePeriod, server.Stop)
		defer cut.Stop()
		server.GracefulStop()
	})()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CSI: %w", err)
	}
	return nil
}

// intercept logs a call and gives its error a code. It never logs the request, which may
// have secrets.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	response, err := handler(ctx, request)
	log := d.options.Logger.With("call", path.Base(info.FullMethod), "took", time.Since(start).Round(time.Microsecond))
	if id, ok := request.(interface{ GetVolumeId() string }); ok {
		log = log.With("volume", id.GetVolumeId())
	}
	if err == nil {
		log.Info("done")
		return response, nil
	}
	err = withCode(err)
	log.Error("the call failed", "code", status.Code(err), "err", status.Convert(err).Message())
	return nil, err
}
