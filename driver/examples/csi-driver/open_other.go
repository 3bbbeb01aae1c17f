// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud/hardware"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// open returns a simulated node: that of the daemon, or one in the driver's state
// directory. Its hardware is the cloud.
func open(o options) (*openedNode, error) {
	if o.via == viaInProcess {
		n, err := simnode.Start(simnode.WithStateFile(filepath.Join(o.stateDir, "node.db")))
		if err != nil {
			return nil, err
		}
		plugs, err := hardware.InProcess(n)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		return &openedNode{storage: n.Operations().Storage, hardware: plugs, closers: []io.Closer{plugs, n}}, nil
	}
	c := client.New(o.clientOptions()...)
	plugs, err := hardware.OfDaemon(o.endpointDir)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &openedNode{storage: c.Storage, hardware: plugs, closers: []io.Closer{c, plugs}}, nil
}
