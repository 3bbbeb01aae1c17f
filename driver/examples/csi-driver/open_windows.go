// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud/hardware"
	"github.com/csi-proxy/csi-proxy/node"
)

// open returns the node on which this process runs. It is used through the CSI Proxy
// daemon or, as in a HostProcess container, in process. It has no cloud, unless the daemon
// runs on a simulated node.
func open(o options) (*openedNode, error) {
	if o.via == viaPipe {
		c := client.New(o.clientOptions()...)
		n := &openedNode{storage: c.Storage, closers: []io.Closer{c}}
		if o.simulated {
			plugs, err := hardware.OfDaemon(o.endpointDir)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			n.hardware, n.closers = plugs, append(n.closers, plugs)
		}
		return n, nil
	}
	if o.simulated {
		return nil, errors.New("-simulated: needs -via=" + viaPipe)
	}
	n, err := node.Open(node.Options{})
	if err != nil {
		return nil, err
	}
	return &openedNode{storage: n.Storage}, nil
}
