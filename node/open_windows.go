// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys"
)

func open(o Options) (*Node, error) {
	// System needs no Close here: all handles are closed at the end of their operation.
	sys, err := winsys.Open(winsys.Options{Logger: o.Logger})
	if err != nil {
		return nil, &csiproxy.Error{Op: "open", Object: "the node", Err: err}
	}
	n, err := nodeops.New(sys, nodeops.Options(o))
	if err != nil {
		return nil, err
	}
	operations := n.Bounded()
	return (*Node)(&operations), nil
}
