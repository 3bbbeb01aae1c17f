// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !simulated

package host

import "github.com/csi-proxy/csi-proxy/node"

func open(o node.Options) (*node.Node, error) { return node.Open(o) }
