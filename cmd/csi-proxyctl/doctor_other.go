// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import "github.com/csi-proxy/csi-proxy/internal/doctor"

// addWindows adds nothing: the daemon of a simulated node is all that can be asked.
func addWindows(*doctor.Node) error { return nil }
