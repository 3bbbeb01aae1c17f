// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package node

import (
	"runtime"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func open(Options) (*Node, error) {
	return nil, &csiproxy.Error{
		Op: "open", Object: "the node", Kind: csiproxy.ErrUnimplemented,
		Detail: "this system is " + runtime.GOOS + ", not windows; for tests, package simnode has a simulated node",
	}
}
