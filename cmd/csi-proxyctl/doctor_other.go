// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
)

// installedServices is nil: there are none that could be asked.
var installedServices func(context.Context) ([]doctor.Service, error)

// addWindows adds nothing: the daemon of a simulated node is all that can be asked.
func addWindows(*doctor.Node) {}
