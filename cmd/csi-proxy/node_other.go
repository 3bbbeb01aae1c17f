// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"fmt"
	"log/slog"
	"runtime"
)

// openWindows opens this machine, which isn't Windows.
func openWindows(options, *slog.Logger) (system, error) {
	return nil, fmt.Errorf("this system is %s", runtime.GOOS)
}
