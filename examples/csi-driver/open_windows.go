// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/node"
)

// open returns the node that this process runs on: by the CSI Proxy beside it or, as
// in a HostProcess container, by itself. It has no cloud that the driver could use.
func open(o options) (*openedNode, error) {
	if o.via == viaPipe {
		c := client.New()
		return &openedNode{proxy: driver.OverPipe(c), closers: []io.Closer{c}}, nil
	}
	n, err := node.Open(node.Options{})
	if err != nil {
		return nil, err
	}
	return &openedNode{proxy: driver.InProcess(n)}, nil
}
