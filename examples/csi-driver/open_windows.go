// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/node"
)

// open returns the node on which this process runs. It is used through the CSI Proxy
// daemon or, as in a HostProcess container, in process. It has no cloud.
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
