// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"

	"github.com/csi-proxy/csi-proxy/internal/windows/winsys"
)

// openWindows opens this machine.
func openWindows(o options, log *slog.Logger) (system, error) {
	sys, err := winsys.Open(winsys.Options{Logger: log})
	if err != nil {
		return nil, err // and no system, which a nil *winsys.System would be
	}
	return sys, nil
}
