// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build simulated

package host

import (
	"os"

	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// StateFile names the file that the simulated node is kept in. Without one it ends with the
// process.
const StateFile = "CSI_PROXY_SIMULATED_STATE"

// Simulated is the simulated node, once Node was called.
var Simulated *simnode.Node

func open(o node.Options) (*node.Node, error) {
	options := []simnode.Option{simnode.WithNodeOptions(o)}
	if file := os.Getenv(StateFile); file != "" {
		options = append(options, simnode.WithStateFile(file))
	}
	sim, err := simnode.Start(options...)
	if err != nil {
		return nil, err
	}
	Simulated = sim
	return sim.Operations(), nil
}
