// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated lets the packages of this module work on a simulated node, in a program that
// imports it:
//
//	//go:build simulated
//
//	package main
//
//	import _ "github.com/kubernetes-csi/csi-proxy/v2/pkg/simulated"
//
// A driver that doesn't import it needs none of the modules that a simulated node is made of.
package simulated

import (
	"os"
	"runtime"

	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"
	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

const (
	// StateFile is the environment variable that names the file in which the simulated node is kept.
	// Without it the node ends with the process.
	StateFile = "CSI_PROXY_SIMULATED_STATE"
	// EndpointDir is the one that names the directory of the sockets by which csi-proxyctl sim attaches
	// disks, and test/kubernetes/kubelet runs its scenarios. On Windows they are named pipes, whatever
	// directory it names. Without it, the node can't be reached.
	EndpointDir = "CSI_PROXY_SIMULATED_ENDPOINTS"
)

func init() {
	host.Open = open
	if os.Getenv(EndpointDir) != "" {
		_, _ = host.Node() // so that it is reached before the driver's first call, which returns the same error
	}
}

func open(o node.Options) (*node.Node, error) {
	options := []simnode.Option{simnode.WithNodeOptions(o)}
	if dir := os.Getenv(EndpointDir); dir != "" {
		if runtime.GOOS == "windows" {
			dir = ""
		}
		options = append(options, simnode.WithEndpointDir(dir))
	}
	if file := os.Getenv(StateFile); file != "" {
		options = append(options, simnode.WithStateFile(file))
	}
	sim, err := simnode.Start(options...)
	if err != nil {
		return nil, err
	}
	return sim.Operations(), nil
}
