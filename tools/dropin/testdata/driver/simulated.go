// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build simulated

package main

import _ "github.com/kubernetes-csi/csi-proxy/v2/pkg/simulated"
