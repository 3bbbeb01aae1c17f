// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is a CSI driver for Windows nodes, to be read and copied. It makes disks, SMB
// shares and iSCSI targets available to pods. What is special for Windows, the Node service, is
// package csinode's. Its own are two things: where the data of a volume are (source.go), and
// the Controller, which creates volumes in a cloud and attaches them to nodes (controller.go).
package driver

import (
	"log/slog"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud"
)

// Name is the driver's name, by which a CO knows it.
const Name = "example.csi-proxy.dev"

// Options configure a driver.
type Options struct {
	// Version is the version that GetPluginInfo returns.
	Version string
	// NodeID is the cloud's name for this node.
	NodeID string
	// Storage is CSI Proxy on this node: the field Storage of client.Client or node.Node.
	Storage csinode.Storage
	// StateDir is a directory of the driver's own for its records of staged volumes.
	// It must survive a restart of the driver.
	StateDir string
	// DiskWait is how long NodeStageVolume waits for a disk to arrive, and NodeExpandVolume
	// for one to grow. Default: csiproxy.DefaultWait.
	DiskWait time.Duration
	// Cloud makes the driver serve the Controller too. Default: it doesn't.
	Cloud *cloud.Cloud
	// PodIsGone and Events are package csinode's. Default: none, so links of pods that are gone stay.
	PodIsGone csinode.PodIsGone
	Events    csinode.Events
	// Logger logs each call. Default: they aren't logged.
	Logger *slog.Logger
}

// New returns a driver.
func New(o Options) (*csinode.Server, error) {
	var controller csi.ControllerServer
	if o.Cloud != nil {
		controller = &Controller{cloud: o.Cloud}
	}
	return csinode.New(csinode.Options{
		Name: Name, Version: o.Version, NodeID: o.NodeID, Storage: o.Storage, Source: sourceOf,
		StateDir: o.StateDir, Wait: o.DiskWait, Controller: controller,
		PodIsGone: o.PodIsGone, Events: o.Events, Logger: o.Logger,
	})
}
